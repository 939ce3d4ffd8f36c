//! Growing pauses between tries, shaken so that many clients do not come back all at once.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { next: PAUSE_MIN }
    }

    /// Something went well: start over with short pauses.
    pub(crate) fn reset(&mut self) {
        self.next = PAUSE_MIN;
    }

    /// Between half of the current step and all of it; the next step is twice as long.
    pub(crate) fn pause(&mut self) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(PAUSE_MAX);
        step.mul_f64(0.5 + 0.5 * random_fraction())
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
}
