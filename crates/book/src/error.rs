//! What can go wrong with the address book.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ipam::{AssignError, ClaimError, Corrupt, OwnerChangeError, PoolError};
use model::{HandleId, Key};
use store::StoreError;

/// Can be cloned, because everyone in a batch may get the same one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BookError {
    #[error(transparent)]
    Assign(#[from] AssignError),

    #[error(transparent)]
    Claim(#[from] ClaimError),

    #[error(transparent)]
    Corrupt(#[from] Corrupt),

    #[error(transparent)]
    OwnerChange(#[from] OwnerChangeError),

    #[error(transparent)]
    Pool(#[from] PoolError),

    /// An operator has locked the store. Nothing was changed; try again later.
    #[error("the store is locked for a migration")]
    Locked,

    #[error("node {node} has no Node record")]
    NoNode { node: String },

    /// The owner was to be new, and its handle is there: see what it holds ([`crate::Book::held`]).
    #[error("handle {handle} exists already")]
    HandleExists { handle: HandleId },

    /// Every attempt lost a race. Nothing was changed; try again later.
    #[error("others kept changing {subject} for {:.1} s", .waited.as_secs_f64())]
    Contended {
        subject: String,
        waited: Duration,
        #[source]
        source: Arc<StoreError>,
    },

    /// A record that the caller wanted to change in the same commit is not as it thought. Nothing was changed: read
    /// it and ask again.
    #[error("the change of {key} that goes with it cannot be made")]
    Addition {
        key: Key,
        /// Nothing if another request is changing it at this moment.
        #[source]
        source: Option<Arc<StoreError>>,
    },

    /// A change of a record that is not the caller's to change: pools, blocks, handles, affinities, the lock.
    #[error("{key} cannot be changed together with addresses")]
    AdditionNotAllowed { key: Key },

    /// The caller could not say what is to change in the same commit.
    #[error("the records that go with the addresses cannot be made")]
    Additions(#[source] Arc<dyn Error + Send + Sync>),

    #[error("the caller said that {said} changes go with it, and gave {given}")]
    AdditionsMiscounted { said: usize, given: usize },

    /// A record that everything depends on is not what its key says.
    #[error("the store holds a record that cannot be read")]
    Unreadable(#[source] Arc<dyn Error + Send + Sync>),

    #[error(transparent)]
    Store(Arc<StoreError>),

    /// The runtime is shutting down. What was under way may have happened.
    #[error("the address book was closed while the request was under way")]
    Closed,
}

impl BookError {
    /// Advice for the operator, to be shown on a line of its own.
    pub fn hint(&self) -> Option<String> {
        match self {
            BookError::Locked => Some("`plumb datastore migrate unlock` ends the lock".to_owned()),
            BookError::Assign(AssignError::NoPools) => Some(
                "create one with `plumb apply -f pool.yaml`, where pool.yaml holds \
                 {apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: pods}, spec: {cidr: 10.244.0.0/16}}"
                    .to_owned(),
            ),
            BookError::Assign(AssignError::PoolUnknown(..) | AssignError::NoPoolServes { .. }) => {
                Some("`plumb get ippool -o wide` shows the pools and whom they serve".to_owned())
            }
            BookError::Store(source) => source.hint(),
            _ => None,
        }
    }

    pub(crate) fn unreadable(error: impl Error + Send + Sync + 'static) -> BookError {
        BookError::Unreadable(Arc::new(error))
    }
}

impl From<std::convert::Infallible> for BookError {
    fn from(never: std::convert::Infallible) -> BookError {
        match never {}
    }
}

impl From<StoreError> for BookError {
    fn from(error: StoreError) -> BookError {
        BookError::Store(Arc::new(error))
    }
}

/// Which record a change failed on, if the error says so.
pub(crate) fn subject(error: &StoreError) -> Option<&Key> {
    match error {
        StoreError::AlreadyExists { existing } => Some(&existing.key),
        StoreError::Conflict { current } => Some(&current.key),
        StoreError::NotFound { key } => Some(key),
        _ => None,
    }
}
