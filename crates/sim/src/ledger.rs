//! What the store has said it did. From then on it must show exactly that.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use bytes::Bytes;
use model::{Key, KeyRange};
use store::{Change, Committed, Event, Precondition, Record, Revision, StoreError, Write};

/// Which rule of the store's contract was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A change was accepted though its precondition did not hold.
    LostUpdate,
    /// A change was refused for a reason that was not there.
    FalseRefusal,
    /// A read or a list shows something else than what was accepted.
    WrongRead,
    /// Revisions do not name moments: one was used twice, or never given out.
    WrongRevision,
    /// A watch passed over a change.
    EventLost,
    /// A watch told of something that never happened.
    EventPhantom,
    /// A watch told of a change that its reader already knew.
    EventRepeated,
    /// History was said to be gone that must be there.
    HistoryLost,
    /// The counters do not add up to what the writers were told.
    WrongSum,
    /// The store failed in a way a healthy one never does.
    Failed,
}

/// A broken rule, with what was seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule:?}: {detail}")]
pub struct Violation {
    pub rule: Rule,
    pub detail: String,
}

pub(crate) fn broken<T>(rule: Rule, detail: impl fmt::Display) -> Result<T, Violation> {
    Err(Violation { rule, detail: detail.to_string() })
}

pub(crate) type Records = BTreeMap<Key, Record>;

/// How many writes a moment has seen; moments of one ledger are ordered, revisions are not.
pub(crate) type Moment = usize;

/// Every write that was accepted, in order.
#[derive(Debug)]
pub(crate) struct Ledger {
    writes: Vec<Event>,
    moments: HashMap<Revision, Moment>,
    /// The store's revision now.
    revision: Revision,
    now: Records,
    /// The records at some moments, so that those at any other are a short way off.
    checkpoints: Vec<(Moment, Records)>,
}

impl Ledger {
    const CHECKPOINT_EVERY: usize = 256;

    /// A ledger that starts with what the store lists at `revision`.
    pub(crate) fn new(records: Vec<Record>, revision: Revision) -> Ledger {
        let now: Records = records.into_iter().map(|record| (record.key.clone(), record)).collect();
        Ledger {
            writes: Vec::new(),
            moments: HashMap::from([(revision.clone(), 0)]),
            revision,
            checkpoints: vec![(0, now.clone())],
            now,
        }
    }

    pub(crate) fn now(&self) -> &Records {
        &self.now
    }

    pub(crate) fn writes(&self) -> &[Event] {
        &self.writes
    }

    /// The moment a revision names.
    pub(crate) fn moment(&self, revision: &Revision) -> Result<Moment, Violation> {
        match self.moments.get(revision) {
            Some(moment) => Ok(*moment),
            None => broken(Rule::WrongRevision, format!("revision {revision} was never given out")),
        }
    }

    /// The records at an earlier moment.
    pub(crate) fn at(&self, moment: Moment) -> Records {
        let next = self.checkpoints.partition_point(|(checkpoint, _)| *checkpoint <= moment);
        let (checkpoint, records) = &self.checkpoints[next - 1];
        let mut records = records.clone();
        for write in &self.writes[*checkpoint..moment] {
            replay(&mut records, write);
        }
        records
    }

    /// Takes down a commit that the store accepted.
    pub(crate) fn accepted(&mut self, changes: &[Change], committed: &Committed) -> Result<(), Violation> {
        if let Some(refusal) = self.refusal(changes) {
            return broken(Rule::LostUpdate, format!("accepted, though {refusal}"));
        }
        let Some(revision) = committed.revisions.first() else { return Ok(()) };
        if committed.revisions.len() != changes.len()
            || committed.revisions.iter().any(|other| other != revision)
        {
            let detail = format!("{} changes were answered with {:?}", changes.len(), committed.revisions);
            return broken(Rule::WrongRevision, detail);
        }
        if changes.iter().all(|change| change.write == Write::Nothing) {
            return self.check_unchanged(revision);
        }
        for change in changes {
            self.write(change, revision);
        }
        self.revision = revision.clone();
        match self.moments.insert(revision.clone(), self.writes.len()) {
            None => Ok(()),
            Some(_) => broken(Rule::WrongRevision, format!("revision {revision} was given out twice")),
        }
    }

    /// Judges an error that the store answered a commit with. A lost race is in order if it really was one.
    pub(crate) fn refused(&self, changes: &[Change], error: &StoreError) -> Result<(), Violation> {
        if !error.is_lost_race() {
            return broken(Rule::Failed, format!("a commit failed: {error}"));
        }
        match self.refusal(changes) {
            Some(refusal) if refusal.is(error) => Ok(()),
            Some(refusal) => broken(Rule::FalseRefusal, format!("refused with {error:?}, though {refusal}")),
            None => {
                broken(Rule::FalseRefusal, format!("refused with {error:?}, though nothing spoke against it"))
            }
        }
    }

    fn check_unchanged(&self, revision: &Revision) -> Result<(), Violation> {
        if *revision == self.revision {
            return Ok(());
        }
        let detail = format!("a commit without writes moved {} to {revision}", self.revision);
        broken(Rule::WrongRevision, detail)
    }

    fn write(&mut self, change: &Change, revision: &Revision) {
        let (key, revision) = (change.key.clone(), revision.clone());
        let write = match &change.write {
            Write::Put(value) => Event::Put(Record { key, value: Bytes::clone(value), revision }),
            Write::Delete => Event::Deleted { key, revision },
            Write::Nothing => return,
        };
        replay(&mut self.now, &write);
        self.writes.push(write);
        if self.writes.len().is_multiple_of(Ledger::CHECKPOINT_EVERY) {
            self.checkpoints.push((self.writes.len(), self.now.clone()));
        }
    }

    /// Why these changes must be refused: the first precondition that does not hold.
    fn refusal(&self, changes: &[Change]) -> Option<Refusal> {
        changes.iter().find_map(|change| match (&change.precondition, self.now.get(&change.key)) {
            (Precondition::Absent, None) => None,
            (Precondition::Absent, Some(record)) => Some(Refusal::Exists(record.clone())),
            (Precondition::At(_) | Precondition::Uid(_), None) => Some(Refusal::Missing(change.key.clone())),
            (Precondition::At(revision), Some(record)) => {
                (record.revision != *revision).then(|| Refusal::Moved(record.clone()))
            }
            // Records of their own are views of nothing.
            (Precondition::Uid(_), Some(record)) => Some(Refusal::Moved(record.clone())),
        })
    }
}

/// Brings records from one moment to the next.
pub(crate) fn replay(records: &mut Records, event: &Event) {
    match event {
        Event::Put(record) => {
            records.insert(record.key.clone(), record.clone());
        }
        Event::Deleted { key, .. } => {
            records.remove(key);
        }
        Event::HistoryGone => {}
    }
}

pub(crate) fn in_range(range: &KeyRange, key: &Key) -> bool {
    key.etcd_text().starts_with(&range.etcd_prefix())
}

enum Refusal {
    Exists(Record),
    Missing(Key),
    Moved(Record),
}

impl Refusal {
    fn is(&self, error: &StoreError) -> bool {
        match (self, error) {
            (Refusal::Exists(record), StoreError::AlreadyExists { existing }) => *record == **existing,
            (Refusal::Missing(key), StoreError::NotFound { key: missing }) => key == missing,
            (Refusal::Moved(record), StoreError::Conflict { current }) => *record == **current,
            _ => false,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Exists(record) => write!(f, "{} exists at {}", record.key, record.revision),
            Refusal::Missing(key) => write!(f, "{key} does not exist"),
            Refusal::Moved(record) => write!(f, "{} is at {}", record.key, record.revision),
        }
    }
}

/// A watch as the ledger sees it: which of its events must come next.
#[derive(Debug)]
pub(crate) struct Expected {
    range: KeyRange,
    next: Moment,
}

impl Expected {
    pub(crate) fn after(range: KeyRange, moment: Moment) -> Expected {
        Expected { range, next: moment }
    }

    /// Judges the next event of the watch.
    pub(crate) fn saw(&mut self, event: &Event, ledger: &Ledger) -> Result<(), Violation> {
        let due = self.due(ledger);
        if due.is_some_and(|moment| ledger.writes()[moment] == *event) {
            self.next = due.expect("was there a line above") + 1;
            return Ok(());
        }
        if !self.concerns(event) {
            return broken(Rule::EventPhantom, format!("{event:?} is not of {:?}", self.range));
        }
        let happened = ledger.writes().iter().position(|write| write == event);
        match (happened, due) {
            (Some(moment), _) if moment < self.next => broken(Rule::EventRepeated, format!("{event:?}")),
            (Some(_), Some(due)) => {
                broken(Rule::EventLost, format!("{event:?} came before {:?}", ledger.writes()[due]))
            }
            _ => broken(Rule::EventPhantom, format!("{event:?}")),
        }
    }

    fn due(&self, ledger: &Ledger) -> Option<Moment> {
        let mut later = self.next..ledger.writes().len();
        later.find(|moment| self.concerns(&ledger.writes()[*moment]))
    }

    fn concerns(&self, event: &Event) -> bool {
        match event {
            Event::Put(record) => in_range(&self.range, &record.key),
            Event::Deleted { key, .. } => in_range(&self.range, key),
            Event::HistoryGone => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::Handle(name.into())
    }

    fn committed(revision: i64, changes: usize) -> Committed {
        Committed { revisions: vec![revision.into(); changes] }
    }

    /// `a` written at 2, `b` at 3, `a` deleted at 4.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(Vec::new(), 1.into());
        for (revision, change) in [
            (2, Change::create(key("a"), "1")),
            (3, Change::create(key("b"), "2")),
            (4, Change::delete(key("a"), 2.into())),
        ] {
            ledger.accepted(&[change], &committed(revision, 1)).unwrap();
        }
        ledger
    }

    fn names(records: &Records) -> Vec<String> {
        records.keys().map(Key::to_string).collect()
    }

    #[test]
    fn every_moment_can_be_seen_again() {
        let mut ledger = ledger();
        assert_eq!(names(&ledger.at(0)), [""; 0]);
        assert_eq!(names(&ledger.at(2)), ["IPAMHandle(a)", "IPAMHandle(b)"]);
        assert_eq!(names(&ledger.at(3)), ["IPAMHandle(b)"]);
        for revision in 5..1_000 {
            let change = Change::create(key(&revision.to_string()), "");
            ledger.accepted(&[change], &committed(revision, 1)).unwrap();
            assert_eq!(ledger.at(ledger.moment(&revision.into()).unwrap()), *ledger.now());
        }
        assert_eq!(ledger.at(700).len(), 698);
    }

    #[test]
    fn what_must_not_be_accepted() {
        for (changes, answer, rule) in [
            (vec![Change::create(key("b"), "")], committed(5, 1), Rule::LostUpdate),
            (vec![Change::update(key("b"), "", 2.into())], committed(5, 1), Rule::LostUpdate),
            (vec![Change::delete(key("a"), 2.into())], committed(5, 1), Rule::LostUpdate),
            (vec![Change::require(key("a"), 2.into())], committed(4, 1), Rule::LostUpdate),
            (vec![Change::create(key("c"), "")], committed(3, 1), Rule::WrongRevision),
            (vec![Change::create(key("c"), "")], committed(5, 2), Rule::WrongRevision),
            (vec![Change::require(key("b"), 3.into())], committed(5, 1), Rule::WrongRevision),
        ] {
            assert_eq!(ledger().accepted(&changes, &answer).unwrap_err().rule, rule, "{changes:?}");
        }
    }

    #[test]
    fn what_must_not_be_refused() {
        let missing = |name: &str| StoreError::NotFound { key: key(name) };
        let ledger = ledger();
        let gone = Change::delete(key("a"), 2.into());
        assert_eq!(ledger.refused(std::slice::from_ref(&gone), &missing("a")), Ok(()));
        assert_eq!(ledger.refused(&[gone], &missing("b")).unwrap_err().rule, Rule::FalseRefusal);
        let fine = Change::delete(key("b"), 3.into());
        assert_eq!(ledger.refused(&[fine], &missing("b")).unwrap_err().rule, Rule::FalseRefusal);
    }

    #[test]
    fn a_watch_tells_all_of_its_range_once_and_in_order() {
        let ledger = ledger();
        let [a, b, a_gone] = ledger.writes() else { panic!("three writes were made") };
        let phantom = Event::Deleted { key: key("b"), revision: 9.into() };
        for (after, events, expected) in [
            (0, vec![a, b, a_gone], None),
            (1, vec![b, a_gone], None),
            (0, vec![b], Some(Rule::EventLost)),
            (0, vec![a, a_gone], Some(Rule::EventLost)),
            (0, vec![a, a], Some(Rule::EventRepeated)),
            (2, vec![a_gone, b], Some(Rule::EventRepeated)),
            (0, vec![a, &phantom], Some(Rule::EventPhantom)),
        ] {
            let mut watch = Expected::after(KeyRange::Handles, after);
            let verdict = events.iter().try_for_each(|event| watch.saw(event, &ledger));
            assert_eq!(verdict.err().map(|violation| violation.rule), expected, "{after}: {events:?}");
        }
        let mut elsewhere = Expected::after(KeyRange::HostAffinities, 0);
        assert_eq!(elsewhere.saw(a, &ledger).unwrap_err().rule, Rule::EventPhantom);
    }
}
