//! Giving back what nobody wants any more: of callers who went away, of assignments that stopped halfway.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipam::{HandleRelease, Owner};
use model::Key;
use model::ipam::BlockAttribute;
use store::{Change, StoreError};
use tracing::{debug, warn};

use crate::book::Inner;
use crate::carry::Commit;
use crate::look::{Reader, read_records};
use crate::patience::Patience;
use crate::{Addition, BookError};

/// How long to wait for a store that is not there before the next try.
const UNREACHABLE_DELAY: Duration = Duration::from_millis(500);

/// Addresses that an owner may have got, and the changes that went with them.
#[derive(Clone, Debug)]
pub(crate) struct Unwanted {
    pub(crate) owner: Owner,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) additions: Vec<Addition>,
    /// Nothing is under way any more that could still give it something.
    pub(crate) is_settled: bool,
}

impl Unwanted {
    /// Gives back what an attempt got before it was stopped. Whoever tries again waits for that. If the store does not answer any
    /// more it goes on behind the scenes, and an error now is better than one later.
    pub(crate) async fn take_back(self, inner: &Arc<Inner>) -> Result<(), BookError> {
        let given_back = give_back(inner, &self, Waits::No).await;
        if given_back.is_err() {
            self.spawn(inner);
        }
        given_back
    }

    /// Gives it back behind the scenes.
    pub(crate) fn spawn(self, inner: &Arc<Inner>) {
        Unwanted::spawn_all(vec![self], inner);
    }

    /// Of several that share their blocks, one after the other: beside each other they would only defeat each other.
    pub(crate) fn spawn_all(all: Vec<Unwanted>, inner: &Arc<Inner>) {
        if all.is_empty() {
            return;
        }
        let inner = Arc::clone(inner);
        tokio::spawn(async move {
            for unwanted in all {
                let (handle, addresses) = (&unwanted.owner.handle, &unwanted.addresses);
                match give_back(&inner, &unwanted, Waits::Yes).await {
                    Ok(()) => debug!("{handle}: gave back {addresses:?}, which nobody waits for"),
                    Err(error) => warn!("{handle} may hold {addresses:?}, which nobody uses: {error}"),
                }
            }
        });
    }
}

/// Whether to wait for a store that does not answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Yes,
    No,
}

/// Gives it back, as far as it is still there and still the same.
async fn give_back(inner: &Inner, unwanted: &Unwanted, waits: Waits) -> Result<(), BookError> {
    let mut patience = Patience::new(inner.settings.patience);
    loop {
        match attempt(inner, unwanted).await {
            Ok(()) => return Ok(()),
            Err(error)
                if waits == Waits::Yes
                    && matches!(*error, StoreError::Unreachable { .. })
                    && !patience.is_exhausted() =>
            {
                tokio::time::sleep(UNREACHABLE_DELAY).await;
            }
            Err(error) => {
                patience.check_shared(&error)?;
                tokio::time::sleep(patience.delay()).await;
            }
        }
    }
}

async fn attempt(inner: &Inner, unwanted: &Unwanted) -> Result<(), Arc<StoreError>> {
    let attributes = &unwanted.owner.attributes;
    let is_meant = |address, attribute: &BlockAttribute, _| {
        unwanted.addresses.contains(&address) && attribute.secondary == *attributes
    };
    // Never used, so there is nothing to cool down from.
    let mut release = HandleRelease::new(unwanted.owner.handle.as_str(), is_meant, None);
    if unwanted.is_settled {
        release = release.after_own_failure();
    }
    let released = match Reader::new(&inner.store).decide(&mut release).await {
        Ok(released) => released,
        Err(BookError::Store(error)) => return Err(error),
        Err(error) => unreachable!("a release refuses nothing: {error}"),
    };
    let additions = undone(inner, &unwanted.additions).await?;
    let commit = Commit { steps: Some(&released.steps), additions, ..Commit::default() };
    let written = commit.carry_out(&inner.store).await.map_err(|stopped| Arc::new(stopped.error))?;
    inner.forget(written.into_iter().map(|written| written.key));
    Ok(())
}

async fn undone(inner: &Inner, additions: &[Addition]) -> Result<Vec<Change>, StoreError> {
    let keys = additions.iter().map(|addition| addition.key().clone()).collect();
    let found = read_records(&inner.store, keys).await?;
    let record = |addition: &Addition| found.get(addition.key()).and_then(Option::as_ref);
    let undone = additions.iter().filter_map(|addition| addition.undo(record(addition)));
    // Several attempts may have wanted the same.
    let by_key: BTreeMap<Key, Change> = undone.map(|change| (change.key.clone(), change)).collect();
    Ok(by_key.into_values().collect())
}
