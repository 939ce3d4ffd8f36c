//! The nftables rules that restrict pods to their own addresses: loaded before the first pod is served, and again whenever somebody
//! removes them. They need no records, so they are there while the store is not; once the records are known, `between` replaces them
//! together with the rest of our table.

use std::error::Error as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use doctor::mended;
use host::{Host, HostError, Monitor, RulesTouched};
use plan::between::{BetweenSettings, PodGuard};
use tracing::{info, warn};

use crate::cni::Services;
use crate::felix::FelixEnvironment;

/// Changes are announced; this is for what was not.
const LOOK_EVERY: Duration = Duration::from_secs(60);
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// With Felix's variables of this process. Records are not known to everybody who needs the rules.
pub(crate) fn ruleset() -> String {
    let settings = BetweenSettings::read(None, FelixEnvironment::read().before(None).as_ref(), None);
    PodGuard::new(&settings).alone()
}

/// Loads them before anybody is served. What fails is said, tried again, and refused to pods until then.
pub(crate) async fn start(services: &Services) {
    if let Ok(true) = ensure(services).await {
        info!("pods are restricted to their own addresses");
    }
}

/// Never ends.
pub(crate) async fn keep(services: &Services) {
    let mut monitor = Monitor::open_rules()
        .inspect_err(|error| warn!("changes of nftables are not announced: {error}; checking every minute"))
        .ok();
    loop {
        let outcome = ensure(services).await;
        if let Some(agent) = services.agent() {
            if let Ok(true) = outcome {
                let words =
                    "the rules that restrict pods to their own addresses were gone; loaded them again";
                services.health().mended(&mended::pod_guard(&agent.node), words);
            }
            agent.rules_touched.notify_one();
        }
        let pause = if outcome.is_ok() { LOOK_EVERY } else { RETRY_DELAY };
        tokio::select! {
            heard = hear(&mut monitor) => {
                if let Err(error) = heard {
                    warn!("changes of nftables are no longer announced: {error}; checking every minute");
                    monitor = None;
                }
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn hear(monitor: &mut Option<Monitor<RulesTouched>>) -> Result<(), HostError> {
    match monitor {
        Some(monitor) => monitor.next(|_| {}).await,
        None => std::future::pending().await,
    }
}

/// Whether they were missing.
async fn ensure(services: &Services) -> Result<bool, HostError> {
    let outcome = services.in_kernel(|host: &mut Host| host.ensure_pod_guard(ruleset)).await;
    services.metrics().pod_guard_missing.store(i64::from(outcome.is_err()), Ordering::Relaxed);
    let problem = outcome.as_ref().err().map(|error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}; no pod can be added until they are loaded")
    });
    if let Some(problem) = &problem {
        services.say_once(problem.clone());
    }
    services.health().set_rules_missing(problem);
    outcome
}
