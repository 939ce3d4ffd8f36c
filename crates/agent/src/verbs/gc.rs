//! GC: a DEL for every attachment of the network that the runtime does not list, unless its sandbox is ready after all.

use std::collections::BTreeSet;

use model::Sandbox;
use tracing::{info, warn};

use super::error::{CniError, code};
use super::netconf::NetConf;
use super::{del, delegate, records};
use crate::collect;
use crate::failpoint::{self, Point};
use crate::services::Services;

pub(super) async fn run(
    netconf: &NetConf,
    message: &wire::Call,
    services: Services<'_>,
) -> Result<(), CniError> {
    // A missing list does not mean an empty one: that would remove every pod's network.
    let listed = netconf.valid_attachments.as_ref().ok_or_else(|| {
        CniError::configuration("GC needs cni.dev/valid-attachments, the list of attachments to keep")
    })?;
    failpoint::hit(Point::GcStart);
    let listed: BTreeSet<(&str, &str)> =
        listed.iter().map(|(container, interface)| (container.as_str(), interface.as_str())).collect();
    let mut sandboxes = collect::sandboxes_of_node(netconf, services).await?;
    sandboxes.retain(|sandbox| {
        sandbox.network() == netconf.name && !listed.contains(&(sandbox.container_id(), sandbox.interface()))
    });
    let problems = remove(sandboxes, netconf, services).await;
    failpoint::hit(Point::GcEnd);
    let delegated = delegate::forward_as_it_is(netconf.ipam.other.as_deref(), message).await;
    if problems.is_empty() {
        return delegated;
    }
    Err(CniError::new(code::TRY_LATER, "cannot remove every unlisted attachment").hint(problems.join("; ")))
}

/// Goes on after a failure, and returns them all.
async fn remove(unlisted: BTreeSet<Sandbox>, netconf: &NetConf, services: Services<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    if unlisted.is_empty() {
        return problems;
    }
    let runtime = services.sandboxes().await;
    for sandbox in unlisted {
        if runtime.as_ref().is_some_and(|runtime| runtime.is_ready(sandbox.container_id())) {
            warn!(%sandbox, "GC does not list the sandbox, but the runtime reports it as ready; kept it");
            continue;
        }
        failpoint::hit(Point::GcBeforeRelease);
        match remove_one(&sandbox, netconf, services).await {
            Ok(()) => info!(%sandbox, "removed an attachment that GC does not list"),
            Err(error) => problems.push(format!("{sandbox}: {error}")),
        }
        failpoint::hit(Point::GcAfterRelease);
    }
    problems
}

async fn remove_one(sandbox: &Sandbox, netconf: &NetConf, services: Services<'_>) -> Result<(), CniError> {
    let _locked = services.locks.acquire(sandbox).await;
    del::detach(sandbox, None, services).await?;
    failpoint::hit(Point::GcDetached);
    services.forget(sandbox)?;
    failpoint::hit(Point::GcForgotten);
    if let Some(book) = services.existing_book_if_any(netconf).await? {
        records::release(&book, sandbox, None, None).await?;
    }
    Ok(())
}
