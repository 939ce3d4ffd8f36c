//! Writing to the destination: each change is a compare-and-swap, and each relies on the destination's lock being ours.

use std::sync::Arc;

use bytes::Bytes;
use indicatif::ProgressBar;
use model::transfer::{Destination, Likeness, Plan, information, is_pod_of};
use model::{Key, Kind};
use store::{Change, MAX_CHANGES, Precondition, Record, Revision, Store, StoreError, Write};
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::write::Tries;

/// How many bytes of values go into one commit. etcd accepts 1.5 MiB.
const BATCH_BYTES: usize = 512 * 1024;
/// How many changes are under way at once in a store that makes them one by one.
const LANES: usize = 16;

const RESUME: &str =
    "the destination stays locked until a copy is finished; run the same command again to continue";

/// What writes records of a plan.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    pub(super) to: Arc<Destination>,
    pub(super) plan: Arc<Plan<Bytes>>,
    /// The revision of the destination's own record while it says that a copy is under way.
    pub(super) lock: Revision,
    pub(super) bar: ProgressBar,
}

/// How a change ended that the store did not refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Done {
    Written,
    /// It was so already.
    AlreadyThere,
    /// What it was to be written onto is gone, and so is the need for it.
    Gone,
    /// The store does not take this record.
    Refused(String),
}

/// What is known after a change was refused.
enum Look {
    Done(Done),
    Absent,
    Found(Record),
}

/// What became of changes.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) written: Vec<Key>,
    pub(super) already_there: Vec<Key>,
    pub(super) gone: Vec<Key>,
    pub(super) refused: Vec<(Key, String)>,
}

impl Outcome {
    fn add(&mut self, key: Key, done: Done) {
        match done {
            Done::Written => self.written.push(key),
            Done::AlreadyThere => self.already_there.push(key),
            Done::Gone => self.gone.push(key),
            Done::Refused(reason) => self.refused.push((key, reason)),
        }
    }
}

impl Writer {
    /// Makes changes of which none needs another one.
    pub(super) async fn make(&self, changes: Vec<Change>, outcome: &mut Outcome) -> Result<(), Failure> {
        let is_atomic = self.store.capabilities().atomic_commits;
        for batch in batches(changes) {
            match is_atomic {
                true => self.commit(batch, outcome).await?,
                false => self.side_by_side(batch, outcome).await?,
            }
        }
        Ok(())
    }

    /// All at once. If that does not go, one by one, to find out which of them does not.
    async fn commit(&self, batch: Vec<Change>, outcome: &mut Outcome) -> Result<(), Failure> {
        let changes = std::iter::once(self.guard()).chain(batch.iter().cloned()).collect();
        let is_uncertain = match self.store.commit(changes).await {
            Ok(_) => {
                self.bar.inc(batch.len() as u64);
                outcome.written.extend(batch.into_iter().map(|change| change.key));
                return Ok(());
            }
            Err(error) => matches!(error, StoreError::Uncertain { .. }),
        };
        for change in batch {
            let key = change.key.clone();
            outcome.add(key, self.settle(change, is_uncertain).await?);
            self.bar.inc(1);
        }
        Ok(())
    }

    async fn side_by_side(&self, batch: Vec<Change>, outcome: &mut Outcome) -> Result<(), Failure> {
        self.store.commit(vec![self.guard()]).await.map_err(|error| self.explain(None, error))?;
        let mut under_way: JoinSet<Result<(Key, Done), Failure>> = JoinSet::new();
        let mut waiting = batch.into_iter();
        loop {
            while under_way.len() < LANES {
                let Some(change) = waiting.next() else { break };
                let writer = self.clone();
                under_way.spawn(async move {
                    let key = change.key.clone();
                    Ok((key, writer.settle(change, false).await?))
                });
            }
            let Some(joined) = under_way.join_next().await else { return Ok(()) };
            let ended = joined.map_err(|error| Failure::new("a write ended unexpectedly").caused_by(&error));
            match ended.and_then(|ended| ended) {
                Ok((key, done)) => outcome.add(key, done),
                Err(failure) => {
                    // Those under way are waited for: what a store is asked for, it may do at any later time.
                    while let Some(joined) = under_way.join_next().await {
                        if let Ok(Ok((key, done))) = joined {
                            outcome.add(key, done);
                        }
                    }
                    return Err(failure);
                }
            }
            self.bar.inc(1);
        }
    }

    /// Makes one change, however often it takes to know what became of it. `may_be_ours`: what is found may be the result of an
    /// earlier try, or half of it.
    async fn settle(&self, mut change: Change, mut may_be_ours: bool) -> Result<Done, Failure> {
        let mut tries = Tries::default();
        loop {
            let error = match self.attempt(&change).await {
                Ok(()) => return Ok(Done::Written),
                Err(StoreError::Stopped { source, .. }) => *source,
                Err(error) => error,
            };
            may_be_ours |= matches!(error, StoreError::Uncertain { .. });
            let found = match self.look(&change, error, &mut tries).await? {
                Look::Done(done) => return Ok(done),
                Look::Absent => continue,
                Look::Found(found) => found,
            };
            if change.write != Write::Delete && self.is_planned(&found) {
                return Ok(if may_be_ours { Done::Written } else { Done::AlreadyThere });
            }
            if self.is_other_pod(&change, &found) {
                return Ok(Done::Gone);
            }
            let is_unchanged = change.precondition == Precondition::At(found.revision.clone());
            let may_change = is_unchanged || may_be_ours || self.is_view(&found.key);
            if !may_change || !tries.again().await {
                return Err(overtaken(&found.key));
            }
            change = self.again(change, found);
        }
    }

    /// What stands where a change was refused.
    async fn look(&self, change: &Change, error: StoreError, tries: &mut Tries) -> Result<Look, Failure> {
        let is_removal = change.write == Write::Delete;
        let found = match error {
            StoreError::Invalid { problem } => return Ok(Look::Done(Done::Refused(problem))),
            StoreError::Unsupported { operation } => {
                return Ok(Look::Done(Done::Refused(format!("the store cannot {operation}"))));
            }
            StoreError::NotFound { .. } if is_removal => None,
            StoreError::NotFound { key } if key == change.key && self.is_view(&key) => {
                return Ok(Look::Done(Done::Gone));
            }
            StoreError::AlreadyExists { existing: found } | StoreError::Conflict { current: found }
                if found.key == change.key =>
            {
                Some(*found)
            }
            StoreError::Uncertain { .. } | StoreError::Unreachable { .. } if tries.again().await => {
                match self.store.get(&change.key).await {
                    Ok(found) => found,
                    // The next try tells.
                    Err(_) => return Ok(Look::Absent),
                }
            }
            error => return Err(self.explain(Some(&change.key), error)),
        };
        Ok(match found {
            Some(found) => Look::Found(found),
            None if is_removal => Look::Done(Done::AlreadyThere),
            None => Look::Absent,
        })
    }

    async fn attempt(&self, change: &Change) -> Result<(), StoreError> {
        let mut changes = vec![change.clone()];
        if self.store.capabilities().atomic_commits {
            changes.insert(0, self.guard());
        }
        self.store.commit(changes).await.map(drop)
    }

    /// The same change to a record as it is now.
    fn again(&self, change: Change, found: Record) -> Change {
        let value = match &change.write {
            Write::Put(_) if !self.is_view(&found.key) => {
                self.plan.replacement(&self.to, &found.key, &found.value).map(Bytes::from)
            }
            _ => None,
        };
        let write = value.map_or(change.write, Write::Put);
        Change { key: change.key, precondition: Precondition::At(found.revision), write }
    }

    fn is_planned(&self, found: &Record) -> bool {
        self.plan.compare(&self.to, &found.key, &found.value) == Some(Likeness::Same)
    }

    /// Kubernetes changes its own objects all the time.
    fn is_view(&self, key: &Key) -> bool {
        matches!(*self.to, Destination::Kubernetes(_))
            && matches!(key.kind(), Kind::Node | Kind::WorkloadEndpoint)
    }

    /// Whether a Pod is no longer the one that an endpoint was to be put onto.
    fn is_other_pod(&self, change: &Change, found: &Record) -> bool {
        let is_pod = self.is_view(&found.key) && found.key.kind() == Kind::WorkloadEndpoint;
        match &change.write {
            Write::Put(value) => is_pod && !is_pod_of(&found.key, value, &found.value),
            Write::Delete | Write::Nothing => false,
        }
    }

    fn guard(&self) -> Change {
        Change::require(information::key(), self.lock.clone())
    }

    fn explain(&self, key: Option<&Key>, error: StoreError) -> Failure {
        match &error {
            StoreError::Conflict { current: found } | StoreError::AlreadyExists { existing: found } => {
                overtaken(&found.key)
            }
            StoreError::NotFound { key } => overtaken(key),
            _ => {
                let failure = Failure::from(error);
                match key {
                    Some(key) => failure.within(format!("cannot write {key} to the destination")),
                    None => failure,
                }
                .hint(RESUME)
            }
        }
    }
}

fn overtaken(key: &Key) -> Failure {
    Failure::new(format!("another program changed {key} in the destination during the copy"))
        .hint("stop what uses the destination, then run the same command again")
}

fn batches(changes: Vec<Change>) -> Vec<Vec<Change>> {
    let mut batches: Vec<Vec<Change>> = Vec::new();
    let mut room = 0;
    for change in changes {
        let size = match &change.write {
            Write::Put(value) => value.len(),
            Write::Delete | Write::Nothing => 0,
        };
        match batches.last_mut() {
            // One place is the guard's.
            Some(batch) if size <= room && batch.len() < MAX_CHANGES - 1 => {
                room -= size;
                batch.push(change);
            }
            _ => {
                room = BATCH_BYTES.saturating_sub(size);
                batches.push(vec![change]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_fit_into_a_commit() {
        let change = |name: String, size: usize| Change::create(Key::Handle(name.into()), vec![b'x'; size]);
        let mut changes: Vec<Change> = (0..300).map(|n| change(format!("s{n}"), 10)).collect();
        changes.extend((0..5).map(|n| change(format!("l{n}"), 300 * 1024)));
        changes.push(change("huge".to_owned(), 2 * BATCH_BYTES));
        let batches = batches(changes.clone());
        assert_eq!(batches.concat(), changes);
        for batch in &batches {
            let bytes: usize = batch
                .iter()
                .map(|change| match &change.write {
                    Write::Put(value) => value.len(),
                    _ => 0,
                })
                .sum();
            assert!(batch.len() < MAX_CHANGES && (bytes <= BATCH_BYTES || batch.len() == 1));
        }
        assert_eq!(batches.len(), 3 + 5 + 1 - 1, "a large one fits behind the small ones");
    }
}
