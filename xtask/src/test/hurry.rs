//! Keeps a plain run within the time that continuous integration gives it: 90 minutes. The later it is, the smaller the part
//! of the remaining integration tests that runs, another part with each seed. The report counts the rest as skipped. `--full`
//! and `--busy` leave nothing out.

use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// From so many minutes after the start of the run, one of so many tests runs.
const PARTS: &[(u32, usize)] = &[(65, 16), (52, 4), (40, 2)];
/// No integration test runs longer than this after the start of the run. Other kinds of test follow, and take minutes.
const END_OF_INTEGRATION: Duration = MINUTE.saturating_mul(75);
/// A program with more tests than this runs them in portions, so that a late one can leave tests out on the way.
const PORTION: usize = 24;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Hurry {
    started: Instant,
    /// Takes all the time that it needs.
    is_patient: bool,
    seed: u64,
}

impl Hurry {
    pub(crate) fn new(seed: u64, is_patient: bool) -> Hurry {
        Hurry { started: Instant::now(), is_patient, seed }
    }

    pub(crate) fn is_patient(&self) -> bool {
        self.is_patient
    }

    /// Tests in the order of this seed, a portion at a time.
    pub(crate) fn portions(&self, mut tests: Vec<String>) -> Vec<Vec<String>> {
        tests.sort_by_cached_key(|name| (fnv(self.seed, name), name.clone()));
        tests.chunks(PORTION).map(<[String]>::to_vec).collect()
    }

    /// The tests of a portion to run now, and those to leave out.
    pub(crate) fn divide(&self, portion: Vec<String>) -> (Vec<String>, Vec<String>) {
        divide(portion, self.elapsed())
    }

    /// How long an integration test that starts now may take.
    pub(crate) fn left(&self) -> Duration {
        if self.is_patient { Duration::MAX } else { END_OF_INTEGRATION.saturating_sub(self.elapsed()) }
    }

    /// Why a test was left out.
    pub(crate) fn reason(&self) -> String {
        let minutes = self.elapsed().as_secs() / 60;
        format!("left out: the run had already taken {minutes} minutes; --full leaves nothing out")
    }

    /// A run that has been going on for long.
    #[cfg(test)]
    pub(crate) fn with_little_left(self, left: Duration) -> Hurry {
        Hurry { started: Instant::now() - (END_OF_INTEGRATION - left), ..self }
    }

    fn elapsed(&self) -> Duration {
        if self.is_patient { Duration::ZERO } else { self.started.elapsed() }
    }
}

fn divide(mut portion: Vec<String>, elapsed: Duration) -> (Vec<String>, Vec<String>) {
    if elapsed >= END_OF_INTEGRATION {
        return (Vec::new(), portion);
    }
    let one_in =
        PARTS.iter().find(|(minutes, _)| elapsed >= MINUTE * *minutes).map_or(1, |(_, one_in)| *one_in);
    let left_out = portion.split_off(portion.len().div_ceil(one_in));
    (portion, left_out)
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

    fn portion(seed: u64) -> Vec<String> {
        Hurry::new(seed, false).portions(names(20)).remove(0)
    }

    #[test]
    fn the_later_the_fewer() {
        let count = |minutes| divide(names(32), MINUTE * minutes).0.len();
        assert_eq!([0, 39, 40, 52, 65, 74, 75, 90].map(count), [32, 32, 16, 8, 2, 2, 0, 0]);
        assert_eq!(divide(names(2), MINUTE * 66).0.len(), 1, "a small program still runs one");
    }

    #[test]
    fn nothing_is_lost_between_run_and_left_out() {
        let (run, left_out) = divide(names(10), MINUTE * 53);
        assert_eq!((run.len(), left_out.len()), (3, 7));
        assert_eq!([run, left_out].concat(), names(10));
    }

    #[test]
    fn another_part_runs_with_each_seed_and_every_test_has_its_turn() {
        assert_eq!(portion(1), portion(1));
        assert_ne!(portion(1), portion(2));
        let ran: std::collections::BTreeSet<String> =
            (0..100).flat_map(|seed| divide(portion(seed), MINUTE * 53).0).collect();
        assert_eq!(ran.len(), 20);
    }

    #[test]
    fn portions_hold_each_test_once() {
        let portions = Hurry::new(1, false).portions(names(50));
        assert_eq!(portions.iter().map(Vec::len).collect::<Vec<_>>(), [24, 24, 2]);
        let all: std::collections::BTreeSet<String> = portions.concat().into_iter().collect();
        assert_eq!(all.len(), 50);
    }

    #[test]
    fn only_a_plain_run_hurries() {
        assert_eq!(Hurry::new(1, true).with_little_left(Duration::ZERO).left(), Duration::MAX);
        assert_eq!(Hurry::new(1, false).with_little_left(Duration::ZERO).left(), Duration::ZERO);
    }
}
