//! Bounded patience with lost races. Those who lose wait for different times, so that they do not meet again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use store::StoreError;

use crate::error::{BookError, subject};

const DELAY_MS_MIN: u64 = 2;
const DELAY_MS_MAX: u64 = 100;
/// A store that did not answer is asked less and less often.
const UNANSWERED_MS_MIN: u64 = 20;
const UNANSWERED_MS_MAX: u64 = 4000;
/// So many lost races in a row are no coincidence.
const OFTEN: u32 = 2;

/// How long to go on when others keep winning, and how long to wait each time.
#[derive(Clone, Debug)]
pub struct Patience {
    started: Instant,
    limit: Duration,
    losses: u32,
    /// Answers in a row that did not come.
    unanswered: u32,
}

impl Patience {
    pub fn new(limit: Duration) -> Patience {
        Patience { started: Instant::now(), limit, losses: 0, unanswered: 0 }
    }

    /// Waits a little after a lost race or an answer that got lost: look again then. Any other error, or one too many,
    /// is final.
    pub async fn after(&mut self, error: StoreError) -> Result<(), BookError> {
        self.check(error)?;
        tokio::time::sleep(self.delay()).await;
        Ok(())
    }

    /// Whether to try again after this error.
    pub(crate) fn check(&mut self, error: StoreError) -> Result<(), BookError> {
        self.check_shared(&Arc::new(error))
    }

    pub(crate) fn check_shared(&mut self, error: &Arc<StoreError>) -> Result<(), BookError> {
        let is_race = error.is_lost_race() || matches!(**error, StoreError::HistoryGone { .. });
        let is_uncertain = matches!(**error, StoreError::Uncertain { .. });
        if !is_race && !is_uncertain {
            return Err(BookError::Store(Arc::clone(error)));
        }
        let waited = self.started.elapsed();
        self.unanswered = if is_uncertain { self.unanswered + 1 } else { 0 };
        if waited < self.limit {
            self.losses += 1;
            return Ok(());
        }
        let source = Arc::clone(error);
        if is_uncertain {
            return Err(BookError::Store(source));
        }
        let subject = subject(error).map_or_else(|| "the same records".to_owned(), ToString::to_string);
        Err(BookError::Contended { subject, waited, source })
    }

    /// Counts an answer that did not come, unless there were enough.
    pub(crate) fn lose(&mut self) -> bool {
        self.losses += 1;
        self.unanswered += 1;
        !self.is_exhausted()
    }

    /// How long to wait now.
    pub(crate) fn delay(&self) -> Duration {
        if let Some(times) = self.unanswered.checked_sub(1) {
            let least = (UNANSWERED_MS_MIN << times.min(16)).min(UNANSWERED_MS_MAX) / 2;
            return Duration::from_millis(least + random() % (least + 1));
        }
        let ceiling = (DELAY_MS_MIN << self.losses.min(8)).min(DELAY_MS_MAX);
        Duration::from_millis(DELAY_MS_MIN + random() % ceiling)
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.started.elapsed() >= self.limit
    }

    /// What is remembered is not to be trusted any more.
    pub(crate) fn has_lost_often(&self) -> bool {
        self.losses >= OFTEN
    }

    #[cfg(test)]
    pub(crate) fn losses(&self) -> u32 {
        self.losses
    }
}

fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use model::Key;

    use super::*;

    fn lost() -> StoreError {
        StoreError::NotFound { key: Key::Handle("h".into()) }
    }

    #[tokio::test]
    async fn patience_ends_and_says_what_was_fought_over() {
        let mut patience = Patience::new(Duration::ZERO);
        let error = patience.after(lost()).await.unwrap_err();
        assert_eq!(error.to_string(), "others kept changing IPAMHandle(h) for 0.0 s");
    }

    #[tokio::test]
    async fn waiting_grows_up_to_a_bound() {
        let mut patience = Patience::new(Duration::from_secs(3600));
        for _ in 0..50 {
            patience.check(lost()).unwrap();
            assert!(patience.delay() <= Duration::from_millis(DELAY_MS_MIN + DELAY_MS_MAX));
        }
        assert_eq!(patience.losses(), 50);
    }

    #[tokio::test]
    async fn a_store_that_does_not_answer_is_asked_less_and_less_often() {
        let mut patience = Patience::new(Duration::from_secs(3600));
        let mut least = Vec::new();
        for _ in 0..12 {
            patience.check(StoreError::Uncertain { source: "lost".into() }).unwrap();
            let delay = patience.delay();
            assert!(delay <= Duration::from_millis(UNANSWERED_MS_MAX), "{delay:?}");
            least.push(delay);
        }
        assert!(least[0] <= Duration::from_millis(UNANSWERED_MS_MIN), "{least:?}");
        assert!(least[11] >= Duration::from_millis(UNANSWERED_MS_MAX / 2), "{least:?}");
        patience.check(lost()).unwrap();
        assert!(patience.delay() <= Duration::from_millis(DELAY_MS_MIN + DELAY_MS_MAX), "it answers again");
    }

    #[tokio::test]
    async fn what_is_no_race_is_final() {
        let mut patience = Patience::new(Duration::from_secs(3600));
        let error = StoreError::Invalid { problem: "x".to_owned() };
        assert!(matches!(patience.after(error).await, Err(BookError::Store(_))));
    }
}
