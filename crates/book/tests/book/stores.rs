//! Stores that get in the way: one that holds commits back, one that loses answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use model::{Key, KeyRange};
use store::{
    Capabilities, Change, Committed, ListPage, ListRequest, Lookup, Record, Revision, Store, StoreError,
    Watch,
};
use tokio::sync::Semaphore;

/// Lets commits through one by one, when it is told to.
#[derive(Debug)]
pub(crate) struct Gate {
    inner: Arc<dyn Store>,
    passes: Semaphore,
    waiting: AtomicUsize,
}

impl Gate {
    pub(crate) fn closed(inner: Arc<dyn Store>) -> Arc<Gate> {
        Arc::new(Gate { inner, passes: Semaphore::new(0), waiting: AtomicUsize::new(0) })
    }

    /// Lets so many commits through.
    pub(crate) fn open(&self, commits: usize) {
        self.passes.add_permits(commits);
    }

    /// How many commits have come to the gate so far.
    pub(crate) fn arrived(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Store for Gate {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.inner.list(request).await
    }

    async fn read(&self, lookups: Vec<Lookup>) -> Result<Vec<Vec<Record>>, StoreError> {
        self.inner.read(lookups).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.passes.acquire().await.expect("the gate is there").forget();
        self.inner.commit(changes).await
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        self.inner.watch(range, after).await
    }
}

/// A commit that arrives late: its answer is lost, and it happens only when someone else's next commit has.
#[derive(Debug)]
pub(crate) struct Late {
    inner: Arc<dyn Store>,
    held_back: std::sync::Mutex<Vec<Vec<Change>>>,
    left: AtomicUsize,
}

impl Late {
    /// So many commits are held back, and happen before the next one that is not.
    pub(crate) fn new(inner: Arc<dyn Store>, commits: usize) -> Arc<Late> {
        Arc::new(Late { inner, held_back: Default::default(), left: AtomicUsize::new(commits) })
    }
}

#[async_trait]
impl Store for Late {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.inner.list(request).await
    }

    async fn read(&self, lookups: Vec<Lookup>) -> Result<Vec<Vec<Record>>, StoreError> {
        self.inner.read(lookups).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        let is_late =
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_late {
            self.held_back.lock().unwrap().push(changes);
            return Err(StoreError::Uncertain { source: "it is still on its way".into() });
        }
        let held_back = std::mem::take(&mut *self.held_back.lock().unwrap());
        for late in held_back {
            let _ = self.inner.commit(late).await;
        }
        self.inner.commit(changes).await
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        self.inner.watch(range, after).await
    }
}
