//! The words of the store's contract.

use std::fmt;

use bytes::Bytes;
use model::{Key, KeyRange};

/// Where a record, or the store as a whole, stood. Opaque: equality and handing back are all it is good for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Revision(String);

impl Revision {
    pub fn new(text: impl Into<String>) -> Revision {
        Revision(text.into())
    }

    /// As operators see it, in `metadata.resourceVersion`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// For backends that count: the number this revision spells, if it is spelled the way they do.
    pub(crate) fn number(&self) -> Option<i64> {
        let number: i64 = self.0.parse().ok()?;
        (number >= 0 && number.to_string() == self.0).then_some(number)
    }
}

impl From<i64> for Revision {
    fn from(number: i64) -> Revision {
        Revision(number.to_string())
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// A stored record: the value is the JSON text of Calico's etcd layout, whatever the backend keeps inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Key,
    pub value: Bytes,
    pub revision: Revision,
}

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// `commit` is all or nothing.
    pub atomic_commits: bool,
    /// Endpoints and nodes are records of their own. Where they are views of something else (Pods, Nodes of
    /// Kubernetes) they cannot be created or deleted here.
    pub endpoints_are_records: bool,
}

/// One change of a commit. A key stands in one change of a commit at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    pub precondition: Precondition,
    pub write: Write,
}

/// What must be true of the record for the commit to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// There is no such record.
    Absent,
    /// The record is at this revision.
    At(Revision),
    /// The record is a view of the object with this UID, whatever its revision. Only where endpoints are views: the caller
    /// knows which pod it serves without reading it, and a later pod of the same name is left alone.
    Uid(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Put(Bytes),
    Delete,
    /// Only the precondition matters: the commit relied on this record.
    Nothing,
}

impl Change {
    pub fn create(key: Key, value: impl Into<Bytes>) -> Change {
        Change { key, precondition: Precondition::Absent, write: Write::Put(value.into()) }
    }

    pub fn update(key: Key, value: impl Into<Bytes>, revision: Revision) -> Change {
        Change { key, precondition: Precondition::At(revision), write: Write::Put(value.into()) }
    }

    /// Writes a view of the object with this UID.
    pub fn update_view(key: Key, value: impl Into<Bytes>, uid: impl Into<String>) -> Change {
        Change { key, precondition: Precondition::Uid(uid.into()), write: Write::Put(value.into()) }
    }

    pub fn delete(key: Key, revision: Revision) -> Change {
        Change { key, precondition: Precondition::At(revision), write: Write::Delete }
    }

    /// The commit relies on the record being at this revision, without changing it.
    pub fn require(key: Key, revision: Revision) -> Change {
        Change { key, precondition: Precondition::At(revision), write: Write::Nothing }
    }

    /// The commit relies on there being no such record.
    pub fn require_absent(key: Key) -> Change {
        Change { key, precondition: Precondition::Absent, write: Write::Nothing }
    }
}

/// A commit that happened: one revision per change, in order. For a record that was written it is the record's
/// new revision; otherwise the store's.
///
/// Where commits are atomic all of them are equal, and are the revision of every event the commit causes. Where they are
/// not, a store that learns nothing more from a deletion gives the last revision of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub revisions: Vec<Revision>,
}

/// One thing to read among several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// A record, if it is there.
    Record(Key),
    /// Everything in a range.
    Range(KeyRange),
}

/// Which page of which list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    pub range: KeyRange,
    /// At most this many records in the page, but at least one; a backend may give fewer.
    pub limit: usize,
    pub(crate) next: Option<Continuation>,
}

/// Where the next page starts, and which moment it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The last key of the page before, in the backend's own spelling.
    pub(crate) after: String,
    pub(crate) revision: Revision,
}

impl Continuation {
    /// The first key text that may be in the next page.
    pub(crate) fn start(&self) -> String {
        format!("{}\0", self.after)
    }
}

impl ListRequest {
    /// kubectl's page size, which is also the alignment unit of our tables.
    pub const PAGE: usize = 500;

    pub fn new(range: KeyRange) -> ListRequest {
        ListRequest { range, limit: ListRequest::PAGE, next: None }
    }

    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> ListRequest {
        self.limit = limit;
        self
    }

    #[must_use]
    pub fn continued(mut self, next: Continuation) -> ListRequest {
        self.next = Some(next);
        self
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    pub records: Vec<Record>,
    /// The moment the whole list shows; a watch may start after it.
    pub revision: Revision,
    pub next: Option<Continuation>,
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Created or changed.
    Put(Record),
    Deleted {
        key: Key,
        revision: Revision,
    },
    /// The store no longer has the history this watch needs: list again, watch from there. Nothing follows.
    HistoryGone,
}

impl Event {
    /// The revision the change made; none for `HistoryGone`.
    pub fn revision(&self) -> Option<&Revision> {
        match self {
            Event::Put(record) => Some(&record.revision),
            Event::Deleted { revision, .. } => Some(revision),
            Event::HistoryGone => None,
        }
    }
}
