//! Stores that get in the way: one that holds commits back, one that loses answers, one that is silent about a record.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use model::{Key, KeyRange};
use store::{
    Capabilities, Change, Committed, ListPage, ListRequest, Lookup, Record, Revision, Store, StoreError,
    Watch,
};
use tokio::sync::Semaphore;

/// What becomes of a commit.
#[async_trait]
pub(crate) trait Fate: fmt::Debug + Send + Sync {
    async fn commit(&self, store: &dyn Store, changes: Vec<Change>) -> Result<Committed, StoreError>;
}

/// A store whose commits meet their fate. Everything else is as it was.
#[derive(Debug)]
pub(crate) struct Fated<F> {
    store: Arc<dyn Store>,
    fate: F,
}

impl<F> Deref for Fated<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.fate
    }
}

#[async_trait]
impl<F: Fate> Store for Fated<F> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.store.list(request).await
    }

    async fn read(&self, lookups: Vec<Lookup>) -> Result<Vec<Vec<Record>>, StoreError> {
        self.store.read(lookups).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        self.fate.commit(&*self.store, changes).await
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        self.store.watch(range, after).await
    }
}

pub(crate) type Gate = Fated<Gatekeeper>;

/// Lets commits through one by one, when it is told to.
#[derive(Debug)]
pub(crate) struct Gatekeeper {
    passes: Semaphore,
    waiting: AtomicUsize,
}

impl Gate {
    pub(crate) fn closed(store: Arc<dyn Store>) -> Arc<Gate> {
        let fate = Gatekeeper { passes: Semaphore::new(0), waiting: AtomicUsize::new(0) };
        Arc::new(Fated { store, fate })
    }
}

impl Gatekeeper {
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
impl Fate for Gatekeeper {
    async fn commit(&self, store: &dyn Store, changes: Vec<Change>) -> Result<Committed, StoreError> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.passes.acquire().await.expect("the gate is there").forget();
        store.commit(changes).await
    }
}

pub(crate) type Late = Fated<Delay>;

/// A commit that arrives late: its answer is lost, and it happens only when someone else's next commit has.
#[derive(Debug)]
pub(crate) struct Delay {
    held_back: Mutex<Vec<Vec<Change>>>,
    left: AtomicUsize,
}

impl Late {
    /// So many commits are held back, and happen before the next one that is not.
    pub(crate) fn new(store: Arc<dyn Store>, commits: usize) -> Arc<Late> {
        Arc::new(Fated {
            store,
            fate: Delay { held_back: Mutex::default(), left: AtomicUsize::new(commits) },
        })
    }
}

#[async_trait]
impl Fate for Delay {
    async fn commit(&self, store: &dyn Store, changes: Vec<Change>) -> Result<Committed, StoreError> {
        let is_late =
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_late {
            self.held_back.lock().unwrap().push(changes);
            return Err(StoreError::Uncertain { source: "it is still on its way".into() });
        }
        let held_back = std::mem::take(&mut *self.held_back.lock().unwrap());
        for late in held_back {
            let _ = store.commit(late).await;
        }
        store.commit(changes).await
    }
}

pub(crate) type Silent = Fated<Silence>;

/// Changes of one record are not answered until they are let through; the others are.
#[derive(Debug)]
pub(crate) struct Silence {
    key: Key,
    passes: Semaphore,
    asked: AtomicUsize,
}

impl Silent {
    pub(crate) fn about(key: Key, store: Arc<dyn Store>) -> Arc<Silent> {
        let fate = Silence { key, passes: Semaphore::new(0), asked: AtomicUsize::new(0) };
        Arc::new(Fated { store, fate })
    }
}

impl Silence {
    /// Answers everything from now on.
    pub(crate) fn end(&self) {
        self.passes.add_permits(1000);
    }

    /// How often a change of the record was asked for.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Fate for Silence {
    async fn commit(&self, store: &dyn Store, changes: Vec<Change>) -> Result<Committed, StoreError> {
        if changes.iter().any(|change| change.key == self.key) {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.passes.acquire().await.expect("it ends").forget();
        }
        store.commit(changes).await
    }
}
