//! DEL: the kernel first, then the records, all of it fenced by the sandbox. What is gone already is done, and what
//! cannot be done now is queued: a DEL always ends.

use std::path::Path;
use std::time::Duration;

use book::Book;
use model::{Key, Sandbox};
use tracing::{info, warn};

use super::endpoint::EndpointId;
use super::error::{CniError, code};
use super::services::Found;
use super::{Call, Services, delegate, records};
use crate::failpoint::{self, Point};

/// Who waits for a DEL, and so for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The runtime. A store that takes longer than a moment is as good as not there: the rest can be queued. And one
    /// that did not answer the last time is not waited for at all, until it has answered somebody who has time.
    Runtime,
    /// Nobody, or somebody who cannot go on without the store.
    Queue,
}

impl Waiting {
    fn patience(self) -> Duration {
        match self {
            Waiting::Runtime => Duration::from_secs(2),
            Waiting::Queue => Duration::from_secs(8),
        }
    }
}

pub(super) async fn run(call: &Call, services: &Services) -> Result<(), CniError> {
    failpoint::hit(Point::DelStart);
    let _fenced = services.fences().enter(&call.sandbox).await;
    failpoint::hit(Point::DelFenced);
    if let Err(error) = finish(call, services, Waiting::Runtime).await {
        if error.is_of_request() {
            return Err(error);
        }
        failpoint::hit(Point::DelBeforeQueue);
        services.queue().keep(&call.message).map_err(|problem| {
            let message = format!("{}, and the DEL cannot be queued", error.message);
            warn!(sandbox = %call.sandbox, "{message}: {problem}");
            CniError::new(code::TRY_LATER, message).because(&problem)
        })?;
        warn!(sandbox = %call.sandbox, "the DEL is queued: {error}");
        services.count_queued();
        failpoint::hit(Point::DelAfterQueue);
    }
    failpoint::hit(Point::DelBeforeAnswer);
    Ok(())
}

/// Everything that a DEL has to do. To be called inside the sandbox's fence.
pub(super) async fn finish(call: &Call, services: &Services, waiting: Waiting) -> Result<(), CniError> {
    // An address must not be free while something still answers to it.
    failpoint::hit(Point::DelBeforeKernel);
    detach(&call.sandbox, call.request.netns.as_deref(), services).await?;
    failpoint::hit(Point::DelAfterKernel);
    // From now on nothing of it is to be kept up in the kernel, whenever the records follow.
    failpoint::hit(Point::DelBeforeJournal);
    services.forget(&call.sandbox)?;
    failpoint::hit(Point::DelAfterJournal);
    failpoint::hit(Point::DelBeforeRecords);
    release_in_time(call, services, waiting).await?;
    failpoint::hit(Point::DelAfterRecords);
    Ok(())
}

/// Takes what the sandbox has in the kernel out of service.
pub(super) async fn detach(
    sandbox: &Sandbox,
    netns: Option<&Path>,
    services: &Services,
) -> Result<(), CniError> {
    let device = services.journal().and_then(|journal| journal.get(sandbox));
    let device = device.map(|entry| entry.attachment.device);
    let (owner, netns) = (sandbox.clone(), netns.map(Path::to_owned));
    let detached = services.in_kernel_here(move |host| {
        // A namespace that is gone, or is none, has nothing to be freed.
        let mut pod = netns.and_then(|path| host.open_pod(&path).ok());
        host.detach(&owner, device.as_ref(), pod.as_mut())
    });
    let detached = detached.await??;
    for link in &detached.links {
        info!("took {} of {sandbox} out of service", link.name);
    }
    if let Some(problem) = &detached.left_inside {
        warn!("the name of {sandbox}'s interface is not free yet: {problem}");
    }
    if !detached.links.is_empty() {
        services.sweep().await;
    }
    Ok(())
}

async fn release_in_time(call: &Call, services: &Services, waiting: Waiting) -> Result<(), CniError> {
    if waiting == Waiting::Runtime && services.health().is_store_away() {
        return Err(CniError::new(code::TRY_LATER, "the store is away"));
    }
    let patience = waiting.patience();
    let released = tokio::time::timeout(patience, release(call, services)).await;
    match &released {
        Ok(Ok(())) => services.health().set_store_away(false),
        // It refused, which says little about the next one.
        Ok(Err(_)) => {}
        Err(_) => services.health().set_store_away(true),
    }
    released.unwrap_or_else(|_| {
        let message = format!("the store did not answer within {} s", patience.as_secs());
        Err(CniError::new(code::TRY_LATER, message))
    })
}

async fn release(call: &Call, services: &Services) -> Result<(), CniError> {
    // Whatever another plugin says, our own records do not wait for it; and it is asked again.
    let given_back =
        delegate::give_back(call).await.map_err(|error| CniError { code: code::ADDRESSES, ..error });
    release_records(call, services).await?;
    given_back
}

async fn release_records(call: &Call, services: &Services) -> Result<(), CniError> {
    match services.existing_book(&call.netconf).await? {
        Found::Book(book) => release_in(&book, &call.sandbox, endpoint_key(call, services), services).await,
        Found::NoStore(reason) => {
            info!("{reason}, so nothing is recorded");
            Ok(())
        }
    }
}

/// By what the agent knows of the endpoint, if it knows it, else by looking.
async fn release_in(
    book: &Book,
    sandbox: &Sandbox,
    key: Option<Key>,
    services: &Services,
) -> Result<(), CniError> {
    let known = key.as_ref().and_then(|key| services.agent()?.endpoints.record_of(key, sandbox));
    if let Some(endpoint) = known
        && records::release_known(book, sandbox, &endpoint).await?
    {
        return Ok(());
    }
    records::release(book, sandbox, key, None).await
}

/// Where the endpoint is recorded if node and pod are still called the same.
fn endpoint_key(call: &Call, services: &Services) -> Option<Key> {
    let node = services.node_name(&call.netconf).ok()?;
    EndpointId::new(&node, call.request.pod.as_ref(), &call.sandbox).key().ok()
}

/// A DEL without a call: for what has no owner. To be called inside the sandbox's fence.
pub(super) async fn remove(
    sandbox: &Sandbox,
    endpoint: Option<Key>,
    services: &Services,
) -> Result<(), CniError> {
    detach(sandbox, None, services).await?;
    failpoint::hit(Point::CollectDetached);
    services.forget(sandbox)?;
    failpoint::hit(Point::CollectForgotten);
    if let Some(book) = services.agent().and_then(|agent| agent.book.get()) {
        release_in(book, sandbox, endpoint, services).await?;
    }
    Ok(())
}
