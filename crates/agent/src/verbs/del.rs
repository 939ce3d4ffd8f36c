//! DEL: the kernel first, then the records, all of it fenced by the sandbox. What is gone already is done, and what cannot be done now is
//! queued, so a DEL always ends.

use std::path::Path;
use std::time::Duration;

use book::Book;
use model::{Key, Sandbox};
use tracing::{info, warn};

use wire::Role;

use super::endpoint::{EndpointId, Keeping};
use super::error::{CniError, code};
use super::gateways::{self, Fence};
use super::{Call, address_role, backend, delegate, old_handles, ready, records};
use crate::failpoint::{self, Point};
use crate::services::{Agent, FoundBook, Services};

/// The runtime waits for it, after a DEL that took all of its time.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Which attempt at a DEL this is, and so how long it waits for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The runtime waits for it, and the rest can be queued. After a store that did not answer, the next DELs do not wait at all until it has
    /// answered a retry.
    First,
    /// Nobody waits for it, or an ADD that cannot go on without the store.
    Retry,
}

impl Attempt {
    fn store_timeout(self) -> Duration {
        match self {
            Attempt::First => Duration::from_secs(2),
            Attempt::Retry => Duration::from_secs(8),
        }
    }
}

pub(super) async fn run(call: &Call, services: Services<'_>) -> Result<(), CniError> {
    failpoint::hit(Point::DelStart);
    let _locked = services.locks.acquire(&call.sandbox).await;
    failpoint::hit(Point::DelFenced);
    if call.netconf.calico.del_fails_while_locked {
        refuse_while_locked(call, services).await?;
    }
    if let Err(error) = execute(call, services, Attempt::First).await {
        if error.is_permanent() {
            return Err(error);
        }
        failpoint::hit(Point::DelBeforeQueue);
        services.queue.add(&call.message).map_err(|problem| {
            let message = format!("{}, and cannot queue the DEL", error.message);
            warn!(sandbox = %call.sandbox, error = %problem, "{message}");
            CniError::new(code::TRY_LATER, message).because(&problem)
        })?;
        warn!(sandbox = %call.sandbox, %error, "queued the DEL");
        services.metrics().dels_queued.increment();
        failpoint::hit(Point::DelAfterQueue);
    }
    failpoint::hit(Point::DelBeforeAnswer);
    Ok(())
}

/// As Calico does it: nothing changes.
async fn refuse_while_locked(call: &Call, services: Services<'_>) -> Result<(), CniError> {
    match services.existing_book(&call.netconf).await? {
        FoundBook::Book(book) => ready::check(&call.netconf, &book).await,
        FoundBook::NoStore(_) => Ok(()),
    }
}

/// Everything that a DEL has to do. To be called with the sandbox locked.
pub(super) async fn execute(call: &Call, services: Services<'_>, attempt: Attempt) -> Result<(), CniError> {
    // An address must not be free while something still answers to it.
    failpoint::hit(Point::DelBeforeKernel);
    match &call.netconf.calico.backend {
        Some(backend) => backend::del(call, backend).await?,
        None => detach(&call.sandbox, call.request.netns.as_deref(), services).await?,
    }
    failpoint::hit(Point::DelAfterKernel);
    // From now on the reconciler must not restore anything of it, whenever the records follow.
    failpoint::hit(Point::DelBeforeJournal);
    services.forget(&call.sandbox)?;
    failpoint::hit(Point::DelAfterJournal);
    failpoint::hit(Point::DelBeforeRecords);
    release_in_time(call, services, attempt).await?;
    failpoint::hit(Point::DelAfterRecords);
    Ok(())
}

/// Takes the sandbox's devices in the kernel out of service.
pub(super) async fn detach(
    sandbox: &Sandbox,
    netns: Option<&Path>,
    services: Services<'_>,
) -> Result<(), CniError> {
    let device = services.journal().and_then(|journal| journal.get(sandbox));
    let device = device.map(|entry| entry.attachment.device);
    let (owner, netns) = (sandbox.clone(), netns.map(Path::to_owned));
    let detached = services.in_kernel_here(move |host| {
        // A path without a namespace behind it: there is nothing to free in there.
        let mut pod = netns.and_then(|path| host.open_pod(&path).ok());
        host.detach(&owner, device.as_ref(), pod.as_mut())
    });
    let detached = detached.await??;
    for link in &detached.links {
        info!(%sandbox, device = link.name, "took the device out of service");
    }
    if let Some(problem) = &detached.left_inside {
        warn!(%sandbox, %problem, "the pod's interface name is still in use");
    }
    if !detached.links.is_empty() {
        services.sweep().await;
    }
    Ok(())
}

async fn release_in_time(call: &Call, services: Services<'_>, attempt: Attempt) -> Result<(), CniError> {
    if attempt == Attempt::First && services.health.is_store_away() {
        return Err(CniError::new(code::TRY_LATER, "the store is unreachable"));
    }
    let timeout = attempt.store_timeout();
    let released = tokio::time::timeout(timeout, release(call, services)).await;
    match &released {
        Ok(Ok(())) => services.health.set_store_away(false),
        // It refused this one, which says little about the next.
        Ok(Err(_)) => {}
        // One record that the store is slow with says little about those of other pods.
        Err(_) => services.health.set_store_away(!does_store_answer(call, services).await),
    }
    released.unwrap_or_else(|_| {
        let message = format!("the store did not answer within {} s", timeout.as_secs());
        Err(CniError::new(code::TRY_LATER, message))
    })
}

async fn does_store_answer(call: &Call, services: Services<'_>) -> bool {
    let probe = async {
        let Ok(FoundBook::Book(book)) = services.existing_book(&call.netconf).await else { return false };
        book.store().probe().await.is_ok()
    };
    tokio::time::timeout(PROBE_TIMEOUT, probe).await.unwrap_or(false)
}

async fn release(call: &Call, services: Services<'_>) -> Result<(), CniError> {
    // Our own records do not wait for what another plugin answers; a retry asks it again.
    let delegated =
        delegate::release(call).await.map_err(|error| CniError { code: code::ADDRESSES, ..error });
    release_records(call, services).await?;
    delegated
}

async fn release_records(call: &Call, services: Services<'_>) -> Result<(), CniError> {
    match services.existing_book(&call.netconf).await? {
        FoundBook::Book(book) if call.message.role == Role::Ipam && address_role::has_gateways(call) => {
            let fence = Fence::wait(services).await;
            release_from(&book, call, services).await?;
            let node = services.node_name(&call.netconf)?;
            gateways::release_unused(&call.netconf.name, &node, &book, &fence).await
        }
        FoundBook::Book(book) => release_from(&book, call, services).await,
        FoundBook::NoStore(reason) => {
            info!(sandbox = %call.sandbox, "no records to remove: {reason}");
            Ok(())
        }
    }
}

async fn release_from(book: &Book, call: &Call, services: Services<'_>) -> Result<(), CniError> {
    let key = endpoint_key(call, book, services);
    match services.agent() {
        Some(agent) => release_in(book, &call.sandbox, key.clone(), agent).await?,
        None => records::release(book, &call.sandbox, key.clone(), None).await?,
    }
    if call.netconf.ipam.other.is_none() && Keeping::of(book) == Keeping::Records {
        old_handles::release(book, call, key.as_ref()).await?;
    }
    Ok(())
}

/// By the agent's cached endpoint, if there is one; otherwise by reading the store.
async fn release_in(book: &Book, sandbox: &Sandbox, key: Option<Key>, agent: &Agent) -> Result<(), CniError> {
    let cached = key.as_ref().and_then(|key| agent.endpoints.record_of(key, sandbox));
    let cached = cached.filter(|record| records::is_sole_owner(record, sandbox));
    if let Some(endpoint) = cached
        && records::release_cached(book, sandbox, endpoint).await?
    {
        return Ok(());
    }
    records::release(book, sandbox, key, None).await
}

/// The key of the endpoint record if node and pod still have the same names.
fn endpoint_key(call: &Call, book: &Book, services: Services<'_>) -> Option<Key> {
    let node = services.node_name(&call.netconf).ok()?;
    let keeping = Keeping::of(book);
    EndpointId::of_call(keeping, &node, call).key().ok()?
}

/// A DEL without a call, for what has no owner. To be called with the sandbox locked.
pub(super) async fn remove_ownerless(
    sandbox: &Sandbox,
    endpoint: Option<Key>,
    agent: &Agent,
) -> Result<(), CniError> {
    detach(sandbox, None, Services::Agent(agent)).await?;
    failpoint::hit(Point::CollectDetached);
    agent.forget(sandbox)?;
    failpoint::hit(Point::CollectForgotten);
    if let Some(book) = agent.book.get() {
        release_in(book, sandbox, endpoint, agent).await?;
    }
    Ok(())
}
