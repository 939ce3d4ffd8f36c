//! Puts right what writers of IPAM records have left that were interrupted: soon after the start, and now and then from then on.
//!
//! The agent sees its own node's claims and releases and finishes those at once (`book`'s `tend.rs`). Handles that count too much show
//! only where all handles are read, so that is done where there are few; elsewhere `plumb ipam check` finds them. On stores with
//! transactions nothing is left half done.

use std::time::Duration;

use book::{Book, Looks, Recovery};
use tracing::{debug, info, warn};

use crate::pause::up_to;
use crate::services::Agent;

/// A page of a list. Every agent of a cluster reads as many.
const HANDLES_MAX: usize = 1000;
/// The agents of a cluster often start together.
const FIRST_WITHIN: Duration = Duration::from_secs(600);
const LABEL_TIMEOUT: Duration = Duration::from_secs(15);
const LABEL_EVERY: Duration = Duration::from_secs(30);
const EVERY: Duration = Duration::from_secs(6 * 3600);

/// Ends only where there is nothing to do.
pub(crate) async fn keep(agent: &Agent, mut is_labelled: bool) {
    let Some(book) = agent.book.get() else { return };
    while !is_labelled {
        tokio::time::sleep(LABEL_EVERY / 2 + up_to(LABEL_EVERY)).await;
        is_labelled = label_affinities(book, &agent.node).await;
    }
    if book.store().capabilities().atomic_commits {
        return;
    }
    book.in_sync().await;
    tokio::time::sleep(up_to(FIRST_WITHIN)).await;
    loop {
        match book.recover_if_few(Looks::default(), HANDLES_MAX).await {
            Ok(Some(recovery)) => report(&recovery),
            Ok(None) => debug!("too many handles to read them all; `plumb ipam check` does"),
            Err(error) => debug!(%error, "cannot look for what interrupted writers have left"),
        }
        tokio::time::sleep(EVERY + up_to(FIRST_WITHIN)).await;
    }
}

/// The node's blocks must be found before the first ADD claims another one: affinities that Calico wrote before 3.31 lack the labels
/// for that. Whether all have them now.
pub(crate) async fn label_affinities(book: &Book, node: &str) -> bool {
    match tokio::time::timeout(LABEL_TIMEOUT, book.label_affinities(node)).await {
        Ok(Ok(0)) => return true,
        Ok(Ok(count)) => {
            info!(count, "labelled affinities of this node that an earlier release of Calico wrote");
            return true;
        }
        Ok(Err(error)) => warn!(%error, "cannot label this node's affinities; retrying"),
        Err(_) => warn!("cannot label this node's affinities in time; retrying"),
    }
    false
}

fn report(recovery: &Recovery) {
    for fault in &recovery.repaired {
        info!(?fault, "fixed what an interrupted writer has left in the IPAM records");
    }
}
