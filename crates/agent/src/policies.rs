//! What is not enforced is never silent: the log, the metrics and this node's record name it. That is every policy as long as the rules are not in
//! the kernel, and after that whatever cannot be read.

use std::time::Duration;

use model::{Key, KeyRange, Kind, Resource};
use store::{Record, Store, StoreError};
use tracing::{debug, error, info};

use crate::services::Agent;

const CHECK_EVERY: Duration = Duration::from_secs(60);
const CHECK_SOON: Duration = Duration::from_secs(5);
/// How long an agent that has just started may take until policies are in force, before it reports that they are not.
const GRACE: Duration = Duration::from_secs(20);
/// On the Node record.
const ANNOTATION: &str = "plumbline.io/policies-not-enforced";
/// How many names are logged.
const SHOWN_MAX: usize = 5;

/// Checks regularly; never ends.
pub(crate) async fn watch(store: &dyn Store, agent: &Agent) {
    let (node, metrics) = (agent.node.as_str(), agent.metrics());
    let mut logged = None;
    loop {
        let was_in_force = agent.enforcement.settled(GRACE).await;
        let found = match was_in_force {
            true => Ok(agent.enforcement.unreadable()),
            false => unenforced(store).await,
        };
        match found {
            Ok(found) => {
                metrics.policies_unenforced.set(found.len());
                if logged.as_ref() != Some(&found) {
                    log(&found, logged.is_some());
                    logged = Some(found.clone());
                }
                if let Err(error) = annotate(store, node, &found).await {
                    debug!(%error, "cannot annotate the node's record with the policies that are not enforced");
                }
            }
            Err(error) => debug!(%error, "cannot read the policies"),
        }
        tokio::time::sleep(if was_in_force { CHECK_EVERY } else { CHECK_SOON }).await;
    }
}

fn log(found: &[String], had_some: bool) {
    if found.is_empty() {
        if had_some {
            info!("everything in the store that would deny traffic is enforced");
        }
        return;
    }
    error!(
        policies = found.len(),
        "POLICIES ARE NOT ENFORCED: {}{} should deny traffic but do not",
        found.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", "),
        if found.len() > SHOWN_MAX { " and more" } else { "" },
    );
}

/// The names of all policies and profiles that would deny traffic.
async fn unenforced(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    // Where profiles are views of namespaces and accounts none denies anything, and there may be thousands.
    let has_profiles = store.capabilities().endpoints_are_records;
    let profiles = has_profiles.then_some(Kind::Profile);
    for kind in [Kind::GlobalNetworkPolicy, Kind::NetworkPolicy].into_iter().chain(profiles) {
        let (records, _) = store.list_all(KeyRange::Kind(kind)).await?;
        found.extend(
            records.iter().filter(|record| would_deny(record, kind)).map(|record| record.key.to_string()),
        );
    }
    Ok(found)
}

/// An unreadable one might deny.
fn would_deny(record: &Record, kind: Kind) -> bool {
    let decoded = Resource::decode(&record.key, kind, &record.value, record.revision.as_str());
    decoded.map_or(true, |resource| resource.would_deny())
}

/// Keeps the annotation of the node's record up to date.
async fn annotate(store: &dyn Store, node: &str, found: &[String]) -> Result<(), StoreError> {
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
        annotate(store, "a", &found).await.unwrap();
        assert_eq!(annotation().await.as_deref(), Some("2"));
        annotate(store, "a", &[]).await.unwrap();
        assert_eq!(annotation().await, None);
    }
}
