//! Records as they were read, and changes that belong together.

use model::Key;

/// A record as it was read. The revision is the store's own word for it; only equality means anything.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored<T> {
    pub value: T,
    pub revision: String,
}

impl<T> Stored<T> {
    pub fn new(value: T, revision: impl Into<String>) -> Stored<T> {
        Stored { value, revision: revision.into() }
    }
}

/// One of several changes that happen together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// There must be no such record yet.
    Create { key: Key, value: Vec<u8> },
    /// The record must still be at this revision.
    Update { key: Key, value: Vec<u8>, revision: String },
    /// The record must still be at this revision.
    Delete { key: Key, revision: String },
    /// Nothing changes, but the decision relied on this record being as it was.
    Require { key: Key, revision: String },
    /// Nothing changes, but the decision relied on there being no such record.
    RequireAbsent { key: Key },
}

impl Step {
    pub fn key(&self) -> &Key {
        match self {
            Step::Create { key, .. }
            | Step::Update { key, .. }
            | Step::Delete { key, .. }
            | Step::Require { key, .. }
            | Step::RequireAbsent { key } => key,
        }
    }

    /// Makes the record, or replaces the one that was read.
    pub(crate) fn put(key: Key, value: Vec<u8>, revision: Option<String>) -> Step {
        match revision {
            Some(revision) => Step::Update { key, value, revision },
            None => Step::Create { key, value },
        }
    }
}
