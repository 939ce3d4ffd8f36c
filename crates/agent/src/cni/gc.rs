//! GC: a DEL for every attachment of the network that the runtime does not list, unless it has the sandbox after all.

use std::collections::BTreeSet;

use model::Sandbox;
use tracing::{info, warn};

use super::error::{CniError, code};
use super::netconf::NetConf;
use super::{CallRequest, Services, del, delegate, records};
use crate::collect;
use crate::failpoint::{self, Point};

pub(super) async fn run(
    netconf: &NetConf,
    message: &CallRequest,
    services: &Services,
) -> Result<(), CniError> {
    // Without the list, everything would have to go. That is never meant by saying nothing.
    let listed = netconf.valid_attachments.as_ref().ok_or_else(|| {
        CniError::configuration("GC needs cni.dev/valid-attachments, the attachments that are to stay")
    })?;
    failpoint::hit(Point::GcStart);
    let listed: BTreeSet<(&str, &str)> =
        listed.iter().map(|(container, interface)| (container.as_str(), interface.as_str())).collect();
    let mut known = collect::known_sandboxes(netconf, services).await?;
    known.retain(|sandbox| {
        sandbox.network() == netconf.name && !listed.contains(&(sandbox.container_id(), sandbox.interface()))
    });
    let problems = remove(known, netconf, services).await;
    failpoint::hit(Point::GcEnd);
    let delegated =
        delegate::forward_as_it_is(netconf.ipam.other.as_deref(), &message.environment, &message.config)
            .await;
    if problems.is_empty() {
        return delegated;
    }
    Err(CniError::new(code::TRY_LATER, "not everything could be removed").hint(problems.join("; ")))
}

/// Goes on after a failure, and says them all.
async fn remove(unlisted: BTreeSet<Sandbox>, netconf: &NetConf, services: &Services) -> Vec<String> {
    let mut problems = Vec::new();
    if unlisted.is_empty() {
        return problems;
    }
    let runtime = services.sandboxes().await;
    for sandbox in unlisted {
        if runtime.as_ref().is_some_and(|runtime| runtime.is_ready(sandbox.container_id())) {
            warn!("{sandbox} is not in the runtime's list, but the runtime says it is ready; it stays");
            continue;
        }
        failpoint::hit(Point::GcBeforeRelease);
        match remove_one(&sandbox, netconf, services).await {
            Ok(()) => info!("{sandbox} is not in the runtime's list any more; removed"),
            Err(error) => problems.push(format!("{sandbox}: {error}")),
        }
        failpoint::hit(Point::GcAfterRelease);
    }
    problems
}

async fn remove_one(sandbox: &Sandbox, netconf: &NetConf, services: &Services) -> Result<(), CniError> {
    let _fenced = services.fences().enter(sandbox).await;
    del::detach(sandbox, None, services).await?;
    failpoint::hit(Point::GcDetached);
    services.forget(sandbox)?;
    failpoint::hit(Point::GcForgotten);
    if let Some(book) = services.existing_book_if_any(netconf).await? {
        records::release(&book, sandbox, None, None).await?;
    }
    Ok(())
}
