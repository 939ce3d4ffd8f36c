//! What every test needs: seeds, counts, skipping with a reason, real parts started and stopped.
//!
//! * `PLUMB_TEST_SEED`: the seed of this run, printed by `cargo xtask test`.
//! * `PLUMB_TEST_FULL`: the counts that the issues name instead of those that fit a quick run.
//! * `PLUMB_TEST_SKIPS`: a file that collects one line per skipped test.
//! * `PLUMB_TEST_NOTES`: a file that collects what tests have measured, a line each.

mod again;
pub mod certificates;
mod dice;
pub mod effort;
pub mod etcd;
pub mod figures;
pub mod forwarder;
pub mod kube;
mod ports;
pub mod process;
pub mod release;
mod scratch;

use std::io::Write as _;
use std::time::Duration;

pub use again::{Role, again, role};
pub use dice::Dice;
pub use ports::free_port;
pub use scratch::scratch;

/// How long a test waits for anything: a deadline against hanging, and nothing else. It must be met on a machine whose cores are all
/// busy with something else, where everything takes ten times as long. There is no other one: a test that wants to wait less waits
/// for the wrong thing.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The seed of this run; the same for every test, so that one number reproduces the run.
pub fn seed() -> u64 {
    std::env::var("PLUMB_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// `quick` normally, `full` under `cargo xtask test --full`.
pub fn count(quick: usize, full: usize) -> usize {
    if std::env::var_os("PLUMB_TEST_FULL").is_some() { full } else { quick }
}

/// Reports a test as skipped. The caller returns right after.
pub fn skip(test: &str, reason: &str) {
    eprintln!("SKIPPED {test}: {reason}");
    append("PLUMB_TEST_SKIPS", test, reason);
}

/// Figures that a test has measured, to be shown at the end of the run also if it passes.
pub fn note(test: &str, figures: &str) {
    eprintln!("{test}: {figures}");
    append("PLUMB_TEST_NOTES", test, figures);
}

/// Adds a line to the list that a variable names, if there is one.
fn append(variable: &str, test: &str, words: &str) {
    let Some(path) = std::env::var_os(variable) else { return };
    let line = format!("{test}: {words}\n");
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("a list of this run can be written");
}
