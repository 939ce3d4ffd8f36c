//! Removes links that are out of service, when nothing else is going on.
//!
//! Removing takes the kernel tens of milliseconds, in which calls would wait. And most runtimes remove a pod's
//! namespace right after its DEL, which takes the link along for nothing.

use std::time::Duration;

use host::Host;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::cni::Services;
use crate::failpoint::{self, Point};

/// How long it must be quiet.
const QUIET: Duration = Duration::from_millis(300);
/// However busy the node is, nothing waits longer.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Begins with what an earlier agent left; never ends.
pub(super) async fn run(services: &Services) {
    let agent = services.agent().expect("only the agent sweeps");
    loop {
        failpoint::hit(Point::SweepBefore);
        // With a socket of its own, on another thread than calls.
        match tokio::task::spawn_blocking(|| Host::here()?.sweep()).await {
            Ok(Ok(swept)) if swept.links.is_empty() => {}
            Ok(Ok(swept)) => debug!("removed {} devices that were out of service", swept.links.len()),
            Ok(Err(error)) => warn!("devices that are out of service stay for now: {error}"),
            Err(error) => warn!("devices that are out of service stay for now: {error}"),
        }
        failpoint::hit(Point::SweepAfter);
        agent.sweep.notified().await;
        wait_for_quiet(services).await;
    }
}

async fn wait_for_quiet(services: &Services) {
    let deadline = Instant::now() + WAIT_MAX;
    while Instant::now() < deadline {
        let before = services.calls_begun();
        tokio::time::sleep(QUIET).await;
        if services.calls_begun() == before {
            return;
        }
    }
}
