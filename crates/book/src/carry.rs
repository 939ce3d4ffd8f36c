//! Carrying out steps: in one commit where the store can, else one by one, and handles beside each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ipam::{Ordered, Step, Steps};
use model::Key;
use store::{Change, Revision, Store, StoreError, Write};
use tracing::warn;

use crate::beside::beside;
use crate::make::{NotMade, make};

/// What belongs together.
#[derive(Debug, Default)]
pub(crate) struct Commit<'a> {
    /// What is relied on beyond the steps. Only in a transaction: see [`Ordered::is_courtesy`].
    pub(crate) requires: Vec<Change>,
    pub(crate) steps: Option<&'a Steps>,
    /// Changes of the caller's own.
    pub(crate) additions: Vec<Change>,
    pub(crate) order: Order,
}

/// What comes first where records are written one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// The caller's changes: whatever goes with an address goes before it is free.
    #[default]
    AdditionsFirst,
    /// The steps. Once the outcome stands, what is left of them may fail: recovery finishes it.
    StepsFirst,
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
    pub(crate) async fn carry_out(self, store: &Arc<dyn Store>) -> Result<Vec<Written>, Stopped> {
        if self.steps.is_none_or(Steps::is_empty) && self.additions.is_empty() {
            return Ok(Vec::new());
        }
        if store.capabilities().atomic_commits {
            return self.at_once(&**store).await;
        }
        let mut walk = Walk::new(store);
        match self.in_order(&mut walk).await {
            Ok(()) => Ok(walk.written),
            Err(not_made) => {
                let is_partial = !walk.written.is_empty() || not_made.is_doubtful || not_made.is_uncertain();
                Err(Stopped { error: not_made.error, is_partial })
            }
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

    async fn in_order(self, walk: &mut Walk) -> Result<(), NotMade> {
        if self.order == Order::AdditionsFirst {
            walk.changes(&self.additions).await?;
        }
        let parts = self.steps.map(Steps::parts).unwrap_or_default();
        walk.steps(&parts.before).await?;
        walk.beside(&parts.handles).await.into_iter().collect::<Result<(), NotMade>>()?;
        walk.steps(&parts.blocks).await?;
        match self.order {
            Order::AdditionsFirst => walk.steps(&parts.rest).await,
            Order::StepsFirst => {
                walk.housekeeping(&parts.rest).await;
                walk.changes(&self.additions).await
            }
        }
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

/// The steps of one list on a store that writes record by record.
#[derive(Debug)]
pub(crate) struct Walk {
    store: Arc<dyn Store>,
    /// Where the steps so far have left their records.
    revisions: BTreeMap<Key, Revision>,
    pub(crate) written: Vec<Written>,
}

impl Walk {
    pub(crate) fn new(store: &Arc<dyn Store>) -> Walk {
        Walk { store: Arc::clone(store), revisions: BTreeMap::new(), written: Vec::new() }
    }

    /// One after the other, up to the first that fails.
    pub(crate) async fn steps(&mut self, steps: &[Ordered]) -> Result<(), NotMade> {
        for ordered in steps {
            self.step(ordered).await?;
        }
        Ok(())
    }

    pub(crate) async fn step(&mut self, ordered: &Ordered) -> Result<(), NotMade> {
        let change = self.change(ordered);
        let revision = make(&*self.store, &change).await?;
        self.note(change, revision);
        Ok(())
    }

    /// Steps that do not depend on each other. Each has its own outcome.
    pub(crate) async fn beside(&mut self, steps: &[Ordered]) -> Vec<Result<(), NotMade>> {
        let changes: Vec<Change> = steps.iter().map(|ordered| self.change(ordered)).collect();
        let outcomes = make_beside(&self.store, changes.iter().cloned()).await;
        let noted = changes.into_iter().zip(outcomes);
        noted.map(|(change, outcome)| outcome.map(|revision| self.note(change, revision))).collect()
    }

    /// What recovery would finish as well.
    pub(crate) async fn housekeeping(&mut self, steps: &[Ordered]) {
        for ordered in steps {
            if let Err(not_made) = self.step(ordered).await {
                return warn!("left for recovery: {} ({})", ordered.key(), not_made.error);
            }
        }
    }

    async fn changes(&mut self, changes: &[Change]) -> Result<(), NotMade> {
        for change in changes {
            let revision = make(&*self.store, change).await?;
            self.note(change.clone(), revision);
        }
        Ok(())
    }

    /// Where a step has left its record.
    pub(crate) fn revision(&self, key: &Key) -> Option<&Revision> {
        self.revisions.get(key)
    }

    fn note(&mut self, change: Change, revision: Revision) {
        self.revisions.insert(change.key.clone(), revision.clone());
        self.written.extend(Written::new(change.key, change.write, revision));
    }

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
}

/// Changes that do not depend on each other. Each has its own outcome.
pub(crate) async fn make_beside(
    store: &Arc<dyn Store>,
    changes: impl IntoIterator<Item = Change>,
) -> Vec<Result<Revision, NotMade>> {
    let work = changes.into_iter().map(|change| {
        let store = Arc::clone(store);
        async move { make(&*store, &change).await }
    });
    beside(work).await
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
