//! Removes links that are out of service, while no call is in progress.
//!
//! Removing takes the kernel tens of milliseconds, in which calls would wait. And most runtimes remove a pod's namespace right after its DEL,
//! which removes the link at no cost.

use std::time::Duration;

use host::Host;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::failpoint::{self, Point};
use crate::services::Agent;

/// How long there must be no call.
const QUIET: Duration = Duration::from_millis(300);
/// The longest that a link waits for its removal, however busy the node is.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Begins with the links that an earlier agent left; never ends.
pub(super) async fn run(agent: &Agent) {
    loop {
        failpoint::hit(Point::SweepBefore);
        // With a socket of its own, on another thread than calls.
        match tokio::task::spawn_blocking(|| Host::here()?.sweep()).await {
            Ok(Ok(swept)) if swept.links.is_empty() => {}
            Ok(Ok(swept)) => debug!(devices = swept.links.len(), "removed devices that were out of service"),
            Ok(Err(error)) => {
                warn!(%error, "cannot remove the devices that are out of service; retrying later")
            }
            Err(error) => warn!(%error, "cannot remove the devices that are out of service; retrying later"),
        }
        failpoint::hit(Point::SweepAfter);
        agent.sweep.notified().await;
        wait_for_quiet(agent).await;
    }
}

async fn wait_for_quiet(agent: &Agent) {
    let deadline = Instant::now() + WAIT_MAX;
    while Instant::now() < deadline {
        let before = agent.calls_begun();
        tokio::time::sleep(QUIET).await;
        if agent.calls_begun() == before {
            return;
        }
    }
}
