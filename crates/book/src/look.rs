//! Showing a decision the records it asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipam::{Answer, Decision, Next, Survey};
use model::{Cidr, HandleId, Key};
use store::{Lookup, MAX_CHANGES, Record, Revision, Store, StoreError};

use crate::beside::beside;
use crate::error::BookError;
use crate::survey;
use crate::warm::Warm;

/// Where the records come from that decisions ask for: what is known already, else the store, in one round trip.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    store: &'a Arc<dyn Store>,
    /// Answers that are at hand.
    known: BTreeMap<Key, Answer>,
    /// Where blocks are remembered. Those that are read are remembered, too.
    memory: Option<&'a Warm>,
    /// Whether what is remembered may be used.
    may_recall: bool,
    /// Read, not understood yet: most of what is read ahead is never asked for.
    unread: BTreeMap<Key, Option<Record>>,
    /// Records that will probably be asked for next, to be read with the first round trip.
    ahead: Vec<Key>,
    /// Searches that have asked for all blocks: what is found out about a block from then on is remembered for the next one.
    surveys: Vec<Survey>,
    /// Whether anything was answered from what is remembered.
    pub(crate) has_recalled: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(store: &'a Arc<dyn Store>) -> Reader<'a> {
        Reader {
            store,
            known: BTreeMap::new(),
            memory: None,
            may_recall: false,
            unread: BTreeMap::new(),
            ahead: Vec::new(),
            surveys: Vec::new(),
            has_recalled: false,
        }
    }

    /// Answers from what has just been read.
    #[must_use]
    pub(crate) fn knowing(mut self, known: impl IntoIterator<Item = (Key, Answer)>) -> Reader<'a> {
        self.known.extend(known);
        self
    }

    /// Remembers the blocks that it reads, and answers from what is remembered if that is wanted. It may be stale.
    #[must_use]
    pub(crate) fn with_memory(mut self, memory: Option<&'a Warm>, may_recall: bool) -> Reader<'a> {
        (self.memory, self.may_recall) = (memory, may_recall);
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
                Next::Survey(survey) => {
                    decision.show_survey(survey::fill(self.store, self.memory, &survey).await?);
                    self.surveys.push(*survey);
                }
            }
        }
    }

    pub(crate) async fn look(&mut self, keys: Vec<Key>) -> Result<Vec<(Key, Answer)>, StoreError> {
        let mut missing = Vec::new();
        for key in &keys {
            if !self.known.contains_key(key) && !self.unread.contains_key(key) {
                match self.recall(key) {
                    Some(answer) => drop(self.known.insert(key.clone(), answer)),
                    None => missing.push(key.clone()),
                }
            }
        }
        if !missing.is_empty() {
            let room = MAX_CHANGES.saturating_sub(missing.len());
            let is_news = |key: &Key| {
                !self.known.contains_key(key) && !self.unread.contains_key(key) && !missing.contains(key)
            };
            let ahead = std::mem::take(&mut self.ahead).into_iter().filter(is_news);
            let ahead: Vec<Key> = ahead.take(room).collect();
            let ahead: Vec<Key> = ahead.into_iter().filter(|key| !self.is_remembered(key)).collect();
            missing.extend(ahead);
            self.unread.extend(read_records(self.store, missing).await?);
        }
        Ok(keys.into_iter().map(|key| self.answer(key)).collect())
    }

    fn answer(&mut self, key: Key) -> (Key, Answer) {
        if let Some(record) = self.unread.remove(&key) {
            let answer = read(&key, record.as_ref());
            if let (Some(memory), Key::Block(cidr)) = (self.memory, &key) {
                memory.learn(*cidr, &answer);
                self.learn_prospect(memory, *cidr, &answer);
            }
            self.known.insert(key.clone(), answer);
        }
        let answer = self.known.get(&key).cloned().unwrap_or(Answer::Absent);
        (key, answer)
    }

    fn learn_prospect(&self, memory: &Warm, cidr: Cidr, answer: &Answer) {
        let survey = self.surveys.iter().find(|survey| survey.version() == cidr.version());
        if let (Some(survey), Answer::Block(stored)) = (survey, answer)
            && let Some(prospect) = survey.prospect(cidr, answer)
        {
            memory.learn_prospect(survey, cidr, Revision::new(&*stored.revision), prospect);
        }
    }

    fn recall(&mut self, key: &Key) -> Option<Answer> {
        let (true, Some(memory), Key::Block(cidr)) = (self.may_recall, self.memory, key) else { return None };
        let answer = memory.block(cidr)?;
        self.has_recalled = true;
        Some(answer)
    }

    fn is_remembered(&self, key: &Key) -> bool {
        match (self.memory, key) {
            (Some(memory), Key::Block(cidr)) if self.may_recall => memory.has_block(cidr),
            _ => false,
        }
    }
}

/// A record in the words of decisions.
pub(crate) fn read(key: &Key, record: Option<&Record>) -> Answer {
    Answer::read(key, record.map(|record| (&record.value[..], record.revision.as_str())))
}

/// Records by key; as few round trips as there can be.
pub(crate) async fn read_records(
    store: &Arc<dyn Store>,
    keys: Vec<Key>,
) -> Result<BTreeMap<Key, Option<Record>>, StoreError> {
    let mut found = BTreeMap::new();
    if !keys.is_empty() {
        let answers = read_all(store, keys.iter().cloned().map(Lookup::Record).collect()).await?;
        found.extend(keys.into_iter().zip(answers.into_iter().map(|mut records| records.pop())));
    }
    Ok(found)
}

/// Several things: in one round trip where the store can, else beside each other.
pub(crate) async fn read_all(
    store: &Arc<dyn Store>,
    lookups: Vec<Lookup>,
) -> Result<Vec<Vec<Record>>, StoreError> {
    if store.capabilities().atomic_commits {
        return store.read(lookups).await;
    }
    let work = lookups.into_iter().map(|lookup| {
        let store = Arc::clone(store);
        async move { store.read(vec![lookup]).await }
    });
    let answers: Result<Vec<_>, StoreError> = beside(work).await.into_iter().collect();
    Ok(answers?.into_iter().map(|mut answer| answer.pop().unwrap_or_default()).collect())
}

/// A handle that no key can be made of would spoil the read of everyone it goes with.
pub(crate) fn check_handle(id: &HandleId) -> Result<(), BookError> {
    let key = Key::Handle(id.clone());
    if Key::from_etcd_text(&key.etcd_text()).as_ref() == Ok(&key) {
        return Ok(());
    }
    Err(StoreError::Invalid { problem: format!("{id:?} cannot be a handle") }.into())
}
