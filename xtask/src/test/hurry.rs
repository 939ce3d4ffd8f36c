//! Keeps a plain run within the time that continuous integration gives it. Programs of tests that start late run a part of
//! their tests, another part with each seed; the report counts the rest as skipped. `--full` leaves nothing out.

use std::time::{Duration, Instant};

/// A program that starts later than this after the start of the run leaves tests out. CI ends a run after 90 minutes, and
/// other kinds of test follow.
const LATE: Duration = Duration::from_secs(58 * 60);
/// Of this many tests, a late program runs one.
const ONE_IN: u64 = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Hurry {
    started: Instant,
    /// `None`: take all the time that it needs.
    late: Option<Duration>,
    seed: u64,
}

impl Hurry {
    pub(crate) fn new(seed: u64, is_patient: bool) -> Hurry {
        Hurry { started: Instant::now(), late: (!is_patient).then_some(LATE), seed }
    }

    pub(crate) fn is_late(&self) -> bool {
        self.late.is_some_and(|late| self.started.elapsed() > late)
    }

    /// The tests to run, and those to leave out. At least one runs.
    pub(crate) fn divide(&self, mut tests: Vec<String>) -> (Vec<String>, Vec<String>) {
        tests.sort_by_cached_key(|name| (fnv(self.seed, name), name.clone()));
        let count = tests.len().div_ceil(ONE_IN as usize).max(1).min(tests.len());
        let left_out = tests.split_off(count);
        (tests, left_out)
    }

    /// Why a test was left out.
    pub(crate) fn reason(&self) -> String {
        let minutes = self.late.unwrap_or_default().as_secs() / 60;
        format!("left out: the run had already taken {minutes} minutes; --full leaves nothing out")
    }
}

/// The same order for the same seed on every machine.
fn fnv(seed: u64, name: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    name.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("test_{number}")).collect()
    }

    #[test]
    fn a_late_program_runs_another_part_with_each_seed() {
        let divide = |seed| Hurry::new(seed, false).divide(names(40));
        let (run, left_out) = divide(1);
        assert_eq!((run.len(), left_out.len()), (10, 30));
        assert_eq!(divide(1), (run.clone(), left_out));
        assert_ne!(divide(2).0, run);
    }

    #[test]
    fn every_test_has_its_turn() {
        let ran: std::collections::BTreeSet<String> =
            (0..100).flat_map(|seed| Hurry::new(seed, false).divide(names(21)).0).collect();
        assert_eq!(ran.len(), 21);
    }

    #[test]
    fn a_small_program_runs_one_test_and_an_empty_one_none() {
        assert_eq!(Hurry::new(1, false).divide(names(2)).0.len(), 1);
        assert_eq!(Hurry::new(1, false).divide(Vec::new()), (Vec::new(), Vec::new()));
    }

    #[test]
    fn only_a_plain_run_hurries() {
        let mut hurry = Hurry::new(1, false);
        assert!(!hurry.is_late());
        hurry.late = Some(Duration::ZERO);
        assert!(hurry.is_late());
        assert!(!Hurry::new(1, true).is_late());
    }
}
