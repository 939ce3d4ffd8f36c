//! Carrying out steps: in one commit where the store can, else one after the other.

use std::collections::BTreeMap;

use bytes::Bytes;
use ipam::{Ordered, Step, Steps};
use model::Key;
use store::{Change, Precondition, Revision, Store, StoreError, Write};
use tracing::warn;

use crate::additions::{is_as_written, is_gone};

/// What belongs together.
#[derive(Debug, Default)]
pub(crate) struct Commit<'a> {
    /// What is relied on beyond the steps.
    pub(crate) requires: Vec<Change>,
    pub(crate) steps: Option<&'a Steps>,
    /// Changes of the caller's own.
    pub(crate) additions: Vec<Change>,
    /// Once the outcome stands ([`Steps::decided_after`]), what is left may fail: recovery finishes it.
    pub(crate) rest_may_fail: bool,
}

/// A record as it is now: its value, unless it is gone, and the revision of the change.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) key: Key,
    pub(crate) value: Option<Bytes>,
    pub(crate) revision: Revision,
}

/// A commit that did not come to its end.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) error: StoreError,
    /// Something may have been written before: only on a store that writes record by record.
    pub(crate) is_partial: bool,
}

impl From<Stopped> for StoreError {
    fn from(stopped: Stopped) -> StoreError {
        stopped.error
    }
}

impl Commit<'_> {
    pub(crate) async fn carry_out(self, store: &dyn Store) -> Result<Vec<Written>, Stopped> {
        if self.steps.is_none_or(Steps::is_empty) && self.additions.is_empty() {
            return Ok(Vec::new());
        }
        if store.capabilities().atomic_commits {
            self.at_once(store).await
        } else {
            self.in_order(store).await
        }
    }

    async fn at_once(self, store: &dyn Store) -> Result<Vec<Written>, Stopped> {
        let mut changes = self.requires;
        changes.extend(self.steps.into_iter().flat_map(Steps::atomic).map(change));
        changes.extend(self.additions);
        let written: Vec<(Key, Write)> =
            changes.iter().map(|change| (change.key.clone(), change.write.clone())).collect();
        let stopped = |error| Stopped { error, is_partial: false };
        let committed = store.commit(changes).await.map_err(stopped)?;
        let written = written.into_iter().zip(committed.revisions);
        Ok(written.filter_map(|((key, write), revision)| Written::new(key, write, revision)).collect())
    }

    async fn in_order(self, store: &dyn Store) -> Result<Vec<Written>, Stopped> {
        let mut walk = Walk { store, revisions: BTreeMap::new(), written: Vec::new() };
        for required in self.requires {
            walk.go(required).await.map_err(|error| walk.stopped(error))?;
        }
        for (position, ordered) in self.steps.iter().flat_map(|steps| steps.in_order()).enumerate() {
            let change = walk.change(ordered);
            let Err(error) = walk.go(change).await else { continue };
            let is_decided = self.steps.is_some_and(|steps| position >= steps.decided_after());
            if !(is_decided && self.rest_may_fail) {
                return Err(walk.stopped(error));
            }
            warn!("left for recovery: {} ({error})", ordered.key());
            break;
        }
        for addition in self.additions {
            walk.go(addition).await.map_err(|error| walk.stopped(error))?;
        }
        Ok(walk.written)
    }
}

impl Written {
    fn new(key: Key, write: Write, revision: Revision) -> Option<Written> {
        let value = match write {
            Write::Put(value) => Some(value),
            Write::Delete => None,
            Write::Nothing => return None,
        };
        Some(Written { key, value, revision })
    }
}

/// One record after the other.
struct Walk<'a> {
    store: &'a dyn Store,
    /// Where the steps so far have left their records.
    revisions: BTreeMap<Key, Revision>,
    written: Vec<Written>,
}

impl Walk<'_> {
    fn change(&self, ordered: &Ordered) -> Change {
        // A step that speaks of an earlier one which is not there cannot happen; no record is at such a revision.
        let left_at = |key: &Key| self.revisions.get(key).cloned().unwrap_or_else(|| Revision::new(""));
        match ordered {
            Ordered::Step(step) => change(step.clone()),
            Ordered::Touch { key, value, revision } => {
                Change::update(key.clone(), value.clone(), Revision::new(revision.as_str()))
            }
            Ordered::Again { key, value } => Change::update(key.clone(), value.clone(), left_at(key)),
            Ordered::Remove { key } => Change::delete(key.clone(), left_at(key)),
        }
    }

    async fn go(&mut self, change: Change) -> Result<(), StoreError> {
        let revision = match self.store.commit(vec![change.clone()]).await {
            Ok(mut committed) => committed.revisions.remove(0),
            Err(StoreError::Uncertain { source }) => self.settle(&change, source).await?,
            Err(error) => return Err(error),
        };
        self.revisions.insert(change.key.clone(), revision.clone());
        self.written.extend(Written::new(change.key, change.write, revision));
        Ok(())
    }

    /// Whether a change whose answer was lost has happened: the record says so.
    async fn settle(
        &self,
        change: &Change,
        source: Box<dyn std::error::Error + Send + Sync>,
    ) -> Result<Revision, StoreError> {
        let found = self.store.get(&change.key).await?;
        let before = match &change.precondition {
            Precondition::Absent | Precondition::Uid(_) => None,
            Precondition::At(revision) => Some(revision),
        };
        match (&change.write, found) {
            (Write::Put(value), Some(record))
                if is_as_written(value, &record) && Some(&record.revision) != before =>
            {
                Ok(record.revision)
            }
            (Write::Delete, found) if is_gone(found.as_ref()) => Ok(Revision::new("")),
            // Not done, or not yet: whoever starts over meets it at the same revision.
            _ => Err(StoreError::Uncertain { source }),
        }
    }

    fn stopped(&self, error: StoreError) -> Stopped {
        let is_partial = !self.written.is_empty() || matches!(error, StoreError::Uncertain { .. });
        Stopped { error, is_partial }
    }
}

/// The store's words for a step.
pub(crate) fn change(step: Step) -> Change {
    match step {
        Step::Create { key, value } => Change::create(key, value),
        Step::Update { key, value, revision } => Change::update(key, value, Revision::new(revision)),
        Step::Delete { key, revision } => Change::delete(key, Revision::new(revision)),
        Step::Require { key, revision } => Change::require(key, Revision::new(revision)),
        Step::RequireAbsent { key } => Change::require_absent(key),
    }
}
