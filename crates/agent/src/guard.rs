//! The nftables rules that restrict pods to their own addresses: loaded before the first pod is served, and again if another program removes
//! them. They need no records, so they do not wait for the store; once the records are cached, `between` replaces them together with the rest of
//! our table.

use std::time::Duration;

use doctor::mended;
use host::{Host, HostError, Monitor, RulesTouched};
use plan::between::{ChainUses, PodGuard};
use store::{Store, StoreError};
use tracing::{info, warn};

use crate::felix::{self, FelixEnvironment};
use crate::services::{Agent, Services};

/// The kernel announces changes; this is for announcements that were lost.
const CHECK_EVERY: Duration = Duration::from_secs(60);
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The rules that must be loaded, and how to see that they are.
#[derive(Debug)]
pub(crate) struct WantedGuard {
    guard: PodGuard,
    chains: Vec<ChainUses>,
}

impl WantedGuard {
    /// For a call on a node. A single call reads the settings.
    pub(crate) async fn of_call(
        services: Services<'_>,
        store: &dyn Store,
        node: &str,
    ) -> Result<WantedGuard, StoreError> {
        match services.agent() {
            Some(agent) => Ok(WantedGuard::of(agent)),
            None => Ok(WantedGuard::exactly(PodGuard::new(&felix::read_settings(store, node).await?))),
        }
    }

    /// By the records, once the agent has cached them. One that starts has only Felix's variables of its process, but what an earlier one
    /// loaded by the records stays until this one knows them.
    fn of(agent: &Agent) -> WantedGuard {
        match agent.routes.get().and_then(|cache| cache.pod_guard()) {
            Some(guard) => WantedGuard::exactly(guard),
            None => {
                let settings = FelixEnvironment::read().settings(None, None, None);
                WantedGuard { guard: PodGuard::new(&settings), chains: PodGuard::least_uses() }
            }
        }
    }

    fn exactly(guard: PodGuard) -> WantedGuard {
        WantedGuard { chains: guard.uses(), guard }
    }

    /// Loads what is missing. Says whether something was.
    pub(crate) fn ensure(&self, host: &mut Host) -> Result<bool, HostError> {
        host.ensure_pod_guard(&self.chains, || self.guard.alone())
    }
}

/// Loads them before any call is served. After a failure it tries again, and ADDs fail until then.
pub(crate) async fn start(agent: &Agent) {
    if let Ok(true) = ensure(agent).await {
        info!("loaded the rules that restrict pods to their own addresses");
    }
}

/// Never ends.
pub(crate) async fn keep(agent: &Agent) {
    let mut monitor = Monitor::open_rules()
        .inspect_err(|error| warn!(%error, "cannot listen to nftables changes; checking every minute"))
        .ok();
    loop {
        let outcome = ensure(agent).await;
        if let Ok(true) = outcome {
            let words = "loaded the rules that restrict pods to their own addresses again";
            agent.health.record_fix(&mended::pod_guard(&agent.node), words);
        }
        agent.rules_touched.notify_one();
        let pause = if outcome.is_ok() { CHECK_EVERY } else { RETRY_DELAY };
        tokio::select! {
            touched = touched(&mut monitor) => {
                if let Err(error) = touched {
                    warn!(%error, "cannot listen to nftables changes any more; checking every minute");
                    monitor = None;
                }
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn touched(monitor: &mut Option<Monitor<RulesTouched>>) -> Result<(), HostError> {
    match monitor {
        Some(monitor) => monitor.next(|_| {}).await,
        None => std::future::pending().await,
    }
}

/// Whether they were missing.
async fn ensure(agent: &Agent) -> Result<bool, HostError> {
    let wanted = WantedGuard::of(agent);
    let outcome = agent.in_kernel(move |host: &mut Host| wanted.ensure(host)).await;
    agent.metrics().pod_guard_missing.set_flag(outcome.is_err());
    let problem = outcome
        .as_ref()
        .err()
        .map(|error| format!("{}; ADDs fail until the rules are loaded", model::text::on_one_line(error)));
    if let Some(problem) = &problem {
        agent.warn_once(problem.clone());
    }
    agent.health.set_rules_missing(problem);
    outcome
}
