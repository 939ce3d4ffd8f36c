//! What can go wrong with a store, and what a caller can do about it.

use model::{Key, KeyRange};

use crate::{Committed, Record};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The record a change wanted to create is already there. Read it and decide.
    #[error("{} already exists", .existing.key)]
    AlreadyExists { existing: Box<Record> },

    /// The record a change relied on is gone.
    #[error("{key} does not exist")]
    NotFound { key: Key },

    /// The record a change relied on has changed since it was read. Read it again and decide anew.
    #[error("{} has changed in the meantime (now at revision {})", .current.key, .current.revision)]
    Conflict { current: Box<Record> },

    /// The pages asked for show a moment the store has forgotten. Start the list over.
    #[error("the history of {range:?} was cut while it was being read")]
    HistoryGone { range: KeyRange },

    /// Only of stores without atomic commits: these changes, the first of the commit, were made; the next was not,
    /// and those after it were not tried.
    #[error("the commit stopped after {} of its changes", .done.revisions.len())]
    Stopped {
        done: Committed,
        #[source]
        source: Box<StoreError>,
    },

    /// The connection broke after the request was sent: it may have been carried out. Read and see.
    #[error("the store did not answer; it is unknown whether the change was made")]
    Uncertain {
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// Nobody answers, or not in time. Nothing was changed. Try again later.
    #[error("cannot reach the store at {address}")]
    Unreachable {
        address: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The store answers, but not to us: certificate, user, password, rights.
    #[error("the store at {address} refuses access: {reason}")]
    AccessDenied {
        address: String,
        reason: String,
        /// What the operator can do about it, where more is known than that access was refused.
        hint: Option<String>,
    },

    /// The request makes no sense to any store, such as changing one key twice in a commit. Nothing was changed;
    /// asking again is no use.
    #[error("the request to the store is not valid: {problem}")]
    Invalid { problem: String },

    /// The store cannot even be asked with these settings: an endpoint that is none, a file without a certificate.
    #[error("{setting} {problem}")]
    BadSetting { setting: String, problem: String },

    /// The store cannot do this at all.
    #[error("the store cannot {operation}")]
    Unsupported { operation: String },

    /// The store's own files are the trouble: disk full, read-only, damaged.
    #[error("{path}: {problem}")]
    Storage {
        path: String,
        problem: String,
        /// What the operator can do about it.
        hint: Option<String>,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },

    /// Anything else, with what was being done.
    #[error("{operation} failed")]
    Other {
        operation: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// Reading again and deciding anew may succeed at once.
    pub fn is_lost_race(&self) -> bool {
        match self {
            StoreError::AlreadyExists { .. } | StoreError::Conflict { .. } | StoreError::NotFound { .. } => {
                true
            }
            StoreError::Stopped { source, .. } => source.is_lost_race(),
            _ => false,
        }
    }

    /// How long the store asks not to be asked again.
    pub(crate) fn pause_asked_for(&self) -> Option<std::time::Duration> {
        match self {
            StoreError::Unreachable { source, .. } => crate::kube::pause_asked_for(source.as_ref()),
            StoreError::Stopped { source, .. } => source.pause_asked_for(),
            _ => None,
        }
    }

    /// Whether nobody was reached at all, so that trying again costs the store nothing.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        match self {
            StoreError::Unreachable { source, .. } => crate::kube::is_out_of_reach(source.as_ref()),
            _ => false,
        }
    }

    /// Advice for the operator, to be shown on a line of its own.
    pub fn hint(&self) -> Option<String> {
        match self {
            StoreError::Storage { hint, .. } => hint.clone(),
            StoreError::Stopped { source, .. } => source.hint(),
            StoreError::Unreachable { source, .. } => {
                let known = crate::etcd::hint(source.as_ref()).or_else(|| crate::kube::hint(source.as_ref()));
                Some(known.unwrap_or_else(|| {
                    "check that the store runs and that its address is right; nothing was changed".to_owned()
                }))
            }
            StoreError::AccessDenied { hint: Some(hint), .. } => Some(hint.clone()),
            StoreError::AccessDenied { hint: None, .. } => Some(
                "check the client certificate and its key, the user name and password, and the user's roles"
                    .to_owned(),
            ),
            StoreError::Uncertain { source } => {
                let known = crate::kube::hint_of_half(source.as_ref());
                Some(known.unwrap_or_else(|| "check the records before trying again".to_owned()))
            }
            StoreError::Conflict { .. } => Some("read it again and repeat the change".to_owned()),
            StoreError::AlreadyExists { .. }
            | StoreError::NotFound { .. }
            | StoreError::HistoryGone { .. }
            | StoreError::Invalid { .. }
            | StoreError::BadSetting { .. }
            | StoreError::Unsupported { .. }
            | StoreError::Other { .. } => None,
        }
    }
}
