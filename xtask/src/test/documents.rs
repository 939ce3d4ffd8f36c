//! Tests that live in documents: examples in doc comments, and the commands that the docs show.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Run;
use super::binaries::{Built, describe_run};
use super::libtest::tally;
use super::report::KindReport;
use crate::transcript::{self, Item, Outcome, Page};
use crate::{process, workspace};

/// Examples in doc comments. Only cargo knows how to build these.
pub(crate) fn doc_tests(run: &Run) -> Result<KindReport> {
    let mut report = KindReport::new("doc");
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--doc", "--no-fail-fast", "--"]).args(&run.options.words);
    describe_run(run, &mut command);
    let finished = process::capture(&mut command, run.options.allowed(), &mut |_| ())?;
    let mut tally = tally("doc comments", &finished);
    // Cargo's success without a single example is not a passed test.
    tally.passed.retain(|name| name != "doc comments");
    report.add_program("doc comments", &tally, Vec::new(), &finished);
    Ok(report)
}

/// The commands shown in the docs. Each fence is one test.
pub(crate) fn transcripts(run: &Run, built: &Built) -> Result<KindReport> {
    let mut report = KindReport::new("transcripts");
    if let Some(obstacle) = transcript::obstacle() {
        report.skip("commands in the docs", &obstacle);
        return Ok(report);
    }
    if let Some(program) = built.missing(&["plumb", "plumbd", "plumb-cni"]) {
        report.add("commands in the docs", Some(format!("{program} was not built")), Duration::ZERO);
        return Ok(report);
    }
    for path in transcript::pages() {
        let page = match transcript::read(&path) {
            Ok(page) => page,
            Err(error) => {
                report.add(&workspace::shown(&path), Some(format!("{error:#}")), Duration::ZERO);
                continue;
            }
        };
        add_page(run, &page, &mut report)?;
    }
    Ok(report)
}

fn add_page(run: &Run, page: &Page, report: &mut KindReport) -> Result<()> {
    let started = Instant::now();
    let outcomes = transcript::run_page(page, &run.metadata.program_dir(), run.scratch.path())?;
    let fences: Vec<(String, Option<String>)> = page
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Session { line, .. } => Some((format!("line {line}"), failures(&outcomes, *line))),
            // A fence that says why it is not run was never a test; `cargo xtask docs` lists these.
            Item::File { .. } | Item::Untested { .. } => None,
        })
        .collect();
    report.add_group(&page.name, fences, started.elapsed());
    Ok(())
}

fn failures(outcomes: &[Outcome], fence: usize) -> Option<String> {
    let of_fence = outcomes.iter().filter(|outcome| outcome.fence == fence);
    let failures: Vec<&str> = of_fence.filter_map(|outcome| outcome.failure.as_deref()).collect();
    (!failures.is_empty()).then(|| failures.join("\n"))
}
