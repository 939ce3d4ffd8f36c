//! Coverage-guided fuzzing of whatever reads what strangers wrote: each target of `fuzz/` for a bounded time.
//!
//! Needs a nightly compiler; without one, and in an ordinary run, it is skipped with the reason. cargo-fuzz is installed into our cache, once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::Run;
use super::report::KindReport;
use crate::{go_tools, process, workspace};

/// How long each target runs.
const SECONDS: u64 = 60;
/// The first one builds the targets.
const ALLOWED: Duration = Duration::from_secs(3_600);
/// Another version is another program.
const CARGO_FUZZ: &str = "0.13.1";
/// Longer inputs cost time, and show nothing that shorter ones do not.
const INPUT_BYTES_MAX: u32 = 4_096;

pub(crate) fn run(run: &Run) -> KindReport {
    let mut report = KindReport::new("fuzz");
    if let Some(reason) = missing(run) {
        report.skip("fuzz targets", &reason);
        return report;
    }
    // A machine without a network is no fault of the tree.
    if let Err(error) = ensure_cargo_fuzz() {
        report.skip("fuzz targets", &format!("cargo-fuzz cannot be installed: {error:#}"));
        return report;
    }
    match targets() {
        Ok(targets) => targets.iter().for_each(|target| fuzz(target, run.options.seed, &mut report)),
        Err(error) => report.add("fuzz targets", Some(format!("{error:#}")), Duration::ZERO),
    }
    report
}

fn fuzz(target: &str, seed: u64, report: &mut KindReport) {
    let finished = match process::capture(&mut command(target, seed), ALLOWED, &mut |_| ()) {
        Ok(finished) => finished,
        Err(error) => return report.add(target, Some(format!("{error:#}")), Duration::ZERO),
    };
    let executions = executions(&finished.output);
    let findings = usize::from(!finished.succeeded());
    println!("fuzz {target}: {} executions, {findings} findings", executions.unwrap_or_default());
    let silent = executions.is_none().then(|| "it does not say how often it ran".to_owned());
    let failed = (!finished.succeeded())
        .then(|| format!("{}\n{target} {}", last_lines(&finished.output), finished.end));
    report.add(target, failed.or(silent), finished.took);
}

/// Why nothing is fuzzed here.
fn missing(run: &Run) -> Option<String> {
    if !run.options.full {
        return Some("takes a minute for each target: only with --full".to_owned());
    }
    let has_nightly = workspace::has_program("rustup") && answers(nightly().arg("--version"));
    (!has_nightly).then(|| "there is no nightly toolchain (rustup toolchain install nightly)".to_owned())
}

/// Installs cargo-fuzz into our cache, unless it is there or somebody has installed it.
fn ensure_cargo_fuzz() -> Result<()> {
    if answers(nightly().args(["fuzz", "--version"])) {
        return Ok(());
    }
    let folder = folder().context("without HOME there is no cache to keep it in")?;
    println!("installing cargo-fuzz {CARGO_FUZZ}; this takes a few minutes, once");
    // With the compiler of the work tree: what it locks does not build with every nightly.
    let mut install = workspace::cargo();
    install.args(["install", "cargo-fuzz", "--locked", "--version", CARGO_FUZZ, "--root"]).arg(folder);
    let finished = process::capture(&mut install, ALLOWED, &mut |_| ())?;
    if !finished.succeeded() {
        bail!("{}", last_lines(&finished.output));
    }
    Ok(())
}

/// Where we keep it, one folder for each version. It need not exist.
fn folder() -> Option<PathBuf> {
    Some(go_tools::cache()?.with_file_name(format!("cargo-fuzz-{CARGO_FUZZ}")))
}

/// Where programs are looked for, ours last.
fn search_path(path: Option<OsString>, folder: Option<&Path>) -> OsString {
    let known: Vec<PathBuf> = path.iter().flat_map(std::env::split_paths).collect();
    let ours = folder.map(|folder| folder.join("bin"));
    std::env::join_paths(known.into_iter().chain(ours)).or_else(|_| path.ok_or(())).unwrap_or_default()
}

fn answers(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The nightly's cargo, without what the cargo that runs us told us about itself.
fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(workspace::root().join("fuzz"));
    command.env("PATH", search_path(std::env::var_os("PATH"), folder().as_deref()));
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "CARGO_MANIFEST_DIR"] {
        command.env_remove(name);
    }
    command
}

fn targets() -> Result<Vec<String>> {
    let output = nightly().args(["fuzz", "list"]).output().context("cargo fuzz could not be started")?;
    let listed = String::from_utf8_lossy(&output.stdout);
    let targets: Vec<String> = listed.split_whitespace().map(str::to_owned).collect();
    if targets.is_empty() {
        bail!("cargo fuzz lists no targets: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(targets)
}

/// What is safe Rust needs no sanitizer, and runs several times as often without.
fn command(target: &str, seed: u64) -> Command {
    let mut command = nightly();
    command.args(["fuzz", "run", "--sanitizer", "none", target]);
    let corpus = workspace::root().join("fuzz/corpus").join(target);
    // It must be there before it is named; the run says so if it cannot be made.
    let _ = std::fs::create_dir_all(&corpus);
    // What is found anew goes into the first; the others are only read.
    command.arg(corpus).arg(seeds(target));
    if target == "texts" {
        command.arg(workspace::root().join("tests/incidents"));
    }
    command.arg("--").args(["-print_final_stats=1", "-timeout=20", "-rss_limit_mb=2048"]);
    command.arg(format!("-max_total_time={SECONDS}")).arg(format!("-max_len={INPUT_BYTES_MAX}"));
    // Zero would have it choose one itself.
    command.arg(format!("-seed={}", (seed % u64::from(u32::MAX)).max(1)));
    command
}

/// Inputs of each sort that a target has a branch for, so that it need not find them by chance.
fn seeds(target: &str) -> PathBuf {
    workspace::root().join("fuzz/seeds").join(target)
}

/// `stat::number_of_executed_units: 123`
fn executions(output: &str) -> Option<u64> {
    let line = output.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    line.trim().parse().ok()
}

fn last_lines(output: &str) -> String {
    const LINES: usize = 40;
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever reads what strangers wrote.
    #[test]
    fn every_target_has_seeds() {
        let manifest = std::fs::read_to_string(workspace::root().join("fuzz/Cargo.toml")).unwrap();
        let mut targets: Vec<&str> = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("path = \"targets/")?.strip_suffix(".rs\""))
            .collect();
        targets.sort_unstable();
        assert_eq!(targets, ["agent", "bird", "bundles", "cri", "netconf", "netlink", "records", "texts"]);
        for target in targets {
            let count = std::fs::read_dir(seeds(target)).map_or(0, Iterator::count);
            assert!(count >= 2, "{target} has {count} seeds");
        }
    }

    #[test]
    fn our_own_program_is_found_last() {
        let path = search_path(Some("/a:/b".into()), Some(Path::new("/cache/cargo-fuzz")));
        assert_eq!(path, "/a:/b:/cache/cargo-fuzz/bin");
        assert_eq!(search_path(None, None), "");
    }

    #[test]
    fn executions_are_read_from_what_the_fuzzer_says() {
        let output = "Done 5 runs in 1 second(s)\nstat::number_of_executed_units: 123\nstat::average_exec_per_sec: 9\n";
        assert_eq!(executions(output), Some(123));
        assert_eq!(executions("error: could not compile"), None);
    }

    #[test]
    fn what_is_shown_of_a_failure_is_its_end() {
        let output: String = (0..100).map(|number| format!("line {number}\n")).collect();
        let shown = last_lines(&output);
        assert!(shown.starts_with("line 60\n") && shown.ends_with("line 99"), "{shown}");
    }
}
