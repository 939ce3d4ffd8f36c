//! A store without transactions, made from any other: what the Kubernetes API can promise, and no more.

use std::sync::Arc;

use async_trait::async_trait;
use model::{Key, KeyRange};

use crate::request::check_commit;
use crate::steps::one_by_one;
use crate::{
    Capabilities, Change, Committed, ListPage, ListRequest, Record, Revision, Store, StoreError, Watch,
};

/// Does the changes of a commit one by one, and stops at the first that fails. Others see what is done so far. Reads
/// of several records are one after the other, too.
#[derive(Debug)]
pub struct StepwiseStore {
    inner: Arc<dyn Store>,
}

impl StepwiseStore {
    pub fn new(inner: Arc<dyn Store>) -> StepwiseStore {
        StepwiseStore { inner }
    }
}

#[async_trait]
impl Store for StepwiseStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic_commits: false, ..self.inner.capabilities() }
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.inner.list(request).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        check_commit(&changes)?;
        let inner = &self.inner;
        let step = |change| async move { Ok(inner.commit(vec![change]).await?.revisions.remove(0)) };
        one_by_one(changes, step).await
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        self.inner.watch(range, after).await
    }
}
