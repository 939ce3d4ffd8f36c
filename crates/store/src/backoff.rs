//! Growing pauses between tries, shaken so that many clients do not come back all at once.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A watch that lasts so long was worth its list, even if nothing happened.
const OF_USE_ANYWAY: Duration = Duration::from_secs(60);

/// Pauses between tries, the next one twice as long as the last.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    min: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff::between(PAUSE_MIN, PAUSE_MAX)
    }

    fn between(min: Duration, max: Duration) -> Backoff {
        Backoff { next: min, min, max }
    }

    /// Something went well: start over with short pauses.
    pub(crate) fn reset(&mut self) {
        self.next = self.min;
    }

    /// Between half of the current step and all of it; the next step is twice as long.
    pub(crate) fn pause(&mut self) -> Duration {
        let step = self.next;
        self.next = step.saturating_mul(2).min(self.max);
        step.mul_f64(0.5 + 0.5 * random_fraction())
    }
}

/// The pauses of somebody who follows a part of a store: a list, then a watch, and a new list when the watch ends. A long list that is
/// asked for again and again, by everybody at once, is what keeps a store in trouble.
#[derive(Debug)]
pub struct RelistPauses {
    backoff: Backoff,
    began: Instant,
    was_of_use: bool,
}

impl Default for RelistPauses {
    fn default() -> RelistPauses {
        let backoff = Backoff::between(Duration::from_secs(1), Duration::from_secs(30));
        RelistPauses { backoff, began: Instant::now(), was_of_use: false }
    }
}

impl RelistPauses {
    /// A list begins.
    pub fn begin(&mut self) {
        (self.began, self.was_of_use) = (Instant::now(), false);
    }

    /// The watch after it has told something.
    pub fn was_of_use(&mut self) {
        self.was_of_use = true;
    }

    /// How long to wait before the next list. `has_failed`: it was an error that ended the watch or the list, not a gap in the history.
    pub fn before_next(&mut self, has_failed: bool) -> Duration {
        if self.was_of_use || self.began.elapsed() >= OF_USE_ANYWAY {
            self.backoff.reset();
            if !has_failed {
                return Duration::ZERO;
            }
        }
        self.backoff.pause()
    }
}

/// The standard library's hash keys are random; that is all the chance a jitter needs.
fn random_fraction() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_start_over() {
        let mut backoff = Backoff::new();
        let mut step = PAUSE_MIN;
        for _ in 0..10 {
            let pause = backoff.pause();
            assert!(step / 2 <= pause && pause <= step, "{pause:?} of {step:?}");
            step = (step * 2).min(PAUSE_MAX);
        }
        assert_eq!(step, PAUSE_MAX);
        backoff.reset();
        assert!(backoff.pause() <= PAUSE_MIN);
    }

    #[test]
    fn a_watch_that_is_of_no_use_is_not_opened_all_the_time() {
        let mut pauses = RelistPauses::default();
        let seconds = |pause: Duration| pause.as_secs_f64();
        for (shortest, longest) in [(0.5, 1.0), (1.0, 2.0), (2.0, 4.0), (4.0, 8.0), (8.0, 16.0), (15.0, 30.0)]
        {
            pauses.begin();
            let pause = seconds(pauses.before_next(true));
            assert!((shortest..=longest).contains(&pause), "{pause} {longest}");
        }
        assert!(seconds(pauses.before_next(false)) >= 15.0, "a history that is gone at once is no better");
        pauses.begin();
        pauses.was_of_use();
        assert_eq!(pauses.before_next(false), Duration::ZERO);
        assert!(seconds(pauses.before_next(true)) <= 1.0);
    }
}
