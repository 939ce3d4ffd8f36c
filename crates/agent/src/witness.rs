//! When something has no owner any more: two witnesses report that it is gone and none that it lives, in two observations some time apart. A
//! witness that does not answer reports nothing.

use std::time::{Duration, Instant};

use doctor::{Certainty, Examination, Rule};
pub(crate) use plan::witness::{Word, say_gone};

/// What was reported gone at the last observation, and since when.
#[derive(Debug)]
pub(crate) struct Suspects<T> {
    start: Instant,
    examination: Examination<T>,
}

impl<T: Ord + Clone> Suspects<T> {
    pub(crate) fn new(grace: Duration) -> Suspects<T> {
        Suspects { start: Instant::now(), examination: Examination::new(Rule::rolling(grace)) }
    }

    /// Takes everything that an observation reports as gone. Returns what was gone for the whole grace.
    ///
    /// What was alive in between, or could not be judged, starts again.
    pub(crate) fn observe(&mut self, gone: impl IntoIterator<Item = T>) -> Vec<T> {
        let gone = gone.into_iter().map(|suspect| (suspect, Certainty::MayBeChurn));
        self.examination.observe(self.start.elapsed(), gone);
        self.examination.confirmed().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.examination.found().count()
    }
}
