//! A client that keeps changing records, one or two at a time, and keeps account of what it was told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use model::Key;
use serde_json::json;
use store::{Change, Record, Revision, Store, StoreError};
use testkit::Dice;
use tokio::time::sleep;

const RECORDS: u64 = 5;
/// Keeps the history short enough to be read revision by revision.
const PAUSE: Duration = Duration::from_millis(4);

/// One commit that was tried.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// In the value of everything it wrote, and nowhere else.
    pub(crate) tag: String,
    pub(crate) puts: Vec<Key>,
    pub(crate) deletes: Vec<Key>,
    pub(crate) outcome: Outcome,
}

/// What the writer knows about it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Committed(Revision),
    NotDone,
    Uncertain,
}

pub(crate) struct Writer {
    store: Arc<dyn Store>,
    name: usize,
    dice: Dice,
    attempts: Vec<Attempt>,
}

impl Writer {
    pub(crate) fn new(store: Arc<dyn Store>, name: usize, seed: u64) -> Writer {
        let dice = Dice::for_purpose(seed, &format!("writer {name}"));
        Writer { store, name, dice, attempts: Vec::new() }
    }

    pub(crate) async fn run(mut self, commits: Arc<AtomicUsize>, stop: Arc<AtomicBool>) -> Vec<Attempt> {
        while !stop.load(Ordering::Relaxed) {
            if self.try_once().await {
                commits.fetch_add(1, Ordering::Relaxed);
            }
            sleep(PAUSE).await;
        }
        self.attempts
    }

    async fn try_once(&mut self) -> bool {
        let tag = format!("w{}-{}", self.name, self.attempts.len());
        let first = self.dice.roll(RECORDS);
        let second = (first + 1 + self.dice.roll(RECORDS - 1)) % RECORDS;
        let numbers = if self.dice.roll(3) == 0 { vec![first, second] } else { vec![first] };
        let mut changes = Vec::new();
        for number in numbers {
            let key = Key::Handle(format!("record-{number}").into());
            match self.store.get(&key).await {
                Ok(record) => changes.push(self.change(key, record, &tag)),
                Err(StoreError::Unreachable { .. }) => return false,
                Err(error) => panic!("reading: {error:?}"),
            }
        }
        let outcome = match self.store.commit(changes.clone()).await {
            Ok(committed) => Outcome::Committed(committed.revisions[0].clone()),
            Err(StoreError::Uncertain { .. }) => self.resolve(&changes, &tag).await,
            Err(StoreError::Unreachable { .. }) => Outcome::NotDone,
            Err(error) if error.is_lost_race() => Outcome::NotDone,
            Err(error) => panic!("committing: {error:?}"),
        };
        let committed = matches!(outcome, Outcome::Committed(_));
        let is_delete = |change: &&Change| change.write == store::Write::Delete;
        let keys = |deletes: bool| {
            changes.iter().filter(|change| is_delete(change) == deletes).map(|c| c.key.clone()).collect()
        };
        self.attempts.push(Attempt { tag, puts: keys(false), deletes: keys(true), outcome });
        committed
    }

    /// The next state of a record: one more than before, said by us, after what was said before.
    fn change(&mut self, key: Key, record: Option<Record>, tag: &str) -> Change {
        let Some(record) = record else {
            let value = json!({"tag": tag, "count": 1, "before": null});
            return Change::create(key, value.to_string());
        };
        if self.dice.roll(12) == 0 {
            return Change::delete(key, record.revision);
        }
        let before: serde_json::Value = serde_json::from_slice(&record.value).unwrap();
        let count = before["count"].as_u64().unwrap() + 1;
        let value = json!({"tag": tag, "count": count, "before": before["tag"]});
        Change::update(key, value.to_string(), record.revision)
    }

    /// Looks whether it was done. A record with our tag says yes; anything else says nothing, since others may
    /// have been there after us, and the change may even still be on its way.
    async fn resolve(&self, changes: &[Change], tag: &str) -> Outcome {
        for change in changes {
            let Ok(Some(record)) = self.store.get(&change.key).await else { continue };
            let value: serde_json::Value = serde_json::from_slice(&record.value).unwrap();
            if value["tag"] == tag {
                return Outcome::Committed(record.revision);
            }
        }
        Outcome::Uncertain
    }
}
