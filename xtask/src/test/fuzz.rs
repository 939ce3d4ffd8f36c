//! Coverage-guided fuzzing of whatever reads what strangers wrote: each target of `fuzz/` for a bounded time.
//!
//! Needs a nightly compiler and cargo-fuzz; without them, and in an ordinary run, it is skipped with the reason.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::Run;
use super::report::KindReport;
use crate::{process, workspace};

/// How long each target runs.
const SECONDS: u64 = 60;
/// The first one builds the targets.
const ALLOWED: Duration = Duration::from_secs(3_600);
/// Longer inputs cost time, and show nothing that shorter ones do not.
const INPUT_BYTES_MAX: u32 = 4_096;

pub(crate) fn run(run: &Run) -> KindReport {
    let mut report = KindReport::new("fuzz");
    if let Some(reason) = missing(run) {
        report.skip("fuzz targets", &reason);
        return report;
    }
    let targets = match targets() {
        Ok(targets) => targets,
        Err(error) => {
            report.add("fuzz targets", Some(format!("{error:#}")), Duration::ZERO);
            return report;
        }
    };
    for target in targets {
        let mut command = command(&target, run.options.seed);
        let (failure, took) = match process::capture(&mut command, ALLOWED, &mut |_| ()) {
            Ok(finished) => {
                let executions = executions(&finished.output);
                let findings = usize::from(!finished.succeeded());
                println!("fuzz {target}: {} executions, {findings} findings", executions.unwrap_or_default());
                let silent = executions.is_none().then(|| "it does not say how often it ran".to_owned());
                let failed = (!finished.succeeded())
                    .then(|| format!("{}\n{target} {}", last_lines(&finished.output), finished.end));
                (failed.or(silent), finished.took)
            }
            Err(error) => (Some(format!("{error:#}")), Duration::ZERO),
        };
        report.add(&target, failure, took);
    }
    report
}

/// Why nothing is fuzzed here.
fn missing(run: &Run) -> Option<String> {
    if !run.options.full {
        return Some("takes a minute for each target: only with --full".to_owned());
    }
    if !workspace::has_program("rustup") || !answers(nightly().arg("--version")) {
        return Some("there is no nightly toolchain (rustup toolchain install nightly)".to_owned());
    }
    let has_fuzz = answers(nightly().args(["fuzz", "--version"]));
    (!has_fuzz).then(|| "cargo-fuzz is not installed (cargo install cargo-fuzz)".to_owned())
}

fn answers(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The nightly's cargo, without what the cargo that runs us told us about itself.
fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(workspace::root().join("fuzz"));
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
    command.arg(corpus);
    if target == "texts" {
        command.arg(workspace::root().join("tests/incidents"));
    }
    command.arg("--").args(["-print_final_stats=1", "-timeout=20", "-rss_limit_mb=2048"]);
    command.arg(format!("-max_total_time={SECONDS}")).arg(format!("-max_len={INPUT_BYTES_MAX}"));
    // Zero would have it choose one itself.
    command.arg(format!("-seed={}", (seed % u64::from(u32::MAX)).max(1)));
    command
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
