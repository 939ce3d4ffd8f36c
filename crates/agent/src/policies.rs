//! Policies are not enforced yet, and that is never silent: whatever in the store would deny something is said in
//! the log, in the metrics and in this node's record.

use std::sync::atomic::Ordering;
use std::time::Duration;

use model::{Key, KeyRange, Kind, Resource};
use store::{Record, Store, StoreError};
use tracing::{debug, error, info};

use crate::health::Metrics;

const LOOK_EVERY: Duration = Duration::from_secs(300);
/// Where a node's record says it.
const ANNOTATION: &str = "plumbline.io/policies-not-enforced";
/// How many names are shown.
const SHOWN_MAX: usize = 5;

/// Looks now and then; never ends.
pub(crate) async fn watch(store: &dyn Store, node: &str, metrics: &Metrics) {
    let mut said = None;
    loop {
        match unenforced(store).await {
            Ok(found) => {
                metrics
                    .policies_unenforced
                    .store(i64::try_from(found.len()).unwrap_or(i64::MAX), Ordering::Relaxed);
                if said.as_ref() != Some(&found) {
                    say(&found, said.is_some());
                    said = Some(found.clone());
                }
                if let Err(problem) = note(store, node, &found).await {
                    debug!("the node's record does not say which policies are not enforced: {problem}");
                }
            }
            Err(problem) => debug!("policies cannot be looked at: {problem}"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn say(found: &[String], had_some: bool) {
    if found.is_empty() {
        if had_some {
            info!("nothing in the store would deny anything any more");
        }
        return;
    }
    error!(
        policies = found.len(),
        "POLICIES ARE NOT ENFORCED: {}{} would deny traffic and do not",
        found.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", "),
        if found.len() > SHOWN_MAX { " and more" } else { "" },
    );
}

/// Everything that would deny something, by name.
async fn unenforced(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for kind in [Kind::GlobalNetworkPolicy, Kind::NetworkPolicy, Kind::Profile] {
        let (records, _) = store.list_all(KeyRange::Kind(kind)).await?;
        found.extend(
            records.iter().filter(|record| would_deny(record, kind)).map(|record| record.key.to_string()),
        );
    }
    Ok(found)
}

/// What cannot be understood might deny.
fn would_deny(record: &Record, kind: Kind) -> bool {
    let decoded = Resource::decode(&record.key, kind, &record.value, record.revision.as_str());
    decoded.map_or(true, |resource| resource.would_deny())
}

/// Keeps the annotation on the node's record right.
async fn note(store: &dyn Store, node: &str, found: &[String]) -> Result<(), StoreError> {
    let Some(record) = store.get(&Key::cluster(Kind::Node, node)).await? else { return Ok(()) };
    let decoded = Resource::decode(&record.key, Kind::Node, &record.value, record.revision.as_str());
    let Ok(mut resource) = decoded else { return Ok(()) };
    let wanted = (!found.is_empty()).then(|| found.len().to_string());
    if resource.metadata.annotations.get(ANNOTATION) == wanted.as_ref() {
        return Ok(());
    }
    match wanted {
        Some(count) => resource.metadata.annotations.insert(ANNOTATION.to_owned(), count),
        None => resource.metadata.annotations.remove(ANNOTATION),
    };
    store.update(record.key, resource.encode(), record.revision).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use store::MemoryStore;

    use super::*;

    async fn put(store: &dyn Store, kind: Kind, name: &str, spec: Value) {
        let mut resource = Resource::new(kind, name);
        resource.body.insert("spec".to_owned(), spec);
        store.create(resource.key(), resource.encode()).await.unwrap();
    }

    #[tokio::test]
    async fn what_would_deny_is_found_and_noted() {
        let store = MemoryStore::new();
        let store: &dyn Store = &store;
        put(store, Kind::Node, "a", json!({})).await;
        put(store, Kind::Profile, "open", json!({"ingress": [{"action": "Allow"}]})).await;
        assert_eq!(unenforced(store).await.unwrap(), [] as [&str; 0]);
        put(store, Kind::Profile, "shut", json!({"egress": [{"action": "Deny"}]})).await;
        put(store, Kind::GlobalNetworkPolicy, "default.all", json!({"selector": "all()"})).await;
        let found = unenforced(store).await.unwrap();
        assert_eq!(found, ["GlobalNetworkPolicy(default.all)", "Profile(shut)"]);
        let annotation = async || {
            let record = store.get(&Key::cluster(Kind::Node, "a")).await.unwrap().unwrap();
            let node = Resource::decode(&record.key, Kind::Node, &record.value, "").unwrap();
            node.metadata.annotations.get(ANNOTATION).cloned()
        };
        note(store, "a", &found).await.unwrap();
        assert_eq!(annotation().await.as_deref(), Some("2"));
        note(store, "a", &[]).await.unwrap();
        assert_eq!(annotation().await, None);
    }
}
