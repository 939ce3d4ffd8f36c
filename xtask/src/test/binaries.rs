//! Builds every test program of the workspace at once, then runs them one by one.
//!
//! Not `cargo test`: we want a deadline for each test (see `hangs`), skips told apart from passes, and the rest to run when
//! one does not even compile.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::hangs::{Harness, HarnessLimits};
use super::report::{KindReport, Report};
use super::skips::SkipList;
use super::{Run, options::Options};
use crate::metadata::Metadata;
use crate::workspace;

/// How many tests of one program run at once, for each core. Integration tests mostly wait: for timers, probes and other programs.
const TESTS_PER_CORE: usize = 2;
/// How many programs of integration tests run at once. The last tests of a program often wait alone.
const PROGRAMS_AT_ONCE: usize = 2;
/// Programs that take long. They start first, so that none of them is left to run alone at the end.
const LONG: &[&str] = &[
    "lab doctor_live",
    "lab agent",
    "lab crash_matrix",
    "lab between",
    "lab bgp",
    "lab replays",
    "lab runtimes",
    "lab disasters",
    "lab kubernetes",
    "store kube",
    "book book",
];
/// How often a sign of life is given by a program that takes long.
const PROGRESS_EVERY: Duration = Duration::from_secs(30);

/// A program that holds tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// `unit` or `integration`.
    kind: &'static str,
    package: String,
    /// The crate, and for integration tests the file: `store contract`.
    name: String,
    executable: PathBuf,
    package_dir: PathBuf,
}

/// What a build made.
#[derive(Debug, Default)]
pub(crate) struct Built {
    tests: Vec<TestProgram>,
    /// Names of our own programs that are up to date. A file of that name in the build folder proves nothing: it
    /// may be older than the fault that keeps it from being built.
    programs: BTreeSet<String>,
}

impl Built {
    /// The first of `names` that could not be built.
    pub(crate) fn missing(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| !self.programs.contains(*name))
    }
}

/// Builds the programs and all tests in one go, so that both are compiled with the same features. Builds
/// nothing if nothing that was asked for needs it.
pub(crate) fn build(run: &Run, report: &mut Report) -> Result<Built> {
    let kinds = ["unit", "integration", "transcripts", "demo", "simulation"];
    if !kinds.iter().any(|kind| run.options.wants_kind(kind)) {
        return Ok(Built::default());
    }
    println!("building the programs and their tests");
    let started = Instant::now();
    let output = workspace::cargo()
        .args(["build", "--workspace", "--bins", "--tests", "--keep-going"])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo build")?;
    // A build is no test, but one that fails must not go unnoticed in the sum.
    let mut build = KindReport { took: started.elapsed(), ..KindReport::new("build") };
    if !output.status.success() {
        build.add("not everything compiles", Some("see above".to_owned()), Duration::ZERO);
    }
    report.add(build);
    Ok(parse_artifacts(&String::from_utf8_lossy(&output.stdout), &run.metadata))
}

fn parse_artifacts(messages: &str, metadata: &Metadata) -> Built {
    let mut built = Built::default();
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if message["reason"] != "compiler-artifact" || !message["executable"].is_string() {
            continue;
        }
        if message["profile"]["test"] == true {
            built.tests.extend(test_program(&message, metadata));
        } else {
            built.programs.extend(message["target"]["name"].as_str().map(str::to_owned));
        }
    }
    built.tests.sort_by(|a, b| a.name.cmp(&b.name));
    built
}

fn test_program(message: &Value, metadata: &Metadata) -> Option<TestProgram> {
    let executable = PathBuf::from(message["executable"].as_str()?);
    let package = metadata.packages.iter().find(|package| message["package_id"] == package.id.as_str())?;
    let target = message["target"]["name"].as_str()?;
    let is_integration = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "test");
    let (kind, name) = if is_integration {
        ("integration", format!("{} {target}", package.name))
    } else if target == package.name {
        ("unit", package.name.clone())
    } else {
        ("unit", format!("{} {target}", package.name))
    };
    Some(TestProgram {
        kind,
        package: package.name.clone(),
        name,
        executable,
        package_dir: package.dir.clone(),
    })
}

pub(crate) fn run_all(run: &Run, built: &Built, report: &mut Report) -> Result<()> {
    let (crates, filters) = selection(&run.options, &run.metadata);
    for kind in ["unit", "integration"] {
        if !run.options.wants_kind(kind) {
            continue;
        }
        let is_wanted = |program: &&TestProgram| {
            program.kind == kind && (crates.is_empty() || crates.contains(&program.package))
        };
        let mut programs: Vec<&TestProgram> = built.tests.iter().filter(is_wanted).collect();
        programs
            .sort_by_key(|program| LONG.iter().position(|name| *name == program.name).unwrap_or(LONG.len()));
        // Unit tests keep every core busy by themselves.
        let at_once = if kind == "integration" { PROGRAMS_AT_ONCE } else { 1 };
        report.add(run_at_once(run, kind, &programs, &filters, at_once)?);
    }
    Ok(())
}

/// Runs the programs in their order, so many at a time, and reports each when it has ended.
fn run_at_once(
    run: &Run,
    kind: &'static str,
    programs: &[&TestProgram],
    filters: &[String],
    at_once: usize,
) -> Result<KindReport> {
    let started = Instant::now();
    let report = Mutex::new(KindReport::new(kind));
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            run_one(run, program, filters, &report)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let mut report = report.into_inner().expect("a worker does not panic");
    report.took = started.elapsed();
    Ok(report)
}

/// The words of the filter: crates, and parts of test names.
fn selection(options: &Options, metadata: &Metadata) -> (Vec<String>, Vec<String>) {
    options.words.iter().cloned().partition(|word| metadata.package(word).is_some())
}

fn run_one(run: &Run, program: &TestProgram, filters: &[String], report: &Mutex<KindReport>) -> Result<()> {
    let file_name = program.executable.file_name().unwrap_or_default().to_string_lossy();
    let skip_list = SkipList::new(run.scratch.path(), &file_name);
    let command = |arguments: &[String]| {
        let mut command = Command::new(&program.executable);
        command.args(arguments).current_dir(&program.package_dir);
        // As under `cargo test`.
        command.env("CARGO_MANIFEST_DIR", &program.package_dir).env("CARGO_PKG_NAME", &program.package);
        command.env("PLUMB_TEST_SKIPS", skip_list.path());
        if program.kind == "integration" && std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", tests_at_once().to_string());
        }
        describe_run(run, &mut command);
        command
    };
    let limits = HarnessLimits { total: run.options.allowed(), quiet: run.options.allowed_for_test() };
    let (name, seed) = (program.name.as_str(), run.options.seed);
    let harness = Harness { name, command: &command, filters, limits, seed };

    let mut progress = Progress::new(name);
    let (tally, finished) = harness.run(&mut |line| progress.line(line))?;
    let mut report = report.lock().expect("a worker does not panic");
    report.add_program(name, &tally, skip_list.read(), &finished);
    Ok(())
}

fn tests_at_once() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) * TESTS_PER_CORE
}

/// What every child of this run is told: the seed, and a place for its temporary files that goes away with us.
pub(crate) fn describe_run(run: &Run, command: &mut Command) {
    run.options.describe_to(command);
    command.env("PLUMB_TEST_NOTES", run.notes());
    command.env("TMPDIR", run.scratch.path()).env("PATH", workspace::search_path());
}

struct Progress<'a> {
    program: &'a str,
    started: Instant,
    shown: Instant,
    done: usize,
}

impl<'a> Progress<'a> {
    fn new(program: &'a str) -> Progress<'a> {
        Progress { program, started: Instant::now(), shown: Instant::now(), done: 0 }
    }

    fn line(&mut self, line: &str) {
        if !line.starts_with("test ") || line.starts_with("test result") {
            return;
        }
        self.done += 1;
        if self.shown.elapsed() > PROGRESS_EVERY {
            self.shown = Instant::now();
            println!(
                "  … {}: {} tests done in {} s",
                self.program,
                self.done,
                self.started.elapsed().as_secs()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Package;

    fn metadata() -> Metadata {
        let package = |name: &str| Package {
            id: format!("path#{name}"),
            name: name.to_owned(),
            dir: PathBuf::from("crates").join(name),
            ..Package::default()
        };
        Metadata {
            target_dir: PathBuf::new(),
            packages: vec![package("store"), package("ctl")],
            needs: Default::default(),
        }
    }

    #[test]
    fn test_programs_are_told_from_the_rest() {
        let messages = r##"{"reason":"compiler-artifact","package_id":"path#store","target":{"name":"store","kind":["lib"]},"profile":{"test":true},"executable":"/t/store-1"}
{"reason":"compiler-artifact","package_id":"path#store","target":{"name":"contract","kind":["test"]},"profile":{"test":true},"executable":"/t/contract-1"}
{"reason":"compiler-artifact","package_id":"path#ctl","target":{"name":"plumb","kind":["bin"]},"profile":{"test":false},"executable":"/t/plumb"}
{"reason":"compiler-artifact","package_id":"path#ctl","target":{"name":"plumb","kind":["bin"]},"profile":{"test":true},"executable":"/t/plumb-1"}
{"reason":"compiler-artifact","package_id":"elsewhere#x","target":{"name":"x","kind":["lib"]},"profile":{"test":false},"executable":null}
{"reason":"build-finished","success":true}
not json"##;
        let built = parse_artifacts(messages, &metadata());
        assert_eq!(built.missing(&["plumb"]), None);
        assert_eq!(built.missing(&["plumb", "plumbd"]), Some("plumbd"));
        let programs = built.tests;
        let found: Vec<(&str, &str)> =
            programs.iter().map(|program| (program.kind, program.name.as_str())).collect();
        assert_eq!(found, [("unit", "ctl plumb"), ("unit", "store"), ("integration", "store contract")]);
        assert_eq!(programs[1].package_dir, PathBuf::from("crates/store"));
    }

    #[test]
    fn a_crates_name_selects_the_crate_and_other_words_select_tests() {
        let options = Options::parse(&["store".to_owned(), "watch".to_owned()]).unwrap();
        let (crates, filters) = selection(&options, &metadata());
        assert_eq!(crates, ["store"]);
        assert_eq!(filters, ["watch"]);
    }
}
