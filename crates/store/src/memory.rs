//! The store of simulations and tests: records and history in memory, no clock, no tasks, no files.
//!
//! The same calls in the same order give the same answers, revisions included. All handles of one store are clones
//! of one [`Arc`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use model::{Key, KeyRange};
use tokio::sync::watch;

use crate::request::{check_commit, check_key, check_lookups, check_precondition, counted, interval};
use crate::watch::{Batch, EventSource};
use crate::{
    Capabilities, Change, Committed, Continuation, Event, ListPage, ListRequest, Lookup, Record, Revision,
    Store, StoreError, Watch, Write,
};

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

impl MemoryStore {
    /// How many changes are remembered unless told otherwise.
    pub const HISTORY: usize = 100_000;

    pub fn new() -> MemoryStore {
        MemoryStore::with_history(MemoryStore::HISTORY)
    }

    /// A store that remembers about this many changes: the oldest commits go first, each as a whole.
    pub fn with_history(changes: usize) -> MemoryStore {
        let state = State {
            revision: 1,
            floor: 1,
            records: BTreeMap::new(),
            history: VecDeque::new(),
            history_max: changes,
        };
        let (revision, _) = watch::channel(state.revision);
        MemoryStore { shared: Arc::new(Shared { state: Mutex::new(state), revision }) }
    }

    /// Forgets all history, as a store does that was left alone for long.
    pub fn forget_history(&self) {
        let mut state = self.shared.lock();
        state.history.clear();
        state.floor = state.revision;
    }

    /// Writes a key that need not be one of ours, without any precondition.
    pub fn put_foreign(&self, key: &str, value: impl Into<Bytes>) {
        let mut state = self.shared.lock();
        let revision = state.revision + 1;
        state.write(key.to_owned(), Some(value.into()), revision);
        self.shared.committed(state, revision);
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic_commits: true, endpoints_are_records: true }
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        check_key(key)?;
        Ok(self.shared.lock().record(key))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.shared.lock().list(&request)
    }

    async fn read(&self, lookups: Vec<Lookup>) -> Result<Vec<Vec<Record>>, StoreError> {
        check_lookups(&lookups)?;
        let state = self.shared.lock();
        Ok(lookups.iter().map(|lookup| state.look_up(lookup)).collect())
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        check_commit(&changes)?;
        let mut state = self.shared.lock();
        for change in &changes {
            state.check(change)?;
        }
        let writes = changes.iter().any(|change| change.write != Write::Nothing);
        let revision = state.revision + i64::from(writes);
        let count = changes.len();
        for change in changes {
            match change.write {
                Write::Put(value) => state.write(change.key.etcd_text(), Some(value), revision),
                Write::Delete => state.write(change.key.etcd_text(), None, revision),
                Write::Nothing => {}
            }
        }
        self.shared.committed(state, revision);
        Ok(Committed { revisions: vec![revision.into(); count] })
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        let position = counted(&after)?;
        let revision = self.shared.revision.subscribe();
        let source = Following { shared: Arc::clone(&self.shared), range, position, revision };
        Ok(Watch::pulling(after, source))
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Tells watches that there is something new.
    revision: watch::Sender<i64>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn committed(&self, mut state: MutexGuard<'_, State>, revision: i64) {
        if revision == state.revision {
            return;
        }
        state.revision = revision;
        state.trim();
        drop(state);
        self.revision.send_replace(revision);
    }
}

#[derive(Debug)]
struct State {
    revision: i64,
    /// What happened after this revision is known; what happened before may not be.
    floor: i64,
    /// By key text, which gives the order of lists.
    records: BTreeMap<String, Stored>,
    history: VecDeque<Past>,
    history_max: usize,
}

#[derive(Clone, Debug)]
struct Stored {
    value: Bytes,
    revision: i64,
}

/// One change that happened.
#[derive(Debug)]
struct Past {
    revision: i64,
    key: String,
    before: Option<Stored>,
    after: Option<Bytes>,
}

impl Stored {
    fn record(&self, key: Key) -> Record {
        Record { key, value: self.value.clone(), revision: self.revision.into() }
    }
}

impl State {
    fn check(&self, change: &Change) -> Result<(), StoreError> {
        check_precondition(change, self.record(&change.key))
    }

    fn record(&self, key: &Key) -> Option<Record> {
        self.records.get(&key.etcd_text()).map(|stored| stored.record(key.clone()))
    }

    fn look_up(&self, lookup: &Lookup) -> Vec<Record> {
        match lookup {
            Lookup::Record(key) => self.record(key).into_iter().collect(),
            Lookup::Range(range) => {
                let (first, end) = interval(range);
                known_records(self.records.range(first..end)).collect()
            }
        }
    }

    fn write(&mut self, key: String, value: Option<Bytes>, revision: i64) {
        let before = match &value {
            Some(value) => self.records.insert(key.clone(), Stored { value: value.clone(), revision }),
            None => self.records.remove(&key),
        };
        self.history.push_back(Past { revision, key, before, after: value });
    }

    /// Forgets the oldest commits, each as a whole, until what is left fits.
    fn trim(&mut self) {
        while self.history.len() > self.history_max {
            let oldest = self.history.front().map_or(self.revision, |past| past.revision);
            while self.history.front().is_some_and(|past| past.revision == oldest) {
                self.history.pop_front();
            }
            self.floor = oldest;
        }
    }

    fn knows(&self, revision: i64) -> bool {
        (self.floor..=self.revision).contains(&revision)
    }

    fn since(&self, revision: i64) -> impl Iterator<Item = &Past> {
        let first = self.history.partition_point(|past| past.revision <= revision);
        self.history.range(first..)
    }

    fn list(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        let (first, end) = interval(&request.range);
        let (start, moment) = match &request.next {
            None => (first, self.revision),
            Some(next) => (next.start().min(end.clone()), counted(&next.revision)?),
        };
        if !self.knows(moment) {
            return Err(StoreError::HistoryGone { range: request.range.clone() });
        }
        let then = self.at(moment, &(start..end));
        let mut known = known_records(then);
        let records: Vec<Record> = known.by_ref().take(request.limit.max(1)).collect();
        let next = known
            .next()
            .and(records.last())
            .map(|last| Continuation { after: last.key.etcd_text(), revision: moment.into() });
        Ok(ListPage { records, revision: moment.into(), next })
    }

    /// The records among `keys` as they were at a revision that is still known: what is there now, with
    /// every later change taken back.
    fn at(&self, revision: i64, keys: &Range<String>) -> BTreeMap<&str, &Stored> {
        let now = self.records.range(keys.clone());
        let mut then: BTreeMap<&str, &Stored> = now.map(|(key, stored)| (key.as_str(), stored)).collect();
        let later: Vec<&Past> = self.since(revision).filter(|past| keys.contains(&past.key)).collect();
        for past in later.into_iter().rev() {
            match &past.before {
                Some(stored) => then.insert(&past.key, stored),
                None => then.remove(past.key.as_str()),
            };
        }
        then
    }
}

/// The records whose keys are ours.
fn known_records<'a>(
    stored: impl IntoIterator<Item = (impl AsRef<str>, &'a Stored)>,
) -> impl Iterator<Item = Record> {
    stored
        .into_iter()
        .filter_map(|(key, stored)| Some(stored.record(Key::from_etcd_text(key.as_ref()).ok()?)))
}

/// A watch's place in the history.
#[derive(Debug)]
struct Following {
    shared: Arc<Shared>,
    range: KeyRange,
    position: i64,
    revision: watch::Receiver<i64>,
}

impl Following {
    fn read(&mut self) -> Option<Batch> {
        let state = self.shared.lock();
        if !state.knows(self.position) {
            let events = vec![Event::HistoryGone];
            return Some(Batch { events, upto: self.position.into() });
        }
        if state.revision == self.position {
            return None;
        }
        let (first, end) = interval(&self.range);
        let events = state
            .since(self.position)
            .filter(|past| first <= past.key && past.key < end)
            .filter_map(Past::event)
            .collect();
        self.position = state.revision;
        Some(Batch { events, upto: self.position.into() })
    }
}

impl Past {
    fn event(&self) -> Option<Event> {
        let key = Key::from_etcd_text(&self.key).ok()?;
        let revision = self.revision.into();
        Some(match &self.after {
            Some(value) => Event::Put(Record { key, value: value.clone(), revision }),
            None => Event::Deleted { key, revision },
        })
    }
}

#[async_trait]
impl EventSource for Following {
    async fn next(&mut self) -> Result<Batch, StoreError> {
        loop {
            if let Some(batch) = self.read() {
                return Ok(batch);
            }
            // The sender lives in `shared`, which this watch holds: it cannot be gone.
            let _ = self.revision.changed().await;
        }
    }
}
