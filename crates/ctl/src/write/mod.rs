//! Changes to the store. Every one is conditional on what was read, so nobody's change is lost unseen.

mod basics;
mod create;
mod delete;
mod node;
mod pool;
mod prepare;
mod references;
mod replace;
mod unknown;
mod view;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::Key;
use store::{Record, Store, StoreError};

use crate::cli::Global;
use crate::connect;
use crate::failure::Failure;
use crate::scope::Named;

pub(crate) use basics::{born, ensure_basics, new_guid, warn_if_locked};
pub(crate) use prepare::{Prepared, check_against_store, prepare, refuse_ipam_record};
pub(crate) use replace::refuse_as_calicoctl;
pub(crate) use unknown::{restore_unknown, without_unknown};

/// How often a change is tried anew when someone else was faster.
const TRIES: u32 = 5;
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_millis(200);

/// Makes changes, or with `dry_run` only finds out what they would be.
#[derive(Debug)]
pub(crate) struct Writer {
    store: Arc<dyn Store>,
    dry_run: bool,
    /// What is deleted by now, or would be if this were no dry run, so that it tells what really would happen to the
    /// rest.
    gone: RefCell<BTreeSet<Key>>,
    /// What the same command writes, sooner or later.
    coming: RefCell<BTreeSet<Key>>,
}

impl Writer {
    pub(crate) fn new(store: Arc<dyn Store>, dry_run: bool) -> Writer {
        Writer { store, dry_run, gone: RefCell::default(), coming: RefCell::default() }
    }

    /// On a store that must be there; one that only tries things out cannot change it. Warns if the store is locked.
    pub(crate) async fn open_for_changing(global: &Global, dry_run: bool) -> Result<Writer, Failure> {
        let store = match dry_run {
            true => connect::open_for_reading(global).await?,
            false => connect::open_for_changing(global).await?,
        };
        let writer = Writer::new(store, dry_run);
        warn_if_locked(&writer).await;
        Ok(writer)
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn is_gone(&self, record: &Record) -> bool {
        self.dry_run && self.gone.borrow().contains(&record.key)
    }
}

/// What became of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Created,
    Replaced,
    /// It already was as wanted; nothing was written.
    Unchanged,
    Deleted,
    /// It existed, or did not, and the operator said that this does not matter.
    Skipped,
}

impl Done {
    /// As a line of a dry run shows it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Done::Created => "created",
            Done::Replaced => "replaced",
            Done::Unchanged => "unchanged",
            Done::Deleted => "deleted",
            Done::Skipped => "skipped",
        }
    }
}

/// Why a resource was not written. Callers tell all but the last apart.
#[derive(Debug)]
pub(crate) enum WriteError {
    Exists(Named),
    Missing(Named),
    /// Someone else changed a record between our reading and our writing it.
    Overtaken(StoreError),
    Other(Failure),
}

impl WriteError {
    /// Says what was being done; a lost race stays one.
    fn within(self, message: &str) -> WriteError {
        match self {
            WriteError::Other(failure) => WriteError::Other(failure.within(message)),
            error => error,
        }
    }

    pub(crate) fn into_failure(self) -> Failure {
        match self {
            WriteError::Exists(named) => Failure::new(format!("resource already exists: {named}"))
                .in_calicoctl(format!("resource already exists: {named} with error: <nil>")),
            WriteError::Missing(named) => named.missing(),
            WriteError::Overtaken(error) => {
                let said = match &error {
                    StoreError::Conflict { current } => Some(format!("update conflict: {}", current.key)),
                    _ => None,
                };
                let failure = Failure::from(error);
                match said {
                    Some(said) => failure.in_calicoctl(said),
                    None => failure,
                }
            }
            WriteError::Other(failure) => failure,
        }
    }
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> WriteError {
        if error.is_lost_race() { WriteError::Overtaken(error) } else { WriteError::Other(error.into()) }
    }
}

impl From<Failure> for WriteError {
    fn from(failure: Failure) -> WriteError {
        WriteError::Other(failure)
    }
}

/// Counts tries. `again` waits and says whether another is due.
#[derive(Debug, Default)]
pub(crate) struct Tries(u32);

impl Tries {
    pub(crate) async fn again(&mut self) -> bool {
        self.0 += 1;
        if self.0 >= TRIES {
            return false;
        }
        tokio::time::sleep(PAUSE_BETWEEN_TRIES * self.0).await;
        true
    }
}
