//! `cargo xtask test`: every kind of test, one after the other. A step that fails does not stop the rest.

mod binaries;
mod busy;
mod documents;
mod fuzz;
mod hangs;
mod libtest;
mod options;
mod programs;
mod released;
mod report;
mod skips;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;

use crate::metadata::Metadata;
use crate::scratch::Scratch;
use crate::{go_tools, kubernetes, packages, tidy};

use options::Options;
pub(crate) use report::{KindReport, Report};

/// What every step needs to know about this run.
struct Run {
    options: Options,
    metadata: Metadata,
    scratch: Scratch,
}

impl Run {
    /// Where tests write what they have measured, a line each.
    fn notes(&self) -> PathBuf {
        self.scratch.path().join("notes")
    }
}

pub(crate) fn run(args: &[String]) -> Result<bool> {
    let options = Options::parse(args)?;
    println!("seed {} (the same again: cargo xtask test --seed {0})", options.seed);
    packages::ensure(packages::FOR_TESTS)?;
    go_tools::ensure()?;
    if options.wants_kind("integration") {
        kubernetes::ensure()?;
    }
    let run = Run { metadata: Metadata::ours()?, scratch: Scratch::new()?, options };
    let mut report = Report::default();
    let started = Instant::now();
    if run.options.wants_kind("tidy") {
        report.add(tidy::as_test());
    }
    let built = binaries::build(&run, &mut report)?;
    let _load = run.options.busy.then(busy::Load::start);
    binaries::run_all(&run, &built, &mut report)?;
    if run.options.wants_kind("doc") {
        report.add(documents::doc_tests(&run)?);
    }
    if run.options.wants_kind("transcripts") {
        report.add(documents::transcripts(&run, &built)?);
    }
    if run.options.wants_kind("demo") {
        report.add(programs::demo(&run, &built));
    }
    if run.options.wants_kind("simulation") {
        report.add(programs::simulation(&run, &built));
    }
    if run.options.wants_kind("fuzz") {
        report.add(fuzz::run(&run));
    }
    if run.options.wants_kind("released") {
        report.add(released::run(&run));
    }
    report.notes = std::fs::read_to_string(run.notes()).unwrap_or_default();
    report.print(run.options.seed, started.elapsed());
    Ok(report.succeeded())
}
