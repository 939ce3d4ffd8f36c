//! How fast a repair goes: pods start meanwhile, and their addresses come out of the same store.
//!
//! A commit keeps others waiting for as long as it takes, so commits are made as large as they can be without taking long, and after
//! each one the store belongs to the others for as long as it was ours.

use std::time::Duration;

/// A round trip that takes longer than this was too large.
const ROUND_MAX: Duration = Duration::from_millis(8);
/// How long others have the store at most: one that is slow by itself is not made faster by waiting.
const REST_MAX: Duration = Duration::from_millis(20);
/// Each round has its price, whatever its size: with fewer steps in each, a repair of a large book would take too long.
const STEPS_MIN: usize = 64;
/// By how much commits grow again while they are quick.
const GROWTH: usize = 4;

#[derive(Debug)]
pub(crate) struct Pace {
    steps: usize,
    steps_max: usize,
}

impl Pace {
    pub(crate) fn new(steps_max: usize) -> Pace {
        let steps_max = steps_max.max(1);
        Pace { steps: steps_max.min(STEPS_MIN), steps_max }
    }

    /// How many steps may share the next commit.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Takes in how long the last round took. Says for how long to leave the store to others.
    pub(crate) fn rest_after(&mut self, round: Duration) -> Duration {
        self.steps = match round > ROUND_MAX {
            true => (self.steps / 2).max(STEPS_MIN),
            false => self.steps + GROWTH,
        };
        self.steps = self.steps.min(self.steps_max);
        round.min(REST_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_shrink_while_they_take_long_and_grow_while_they_do_not() {
        let (slow, quick) = (ROUND_MAX * 2, ROUND_MAX / 2);
        let mut pace = Pace::new(256);
        assert_eq!(pace.steps(), STEPS_MIN);
        for _ in 0..200 {
            assert_eq!(pace.rest_after(quick), quick);
        }
        assert_eq!(pace.steps(), 256);
        assert_eq!(pace.rest_after(slow), slow);
        assert_eq!(pace.steps(), 128);
        for _ in 0..20 {
            pace.rest_after(slow);
        }
        assert_eq!(pace.steps(), STEPS_MIN);
    }

    #[test]
    fn whoever_wants_one_step_at_a_time_gets_that_and_nobody_waits_for_long() {
        let mut pace = Pace::new(1);
        assert_eq!(pace.rest_after(Duration::from_secs(9)), REST_MAX);
        assert_eq!(pace.steps(), 1);
        pace.rest_after(Duration::ZERO);
        assert_eq!(pace.steps(), 1);
    }
}
