//! A store whose values pass through two functions, for tests that write values of their own to a store that takes only some.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use model::{Key, KeyRange};

use crate::watch::{Batch, EventSource};
use crate::{
    Capabilities, Change, Committed, Event, ListPage, ListRequest, Record, Revision, Store, StoreError,
    Watch, Write,
};

/// What becomes of a value.
pub type Translation = fn(&Key, &Bytes) -> Bytes;

/// `outward` makes the stored value of a given one, `inward` the other way round.
#[derive(Clone, Debug)]
pub struct TranslatingStore {
    inner: Arc<dyn Store>,
    outward: Translation,
    inward: Translation,
}

impl TranslatingStore {
    pub fn new(inner: Arc<dyn Store>, outward: Translation, inward: Translation) -> TranslatingStore {
        TranslatingStore { inner, outward, inward }
    }

    fn record(&self, record: Record) -> Record {
        let value = (self.inward)(&record.key, &record.value);
        Record { value, ..record }
    }

    fn error(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::AlreadyExists { existing } => {
                StoreError::AlreadyExists { existing: Box::new(self.record(*existing)) }
            }
            StoreError::Conflict { current } => {
                StoreError::Conflict { current: Box::new(self.record(*current)) }
            }
            StoreError::Stopped { done, source } => {
                StoreError::Stopped { done, source: Box::new(self.error(*source)) }
            }
            other => other,
        }
    }

    fn change(&self, change: Change) -> Change {
        let write = match change.write {
            Write::Put(value) => Write::Put((self.outward)(&change.key, &value)),
            other => other,
        };
        Change { write, ..change }
    }
}

#[async_trait]
impl Store for TranslatingStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.inner.get(key).await?.map(|record| self.record(record)))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        let page = self.inner.list(request).await?;
        let records = page.records.into_iter().map(|record| self.record(record)).collect();
        Ok(ListPage { records, ..page })
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        let changes = changes.into_iter().map(|change| self.change(change)).collect();
        self.inner.commit(changes).await.map_err(|error| self.error(error))
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        let inner = self.inner.watch(range, after.clone()).await?;
        Ok(Watch::pulling(after, Translated { inner, store: self.clone() }))
    }
}

#[derive(Debug)]
struct Translated {
    inner: Watch,
    store: TranslatingStore,
}

#[async_trait]
impl EventSource for Translated {
    async fn next(&mut self) -> Result<Batch, StoreError> {
        let event = match self.inner.next().await {
            Some(Ok(Event::Put(record))) => Event::Put(self.store.record(record)),
            Some(Ok(event)) => event,
            Some(Err(error)) => return Err(error),
            None => {
                return Err(StoreError::Other {
                    operation: "watching".to_owned(),
                    source: "the watch inside has ended".into(),
                });
            }
        };
        Ok(Batch { events: vec![event], upto: self.inner.position().clone() })
    }
}
