//! Growing pauses between tries, shaken so that many clients do not come back all at once.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use crate::StoreError;

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSE_BETWEEN_LISTS_MAX: Duration = Duration::from_secs(30);
/// A store that nobody reaches has no work with those who try, and they are to notice soon that it is back.
const PAUSE_OUT_OF_REACH_MAX: Duration = Duration::from_secs(5);
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

    /// For lists: a server that fails them has much work with each, and everybody asks again.
    pub(crate) fn for_lists() -> Backoff {
        Backoff::between(PAUSE_MIN, PAUSE_BETWEEN_LISTS_MAX)
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
    has_listed: bool,
    was_of_use: bool,
}

impl Default for RelistPauses {
    fn default() -> RelistPauses {
        let backoff = Backoff::between(Duration::from_secs(1), PAUSE_BETWEEN_LISTS_MAX);
        RelistPauses { backoff, began: Instant::now(), has_listed: false, was_of_use: false }
    }
}

impl RelistPauses {
    /// A list begins.
    pub fn begin(&mut self) {
        (self.began, self.has_listed, self.was_of_use) = (Instant::now(), false, false);
    }

    /// The list is complete.
    pub fn has_listed(&mut self) {
        self.has_listed = true;
    }

    /// The watch after it has told something.
    pub fn was_of_use(&mut self) {
        self.was_of_use = true;
    }

    /// How long to wait before the next list, after an error or a gap in the history has ended the watch or the list: at least as long as
    /// the store asks for.
    pub fn before_next(&mut self, ended: &Result<(), StoreError>) -> Duration {
        let is_worth_it = self.was_of_use || self.began.elapsed() >= OF_USE_ANYWAY;
        if self.has_listed && is_worth_it {
            self.backoff.reset();
        }
        match ended {
            Ok(()) if self.has_listed && is_worth_it => Duration::ZERO,
            Ok(()) => self.backoff.pause(),
            Err(error) => {
                let pause = self.backoff.pause();
                let is_out_of_reach = !self.has_listed && error.is_out_of_reach();
                let pause = if is_out_of_reach { pause.min(PAUSE_OUT_OF_REACH_MAX) } else { pause };
                pause.max(error.pause_asked_for().unwrap_or_default())
            }
        }
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

    fn failed() -> Result<(), StoreError> {
        Err(StoreError::Other { operation: "listing".to_owned(), source: "it went wrong".into() })
    }

    const GROWING: [(f64, f64); 6] =
        [(0.5, 1.0), (1.0, 2.0), (2.0, 4.0), (4.0, 8.0), (8.0, 16.0), (15.0, 30.0)];

    #[test]
    fn a_watch_that_is_of_no_use_is_not_opened_all_the_time() {
        let mut pauses = RelistPauses::default();
        let seconds = |pause: Duration| pause.as_secs_f64();
        for (shortest, longest) in GROWING {
            pauses.begin();
            pauses.has_listed();
            let pause = seconds(pauses.before_next(&failed()));
            assert!((shortest..=longest).contains(&pause), "{pause} {longest}");
        }
        assert!(seconds(pauses.before_next(&Ok(()))) >= 15.0, "a history that is gone at once is no better");
        pauses.begin();
        pauses.has_listed();
        pauses.was_of_use();
        assert_eq!(pauses.before_next(&Ok(())), Duration::ZERO);
        assert!(seconds(pauses.before_next(&failed())) <= 1.0);
    }

    #[test]
    fn a_list_that_fails_is_not_asked_for_all_the_time() {
        let mut pauses = RelistPauses::default();
        for (shortest, longest) in GROWING {
            pauses.begin();
            let pause = pauses.before_next(&failed()).as_secs_f64();
            assert!((shortest..=longest).contains(&pause), "{pause} {longest}");
        }
        let unreached = || {
            let source = "nobody is there".into();
            Err(StoreError::Unreachable { address: "here".to_owned(), source })
        };
        pauses.begin();
        assert!(pauses.before_next(&unreached()) <= PAUSE_OUT_OF_REACH_MAX, "nobody is busy with it");
    }
}
