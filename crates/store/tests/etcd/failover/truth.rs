//! What really happened, and whether others say the same.

use std::collections::BTreeMap;

use model::{Key, KeyRange};
use serde_json::Value;
use store::{Event, Revision};
use testkit::etcd::EtcdCluster;

use super::writer::{Attempt, Outcome};
use crate::gateway::{Gateway, Snapshot};

/// One change of one record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    revision: i64,
    key: String,
    /// `None` for a deletion.
    value: Option<String>,
}

impl From<Event> for Seen {
    fn from(event: Event) -> Seen {
        match event {
            Event::Put(record) => Seen {
                revision: number(&record.revision),
                key: record.key.etcd_text(),
                value: Some(String::from_utf8(record.value.into()).unwrap()),
            },
            Event::Deleted { key, revision } => {
                Seen { revision: number(&revision), key: key.etcd_text(), value: None }
            }
            Event::HistoryGone => panic!("nothing was compacted"),
        }
    }
}

/// The records as they were at each revision, the first one being where everybody started.
pub(crate) struct Truth {
    first: i64,
    snapshots: Vec<Snapshot>,
}

impl Truth {
    /// Reads the state at every revision.
    pub(crate) fn read(cluster: &EtcdCluster, first: &Revision, last: &Revision) -> Truth {
        let mut gateway = Gateway::connect(cluster.client_port(0));
        let prefix = KeyRange::Handles.etcd_prefix();
        let (first, last) = (number(first), number(last));
        Truth { first, snapshots: (first..=last).map(|revision| gateway.at(&prefix, revision)).collect() }
    }

    /// A record's count goes up by one, on top of what it names as its predecessor.
    pub(crate) fn check_that_no_update_was_lost(&self) {
        let mut current: BTreeMap<String, Value> = BTreeMap::new();
        for change in self.changes() {
            let Some(value) = &change.value else {
                current.remove(&change.key);
                continue;
            };
            let value: Value = serde_json::from_str(value).unwrap();
            if value.get("count").is_none() {
                continue;
            }
            let (count, before) = match current.get(&change.key) {
                Some(before) => (before["count"].as_u64().unwrap(), before["tag"].clone()),
                None => (0, Value::Null),
            };
            assert_eq!(value["count"], count + 1, "{change:?}");
            assert_eq!(value["before"], before, "{change:?}");
            current.insert(change.key, value);
        }
    }

    /// What was acknowledged is there, where it was said to be; what was refused is nowhere; what is uncertain
    /// happened once or not at all, and then as a whole.
    pub(crate) fn check_attempts(&self, attempts: &[Attempt]) {
        let mut written: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
        for change in self.changes() {
            let Some(value) = &change.value else { continue };
            let value: Value = serde_json::from_str(value).unwrap();
            if let Some(tag) = value["tag"].as_str() {
                written.entry(tag.to_owned()).or_default().push(change);
            }
        }
        for attempt in attempts {
            let found = written.get(&attempt.tag).map_or(&[][..], Vec::as_slice);
            match &attempt.outcome {
                Outcome::Committed(revision) => self.check_done(attempt, found, number(revision)),
                Outcome::NotDone => assert!(found.is_empty(), "{attempt:?} shows as {found:?}"),
                Outcome::Uncertain => {
                    if let Some(first) = found.first() {
                        self.check_done(attempt, found, first.revision);
                    }
                }
            }
        }
    }

    fn check_done(&self, attempt: &Attempt, found: &[Seen], revision: i64) {
        let mut expected: Vec<String> = attempt.puts.iter().map(Key::etcd_text).collect();
        expected.sort();
        let keys: Vec<String> = found.iter().map(|change| change.key.clone()).collect();
        assert_eq!(keys, expected, "{attempt:?}");
        assert!(found.iter().all(|change| change.revision == revision), "{attempt:?} shows as {found:?}");
        for key in &attempt.deletes {
            let deletion = Seen { revision, key: key.etcd_text(), value: None };
            assert!(self.changes_at(revision).contains(&deletion), "{attempt:?}");
        }
    }

    /// A watcher has seen every change once, in the order of revisions, and nothing else.
    pub(crate) fn check_seen(&self, mut seen: Vec<Seen>) {
        assert!(seen.windows(2).all(|pair| pair[0].revision <= pair[1].revision), "out of order");
        // The changes of one revision come in the order of the commit, which the snapshots do not show.
        seen.sort();
        let expected = self.changes();
        for (position, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
            assert_eq!(seen, expected, "event {position}");
        }
        assert_eq!(seen.len(), expected.len());
    }

    fn changes(&self) -> Vec<Seen> {
        let revisions = self.first + 1..self.first + self.snapshots.len() as i64;
        revisions.flat_map(|revision| self.changes_at(revision)).collect()
    }

    /// What a revision changed, by key.
    fn changes_at(&self, revision: i64) -> Vec<Seen> {
        let index = usize::try_from(revision - self.first).unwrap();
        let (before, after) = (&self.snapshots[index - 1], &self.snapshots[index]);
        let puts = after.iter().filter(|(_, (changed, _))| *changed == revision);
        let puts = puts.map(|(key, (_, value))| (key.clone(), Some(value.clone())));
        let deletions = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), None));
        let mut changes: Vec<Seen> =
            puts.chain(deletions).map(|(key, value)| Seen { revision, key, value }).collect();
        changes.sort();
        changes
    }
}

fn number(revision: &Revision) -> i64 {
    revision.as_str().parse().unwrap()
}
