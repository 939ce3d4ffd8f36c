//! DELs that an earlier call could not complete and queued.

use tracing::warn;

use super::Call;
use super::del::{self, Attempt};
use super::error::CniError;
use super::netconf::NetConf;
use super::request::Verb;
use crate::failpoint::{self, Point};
use crate::services::Services;

/// Runs one queued DEL and takes it out of the queue, or says why it cannot be completed yet.
pub(crate) async fn retry(name: &str, message: &wire::Call, services: Services<'_>) -> Result<(), CniError> {
    let call = decode(message)?;
    let _locked = services.locks.acquire(&call.sandbox).await;
    // An ADD of the same sandbox may have run it while it held the lock. A second run would remove that ADD's network.
    if !services.queue.contains(name) {
        return Ok(());
    }
    del::execute(&call, services, Attempt::Retry).await?;
    failpoint::hit(Point::QueueFinished);
    if let Err(error) = services.queue.remove(name) {
        warn!(queued = name, %error, "completed a queued DEL but cannot remove its file");
    }
    failpoint::hit(Point::QueueAfter);
    Ok(())
}

/// Runs the queued DELs of this call's sandbox, which came before the call. To be called with the sandbox locked.
pub(super) async fn run_earlier(call: &Call, services: Services<'_>) -> Result<(), CniError> {
    let failed = |error: std::io::Error| CniError::internal("cannot use the DEL queue").because(&error);
    for (name, message) in services.queue.waiting_for(&call.sandbox).map_err(failed)? {
        failpoint::hit(Point::AddBeforeQueued);
        del::execute(&decode(&message)?, services, Attempt::Retry).await?;
        services.queue.remove(&name).map_err(failed)?;
        failpoint::hit(Point::AddAfterQueued);
    }
    Ok(())
}

fn decode(message: &wire::Call) -> Result<Call, CniError> {
    Call::new(Verb::Del, NetConf::parse(message.config.as_bytes())?, message)
}
