//! Counts what is asked of a store.

use std::ops::Sub;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use model::{Key, KeyRange};

use crate::{
    Capabilities, Change, Committed, ListPage, ListRequest, Lookup, MAX_CHANGES, Record, Revision, Store,
    StoreError, Watch, Write,
};

/// Passes everything on and counts it.
#[derive(Debug)]
pub struct CountingStore {
    inner: Arc<dyn Store>,
    counts: Mutex<Counts>,
}

/// How often a store was asked, from when it was wrapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub gets: u64,
    /// Pages of lists.
    pub pages: u64,
    /// Reads of several things at once; one for every [`MAX_CHANGES`] lookups.
    pub reads: u64,
    /// Commits, also those that were refused.
    pub commits: u64,
    /// Records that were put or deleted by commits which succeeded.
    pub writes: u64,
    pub watches: u64,
}

impl Counts {
    /// How often an answer had to be waited for. Watches are not in it: they are started once and stay.
    pub fn round_trips(&self) -> u64 {
        self.gets + self.pages + self.reads + self.commits
    }
}

/// What came after an earlier count.
impl Sub for Counts {
    type Output = Counts;

    fn sub(self, earlier: Counts) -> Counts {
        Counts {
            gets: self.gets - earlier.gets,
            pages: self.pages - earlier.pages,
            reads: self.reads - earlier.reads,
            commits: self.commits - earlier.commits,
            writes: self.writes - earlier.writes,
            watches: self.watches - earlier.watches,
        }
    }
}

impl CountingStore {
    pub fn new(inner: Arc<dyn Store>) -> CountingStore {
        CountingStore { inner, counts: Mutex::default() }
    }

    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[async_trait]
impl Store for CountingStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.count(|counts| counts.gets += 1);
        self.inner.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.count(|counts| counts.pages += 1);
        self.inner.list(request).await
    }

    async fn read(&self, lookups: Vec<Lookup>) -> Result<Vec<Vec<Record>>, StoreError> {
        self.count(|counts| counts.reads += lookups.len().div_ceil(MAX_CHANGES) as u64);
        self.inner.read(lookups).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        self.count(|counts| counts.commits += 1);
        let is_write: Vec<bool> = changes.iter().map(|change| change.write != Write::Nothing).collect();
        let outcome = self.inner.commit(changes).await;
        let done = match &outcome {
            Ok(committed) => committed.revisions.len(),
            Err(StoreError::Stopped { done, .. }) => done.revisions.len(),
            Err(_) => 0,
        };
        let writes = is_write.iter().take(done).filter(|is_write| **is_write).count();
        self.count(|counts| counts.writes += writes as u64);
        outcome
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        self.count(|counts| counts.watches += 1);
        self.inner.watch(range, after).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use crate::wrap::StepwiseStore;

    fn key(name: &str) -> Key {
        Key::Handle(name.into())
    }

    #[tokio::test]
    async fn every_question_is_counted_once() {
        let counting = Arc::new(CountingStore::new(Arc::new(MemoryStore::new())));
        let store: &dyn Store = &*counting;
        let revision = store.create(key("a"), b"1".to_vec()).await.unwrap();
        store.create(key("a"), b"2".to_vec()).await.unwrap_err();
        let before = counting.counts();
        assert_eq!(before, Counts { commits: 2, writes: 1, ..Counts::default() });

        store.get(&key("a")).await.unwrap();
        store.list_all(KeyRange::Handles).await.unwrap();
        store.read(vec![Lookup::Record(key("a")), Lookup::Range(KeyRange::Handles)]).await.unwrap();
        store.read(vec![Lookup::Record(key("a")); MAX_CHANGES + 1]).await.unwrap();
        store.read(Vec::new()).await.unwrap();
        let changes = vec![Change::require(key("a"), revision.clone()), Change::create(key("b"), "1")];
        store.commit(changes).await.unwrap();
        store.watch(KeyRange::Handles, revision).await.unwrap();
        let counts = counting.counts() - before;
        assert_eq!(counts, Counts { gets: 1, pages: 1, reads: 3, commits: 1, writes: 1, watches: 1 });
        assert_eq!(counts.round_trips(), 6);
    }

    #[tokio::test]
    async fn steps_are_counted_inside_and_commits_outside() {
        let inside = Arc::new(CountingStore::new(Arc::new(MemoryStore::new())));
        let outside = CountingStore::new(Arc::new(StepwiseStore::new(inside.clone())));
        let changes = ["a", "b", "c"].map(|name| Change::create(key(name), "1"));
        inside.commit(vec![changes[2].clone()]).await.unwrap();
        let before = inside.counts();
        assert!(matches!(outside.commit(changes.into()).await, Err(StoreError::Stopped { .. })));
        assert_eq!(outside.counts(), Counts { commits: 1, writes: 2, ..Counts::default() });
        assert_eq!(inside.counts() - before, Counts { commits: 3, writes: 2, ..Counts::default() });
    }
}
