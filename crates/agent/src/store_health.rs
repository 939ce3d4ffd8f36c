//! Whether the store can be used: asked every two seconds, for readiness, STATUS, the metrics and the doctor.
//!
//! Nothing else notices at once: watches mend their connections in silence, and an idle node commits nothing for hours.

use std::time::Duration;

use store::{Store, StoreError};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::health::Health;

const EVERY: Duration = Duration::from_secs(2);
/// Longer than a busy store takes, and short enough that whoever probes the agent hears of it within seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks again and again; never ends.
pub(crate) async fn watch(health: &Health, store: &dyn Store) {
    loop {
        report(health, ask(store).await);
        sleep(EVERY).await;
    }
}

async fn ask(store: &dyn Store) -> Option<String> {
    match timeout(PATIENCE, store.probe()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(words(&error)),
        Err(_) => Some(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

/// Says what changed, once.
pub(crate) fn report(health: &Health, problem: Option<String>) {
    match (&problem, health.store_problem()) {
        (Some(problem), None) => warn!("the store cannot be used: {problem}"),
        (None, Some(_)) => info!("the store can be used again"),
        _ => {}
    }
    health.set_store_problem(problem);
}

/// The error with its causes, and what to do about it.
pub(crate) fn words(error: &StoreError) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
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
    async fn what_the_store_says_is_what_is_reported() {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        assert_eq!(ask(&*memory).await, None);
        let failing = FailingStore::new(memory, Failure::End, 0);
        let _ = failing.commit(vec![Change::create(model::Key::Handle("h".to_owned()), "x")]).await;
        let problem = ask(&failing).await.expect("it does not answer");
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
