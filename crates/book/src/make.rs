//! One change on a store that writes record by record, and what became of it.

use std::error::Error;
use std::time::{Duration, Instant};

use store::{Change, Precondition, Record, Revision, Store, StoreError, Write};

use crate::sameness::{is_as_written, is_gone};

/// How long a change whose answer was lost is sent again to a store that does not answer any more.
const SETTLE_FOR: Duration = Duration::from_secs(5);
const SETTLE_DELAY_MIN: Duration = Duration::from_millis(100);
const SETTLE_DELAY_MAX: Duration = Duration::from_secs(1);

/// A change that was not made.
#[derive(Debug)]
pub(crate) struct NotMade {
    /// [`StoreError::Uncertain`] if that could not be found out.
    pub(crate) error: StoreError,
    /// It was sent more than once, and someone has written the record since. The first time it may have been made.
    pub(crate) is_doubtful: bool,
}

impl NotMade {
    pub(crate) fn is_uncertain(&self) -> bool {
        matches!(self.error, StoreError::Uncertain { .. })
    }
}

/// Makes a change. If its answer is lost, the very same change is sent again. Its precondition sees to it that it is made once at
/// most, and that it cannot be made later, once it was refused: either it is found made, or it was not made and never will be.
pub(crate) async fn make(store: &dyn Store, change: &Change) -> Result<Revision, NotMade> {
    let mut lost: Option<(Instant, Box<dyn Error + Send + Sync>)> = None;
    let mut delay = SETTLE_DELAY_MIN;
    loop {
        let error = match store.commit(vec![change.clone()]).await {
            Ok(mut committed) => return Ok(committed.revisions.remove(0)),
            Err(error) => error,
        };
        let Some((since, first)) = lost.take() else {
            match error {
                StoreError::Uncertain { source } => lost = Some((Instant::now(), source)),
                error => return Err(NotMade { error, is_doubtful: false }),
            }
            continue;
        };
        if let Some(revision) = found_made(change, &error) {
            return Ok(revision);
        }
        match error {
            StoreError::Uncertain { .. } | StoreError::Unreachable { .. } if since.elapsed() < SETTLE_FOR => {
                lost = Some((since, first));
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(SETTLE_DELAY_MAX);
            }
            error if error.is_lost_race() => return Err(NotMade { error, is_doubtful: true }),
            _ => return Err(NotMade { error: StoreError::Uncertain { source: first }, is_doubtful: true }),
        }
    }
}

/// Whether the record in the way of a change is the one that the change was to leave.
fn found_made(change: &Change, error: &StoreError) -> Option<Revision> {
    let found: Option<&Record> = match error {
        StoreError::AlreadyExists { existing: found } | StoreError::Conflict { current: found } => {
            Some(found)
        }
        StoreError::NotFound { .. } => None,
        _ => return None,
    };
    let is_as_before = match (&change.precondition, found) {
        (Precondition::At(before), Some(record)) => record.revision == *before,
        _ => false,
    };
    match (&change.write, found) {
        (Write::Put(value), Some(record)) if !is_as_before && is_as_written(value, record) => {
            Some(record.revision.clone())
        }
        (Write::Delete, found) if is_gone(found) => Some(Revision::new("")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::Key;
    use store::MemoryStore;
    use store::wrap::{FailingStore, Failure};

    use super::*;

    fn key() -> Key {
        Key::Handle("h".into())
    }

    async fn losing_the_first_answer(store: &Arc<dyn Store>) -> FailingStore {
        FailingStore::new(store.clone(), Failure::AnswerLost, 0)
    }

    #[tokio::test]
    async fn a_lost_answer_is_found_out_by_sending_again() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let created = Change::create(key(), "{}");
        let revision = make(&losing_the_first_answer(&store).await, &created).await.unwrap();
        assert_eq!(store.get(&key()).await.unwrap().unwrap().revision, revision);
        let updated = Change::update(key(), r#"{"deleted":true}"#, revision);
        let revision = make(&losing_the_first_answer(&store).await, &updated).await.unwrap();
        assert_eq!(store.get(&key()).await.unwrap().unwrap().revision, revision);
        make(&losing_the_first_answer(&store).await, &Change::delete(key(), revision)).await.unwrap();
        assert_eq!(store.get(&key()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn another_ones_record_is_a_lost_race() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        (*store).create(key(), b"{}".to_vec()).await.unwrap();
        let other = Change::create(key(), r#"{"deleted":true}"#);
        let not_made = make(&*store, &other).await.unwrap_err();
        assert!(not_made.error.is_lost_race() && !not_made.is_doubtful);
        // Even one that says the same, unless an answer was lost.
        assert!(make(&*store, &Change::create(key(), "{}")).await.is_err());
    }
}
