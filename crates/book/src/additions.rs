//! Changes of a caller's own that happen together with its addresses, such as the endpoint that has them.

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use ipam::Granted;
use model::{Key, Kind};
use store::{Change, Record, Revision, Write};

use crate::BookError;
use crate::sameness::{is_as_written, is_gone};

/// One change of the caller's, and how it is taken back if the caller is gone when it has been made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    pub(crate) change: Change,
    /// What was there before.
    pub(crate) before: Option<Bytes>,
}

impl Addition {
    /// A record that must not exist yet.
    pub fn create(key: Key, value: impl Into<Bytes>) -> Addition {
        Addition { change: Change::create(key, value), before: None }
    }

    /// An endpoint that is a view of the pod with this UID. A pod that is not attached shows an endpoint, too, so nothing need be
    /// read.
    pub fn attach(key: Key, value: impl Into<Bytes>, uid: impl Into<String>) -> Addition {
        Addition { change: Change::update_view(key, value, uid), before: None }
    }

    /// A new value for a record that must still be as it was read.
    pub fn replace(earlier: &Record, value: impl Into<Bytes>) -> Addition {
        let change = Change::update(earlier.key.clone(), value, earlier.revision.clone());
        Addition { change, before: Some(earlier.value.clone()) }
    }

    /// The end of a record that must still be as it was read.
    pub fn delete(earlier: &Record) -> Addition {
        let change = Change::delete(earlier.key.clone(), earlier.revision.clone());
        Addition { change, before: Some(earlier.value.clone()) }
    }

    /// Nothing changes, but the record must still be at this revision.
    pub fn require(key: Key, revision: Revision) -> Addition {
        Addition { change: Change::require(key, revision), before: None }
    }

    pub fn key(&self) -> &Key {
        &self.change.key
    }

    /// Whether the record is as the change was to leave it.
    pub(crate) fn is_done(&self, found: Option<&Record>) -> bool {
        match (&self.change.write, found) {
            (Write::Put(value), Some(record)) => is_as_written(value, record),
            (Write::Delete, found) => is_gone(found),
            (Write::Put(_), None) => false,
            (Write::Nothing, _) => true,
        }
    }

    /// What takes the change back, if the record is as the change left it.
    pub(crate) fn undo(&self, found: Option<&Record>) -> Option<Change> {
        let key = self.change.key.clone();
        match (&self.change.write, found) {
            (Write::Put(value), Some(record)) if is_as_written(value, record) => Some(match &self.before {
                Some(before) => Change::update(key, before.clone(), record.revision.clone()),
                None => Change::delete(key, record.revision.clone()),
            }),
            (Write::Delete, None) => self.before.clone().map(|before| Change::create(key, before)),
            (Write::Delete, Some(record)) if is_gone(found) => {
                let revision = record.revision.clone();
                self.before.clone().map(|before| Change::update(key, before, revision))
            }
            _ => None,
        }
    }
}

type Make = dyn Fn(&[Granted]) -> Result<Vec<Addition>, Box<dyn Error + Send + Sync>> + Send + Sync;

/// What goes with an assignment. It may depend on the addresses, so it is a function of them; it is called once for
/// each attempt.
#[derive(Default)]
pub struct Additions {
    pub(crate) count: usize,
    make: Option<Box<Make>>,
}

impl Additions {
    pub fn none() -> Additions {
        Additions::default()
    }

    /// `count` changes at most: room in the commit is kept for them.
    pub fn new(
        count: usize,
        make: impl Fn(&[Granted]) -> Result<Vec<Addition>, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Additions {
        Additions { count, make: Some(Box::new(make)) }
    }

    pub(crate) fn make(&self, granted: &[Granted]) -> Result<Vec<Addition>, BookError> {
        let Some(make) = &self.make else { return Ok(Vec::new()) };
        let made = make(granted).map_err(|error| BookError::Additions(error.into()))?;
        if made.len() > self.count {
            let (said, given) = (self.count, made.len());
            return Err(BookError::AdditionsMiscounted { said, given });
        }
        check(&made)?;
        Ok(made)
    }
}

/// What address management changes or relies on itself cannot be in the same commit twice.
pub(crate) fn check(additions: &[Addition]) -> Result<(), BookError> {
    let is_allowed = |key: &Key| match key {
        Key::Resource { kind, .. } => !matches!(kind, Kind::IpPool | Kind::ClusterInformation),
        _ => false,
    };
    match additions.iter().find(|addition| !is_allowed(addition.key())) {
        Some(addition) => Err(BookError::AdditionNotAllowed { key: addition.key().clone() }),
        None => Ok(()),
    }
}

impl fmt::Debug for Additions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Additions").field("count", &self.count).finish_non_exhaustive()
    }
}
