//! Showing a decision the records it asks for.

use std::collections::BTreeMap;

use ipam::{Answer, Decision, Next};
use model::Key;
use store::{Lookup, MAX_CHANGES, Record, Store, StoreError};

use crate::error::BookError;

/// Where the records come from that decisions ask for: what is known already, else the store, in one round trip.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    store: &'a dyn Store,
    /// Answers that are at hand. What a decision asks for is taken out: it asks once.
    known: BTreeMap<Key, Answer>,
    /// Read, not understood yet: most of what is read ahead is never asked for.
    unread: BTreeMap<Key, Option<Record>>,
    /// Records that will probably be asked for next, to be read with the first round trip.
    ahead: Vec<Key>,
    /// Whether anything was answered from what was known before.
    pub(crate) has_used_known: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(store: &'a dyn Store) -> Reader<'a> {
        Reader {
            store,
            known: BTreeMap::new(),
            unread: BTreeMap::new(),
            ahead: Vec::new(),
            has_used_known: false,
        }
    }

    /// Answers from what is known already. It may be stale.
    #[must_use]
    pub(crate) fn knowing(mut self, known: impl IntoIterator<Item = (Key, Answer)>) -> Reader<'a> {
        self.known.extend(known);
        self
    }

    /// Reads these too when it has to read at all.
    #[must_use]
    pub(crate) fn reading_ahead(mut self, keys: impl IntoIterator<Item = Key>) -> Reader<'a> {
        self.ahead.extend(keys);
        self
    }

    /// Polls the decision and shows it what it wants to see, until it is done.
    pub(crate) async fn decide<D>(&mut self, decision: &mut D) -> Result<D::Outcome, BookError>
    where
        D: Decision,
        BookError: From<D::Error>,
    {
        loop {
            match decision.poll()? {
                Next::Done(outcome) => return Ok(outcome),
                Next::Look(keys) => {
                    for (key, answer) in self.look(keys).await? {
                        decision.show(&key, answer);
                    }
                }
            }
        }
    }

    pub(crate) async fn look(&mut self, keys: Vec<Key>) -> Result<Vec<(Key, Answer)>, StoreError> {
        let is_missing = |key: &&Key| !self.known.contains_key(key) && !self.unread.contains_key(key);
        let mut missing: Vec<Key> = keys.iter().filter(is_missing).cloned().collect();
        if !missing.is_empty() {
            let room = MAX_CHANGES.saturating_sub(missing.len());
            let ahead = std::mem::take(&mut self.ahead);
            let ahead = ahead.into_iter().filter(|key| is_missing(&key) && !keys.contains(key));
            missing.extend(ahead.take(room));
            self.unread.extend(read_records(self.store, missing).await?);
        }
        Ok(keys.into_iter().map(|key| self.answer(key)).collect())
    }

    fn answer(&mut self, key: Key) -> (Key, Answer) {
        let answer = match self.unread.get(&key) {
            Some(record) => read(&key, record.as_ref()),
            None => {
                self.has_used_known = true;
                self.known.get(&key).cloned().unwrap_or(Answer::Absent)
            }
        };
        (key, answer)
    }
}

/// A record in the words of decisions.
pub(crate) fn read(key: &Key, record: Option<&Record>) -> Answer {
    Answer::read(key, record.map(|record| (&record.value[..], record.revision.as_str())))
}

/// Records by key; as few round trips as there can be.
pub(crate) async fn read_records(
    store: &dyn Store,
    keys: Vec<Key>,
) -> Result<BTreeMap<Key, Option<Record>>, StoreError> {
    let mut found = BTreeMap::new();
    if !keys.is_empty() {
        let answers = store.read(keys.iter().cloned().map(Lookup::Record).collect()).await?;
        found.extend(keys.into_iter().zip(answers.into_iter().map(|mut records| records.pop())));
    }
    Ok(found)
}

/// A handle that no key can be made of would spoil the read of everyone it goes with.
pub(crate) fn check_handle(id: &str) -> Result<(), BookError> {
    let key = Key::Handle(id.to_owned());
    if Key::from_etcd_text(&key.etcd_text()).as_ref() == Ok(&key) {
        return Ok(());
    }
    Err(StoreError::Invalid { problem: format!("{id:?} cannot be a handle") }.into())
}
