//! Fails at a write that was chosen beforehand: the crash points of whoever writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use model::{Key, KeyRange};

use crate::{
    Capabilities, Change, Committed, ListPage, ListRequest, Lookup, Record, Revision, Store, StoreError,
    Watch, Write,
};

/// How the chosen write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It is not done, and neither is anything asked for after it: the end of the asking process, as the
    /// store sees it.
    End,
    /// It is not done. What comes after it is.
    NotDone,
    /// It is done, but the answer is lost. What comes after it is done and answered.
    AnswerLost,
}

/// Passes everything on, except for one commit that writes.
///
/// To go through all crash points of an operation, run it with the first write failing, with the second, and so on
/// until [`FailingStore::has_failed`] says that there was no such write. Around a [`super::StepwiseStore`] whole commits
/// fail, inside it single changes.
#[derive(Debug)]
pub struct FailingStore {
    inner: Arc<dyn Store>,
    failure: Failure,
    /// Counts from zero.
    at_write: u64,
    /// How many writes were asked for so far.
    writes: AtomicU64,
}

impl FailingStore {
    /// The first write is number 0.
    pub fn new(inner: Arc<dyn Store>, failure: Failure, at_write: u64) -> FailingStore {
        FailingStore { inner, failure, at_write, writes: AtomicU64::new(0) }
    }

    /// Whether the chosen write was asked for.
    pub fn has_failed(&self) -> bool {
        self.writes.load(Ordering::SeqCst) > self.at_write
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.failure == Failure::End && self.has_failed() { Err(not_done()) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for FailingStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.alive()?;
        self.inner.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.alive()?;
        self.inner.list(request).await
    }

    async fn read(&self, lookups: Vec<Lookup>) -> Result<Vec<Vec<Record>>, StoreError> {
        self.alive()?;
        self.inner.read(lookups).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        self.alive()?;
        let is_write = changes.iter().any(|change| change.write != Write::Nothing);
        if !is_write || self.writes.fetch_add(1, Ordering::SeqCst) != self.at_write {
            return self.inner.commit(changes).await;
        }
        if self.failure == Failure::AnswerLost {
            self.inner.commit(changes).await?;
            return Err(StoreError::Uncertain { source: "the answer was lost on purpose".into() });
        }
        Err(not_done())
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        self.alive()?;
        self.inner.watch(range, after).await
    }
}

fn not_done() -> StoreError {
    StoreError::Unreachable { address: "the store".to_owned(), source: "it fails on purpose".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use crate::wrap::StepwiseStore;

    fn key(name: &str) -> Key {
        Key::Handle(name.into())
    }

    /// Creates a, b and c, one after the other, with the write of b failing; says which succeeded and which exist.
    async fn three_writes(failure: Failure) -> (Vec<bool>, Vec<bool>) {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let failing = FailingStore::new(memory.clone(), failure, 1);
        let store: &dyn Store = &failing;
        let (mut succeeded, mut exist) = (Vec::new(), Vec::new());
        assert!(!failing.has_failed());
        for name in ["a", "b", "c"] {
            // Reads and requirements are no writes.
            let _ = store.commit(vec![Change::require_absent(key("nobody"))]).await;
            succeeded.push(store.create(key(name), b"1".to_vec()).await.is_ok());
        }
        assert!(failing.has_failed());
        for name in ["a", "b", "c"] {
            exist.push(memory.get(&key(name)).await.unwrap().is_some());
        }
        (succeeded, exist)
    }

    #[tokio::test]
    async fn each_failure_leaves_what_it_says() {
        let end = (vec![true, false, false], vec![true, false, false]);
        assert_eq!(three_writes(Failure::End).await, end);
        let not_done = (vec![true, false, true], vec![true, false, true]);
        assert_eq!(three_writes(Failure::NotDone).await, not_done);
        let answer_lost = (vec![true, false, true], vec![true, true, true]);
        assert_eq!(three_writes(Failure::AnswerLost).await, answer_lost);
    }

    #[tokio::test]
    async fn after_the_end_nothing_is_answered() {
        let failing = FailingStore::new(Arc::new(MemoryStore::new()), Failure::End, 0);
        let store: &dyn Store = &failing;
        let revision = store.list_all(KeyRange::Handles).await.unwrap().1;
        store.create(key("a"), b"1".to_vec()).await.unwrap_err();
        assert!(store.get(&key("a")).await.is_err());
        assert!(store.list_all(KeyRange::Handles).await.is_err());
        assert!(store.read(vec![]).await.is_err());
        assert!(store.commit(vec![]).await.is_err());
        assert!(store.watch(KeyRange::Handles, revision).await.is_err());
    }

    #[tokio::test]
    async fn a_single_change_of_a_stepwise_commit_can_fail() {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let failing = Arc::new(FailingStore::new(memory.clone(), Failure::NotDone, 1));
        let stepwise = StepwiseStore::new(failing);
        let changes = ["a", "b", "c"].map(|name| Change::create(key(name), "1"));
        match stepwise.commit(changes.into()).await {
            Err(StoreError::Stopped { done, source }) => {
                assert_eq!(done.revisions.len(), 1);
                assert!(matches!(*source, StoreError::Unreachable { .. }));
            }
            other => panic!("{other:?}"),
        }
        assert!(memory.get(&key("a")).await.unwrap().is_some());
        assert!(memory.get(&key("c")).await.unwrap().is_none());
    }
}
