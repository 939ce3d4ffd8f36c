//! Whether the store can be used: probed every few seconds, for readiness, STATUS, the metrics and the doctor.
//!
//! Nothing else notices at once: watches reconnect silently, and an idle node commits nothing for hours.

use std::time::Duration;

use store::{Store, StoreError};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::health::Health;

const PROBE_EVERY: Duration = Duration::from_secs(2);
/// An API server serves every node of a cluster, and much else. The kubelets renew their leases as often.
const PROBE_API_SERVER_EVERY: Duration = Duration::from_secs(10);
/// Longer than a busy store takes, and short enough that readiness shows it within seconds.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Probes again and again; never ends.
pub(crate) async fn watch(health: &Health, store: &dyn Store) {
    let is_kubernetes = !store.capabilities().endpoints_are_records;
    let every = if is_kubernetes { PROBE_API_SERVER_EVERY } else { PROBE_EVERY };
    loop {
        report(health, probe(store).await);
        sleep(every).await;
    }
}

async fn probe(store: &dyn Store) -> Option<String> {
    match timeout(TIMEOUT, store.probe()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(describe(&error)),
        Err(_) => Some(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}

/// Logs each change once.
pub(crate) fn report(health: &Health, problem: Option<String>) {
    match (&problem, health.store_problem()) {
        (Some(problem), None) => warn!(%problem, "cannot use the store"),
        (None, Some(_)) => info!("can use the store again"),
        _ => {}
    }
    health.set_store_problem(problem);
}

/// The error with its causes, and what to do about it.
pub(crate) fn describe(error: &StoreError) -> String {
    let words = model::text::on_one_line(error);
    match error.hint() {
        Some(hint) => format!("{words} ({hint})"),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use store::wrap::{FailingStore, Failure};
    use store::{Change, MemoryStore};

    use super::*;

    #[tokio::test]
    async fn the_stores_error_is_reported() {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        assert_eq!(probe(&*memory).await, None);
        let failing = FailingStore::new(memory, Failure::End, 0);
        let _ = failing.commit(vec![Change::create(model::Key::Handle("h".into()), "x")]).await;
        let problem = probe(&failing).await.expect("it does not answer");
        assert!(
            problem.starts_with("cannot reach the store at the store: it fails on purpose ("),
            "{problem}"
        );

        let health = Health::new();
        report(&health, Some(problem.clone()));
        assert_eq!(health.store_problem(), Some(problem));
        assert!(health.is_store_away());
        report(&health, None);
        assert_eq!((health.store_problem(), health.is_store_away()), (None, false));
    }
}
