//! Creates the records that a first Calico node creates, where they are missing: this node's own, the pools, and those of the cluster. Any number
//! of nodes may do it at the same time, any number of times.

mod cluster;
#[cfg(test)]
mod guarded;
mod node;
mod pools;

use std::time::Duration;

use anyhow::{Result, bail};
use jiff::{Timestamp, Unit};
use model::{Key, KeyRange, Kind, Resource};
use store::config::Reason;
use store::{Record, Store, StoreConfig, StoreError};
use tracing::{info, warn};
use uuid::Uuid;

use crate::failpoint::{self, Point};
use crate::health::{Condition, Health};
use crate::pause::up_to;
use crate::store_health;
use crate::variables;

const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);
/// How often a record is written that others change at the same time, before it counts as a failure.
const TRIES: u32 = 10;
const RACE_PAUSE: Duration = Duration::from_millis(200);

/// Reads a setting of the environment; empty counts as not set.
type Environment<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// Retries until all records exist, and reports as not ready why they do not. Fails only where a retry would be wrong.
pub(crate) async fn run(
    store: &dyn Store,
    config: &StoreConfig,
    reason: Reason,
    node: &str,
    health: &Health,
) -> Result<()> {
    let (mut delay, mut logged) = (RETRY_DELAY_MIN, None);
    loop {
        let problem = match try_run(store, config, reason, node, &variables::text).await {
            Ok(()) => return Ok(()),
            Err(Failure::Refused(reason)) => bail!(reason),
            Err(Failure::Waits(problem)) => problem,
            Err(Failure::Store(error)) => {
                format!("cannot create the basic records: {}", store_health::describe(&error))
            }
        };
        health.set_condition(Condition::Records, vec![problem.clone()]);
        if logged.as_ref() != Some(&problem) {
            warn!("{problem}; retrying");
            logged = Some(problem);
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RETRY_DELAY_MAX);
    }
}

/// Once, with the caller's settings.
#[cfg(test)]
pub(crate) async fn run_with(
    store: &dyn Store,
    node: &str,
    reason: Reason,
    environment: Environment<'_>,
) -> Result<()> {
    let config = StoreConfig::Sqlite { path: "/x.db".into() };
    Ok(try_run(store, &config, reason, node, environment).await?)
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Refused(String),
    /// Another program has to act first.
    #[error("{0}")]
    Waits(String),
}

async fn try_run(
    store: &dyn Store,
    config: &StoreConfig,
    reason: Reason,
    node: &str,
    environment: Environment<'_>,
) -> Result<(), Failure> {
    if reason == Reason::Fallback {
        refuse_other_machines_file(store, config, node).await?;
    }
    let mut overtaken = Overtaken::default();
    while !overtaken.is_done(cluster::ensure_information(store, environment).await).await? {}
    failpoint::hit(Point::BootstrapInformation);
    while !overtaken.is_done(node::ensure(store, node, environment).await).await? {}
    failpoint::hit(Point::BootstrapNode);
    pools::ensure(store, environment).await?;
    failpoint::hit(Point::BootstrapPools);
    cluster::ensure_tiers(store).await?;
    failpoint::hit(Point::BootstrapTiers);
    cluster::ensure_settings(store, node).await?;
    failpoint::hit(Point::BootstrapSettings);
    Ok(())
}

/// Counts how often another writer was faster.
#[derive(Debug, Default)]
struct Overtaken(u32);

impl Overtaken {
    /// Whether it is done; otherwise it is to be tried again, on what the store holds now.
    async fn is_done(&mut self, outcome: Result<(), Failure>) -> Result<bool, Failure> {
        match outcome {
            Err(Failure::Store(error)) if error.is_lost_race() && self.0 < TRIES => {
                self.0 += 1;
                tokio::time::sleep(up_to(RACE_PAUSE)).await;
                Ok(false)
            }
            outcome => outcome.map(|()| true),
        }
    }
}

/// A file that was not configured and has other nodes but not this one was copied here or is shared by mistake.
async fn refuse_other_machines_file(
    store: &dyn Store,
    config: &StoreConfig,
    node: &str,
) -> Result<(), Failure> {
    let (nodes, _) = store.list_all(KeyRange::Kind(Kind::Node)).await?;
    let own = Key::cluster(Kind::Node, node);
    if nodes.is_empty() || nodes.iter().any(|record| record.key == own) {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "refusing to fall back to {config}: it holds another machine's node {} but not {node}; set DATASTORE_TYPE=sqlite to use it",
        nodes.first().map(|record| record.key.to_string()).unwrap_or_default()
    )))
}

/// Whether nodes and endpoints are views of what Kubernetes keeps.
fn is_in_kubernetes(store: &dyn Store) -> bool {
    !store.capabilities().endpoints_are_records
}

/// Creates a record unless it exists.
async fn ensure(store: &dyn Store, resource: Resource) -> Result<(), StoreError> {
    let key = resource.key();
    if store.get(&key).await?.is_some() {
        return Ok(());
    }
    failpoint::hit(Point::BootstrapBeforeRecord);
    match store.create(key.clone(), with_metadata(resource).encode()).await {
        Ok(_) => {
            failpoint::hit(Point::BootstrapAfterRecord);
            info!(record = %key, "created");
            Ok(())
        }
        // Another node created it first.
        Err(StoreError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes a changed record. It is an error if another writer changed it in between.
async fn replace(store: &dyn Store, earlier: Record, resource: &Resource) -> Result<(), StoreError> {
    store.update(earlier.key, resource.encode(), earlier.revision).await.map(drop)
}

/// A record of a kind; `None` if it is missing or cannot be read.
async fn find(store: &dyn Store, kind: Kind, name: &str) -> Result<Option<(Record, Resource)>, StoreError> {
    let Some(record) = store.get(&Key::cluster(kind, name)).await? else { return Ok(None) };
    match Resource::decode(&record.key, kind, &record.value, record.revision.as_str()) {
        Ok(resource) => Ok(Some((record, resource))),
        Err(error) => {
            warn!(record = %record.key, %error, "cannot read a record; left it as it is");
            Ok(None)
        }
    }
}

/// Adds the metadata that every stored resource has.
fn with_metadata(mut resource: Resource) -> Resource {
    let now = Timestamp::now();
    let seconds = now.round(Unit::Second).unwrap_or(now);
    resource.metadata.uid = Some(Uuid::new_v4().to_string());
    resource.metadata.creation_timestamp = Some(seconds.to_string());
    resource.fill_defaults();
    resource
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use store::{Change, MemoryStore};

    use super::*;

    async fn records(store: &dyn Store) -> BTreeMap<String, String> {
        let (records, _) = store.list_all(KeyRange::Everything).await.unwrap();
        let text = |record: &Record| String::from_utf8_lossy(&record.value).into_owned();
        records.iter().map(|record| (record.key.to_string(), text(record))).collect()
    }

    fn environment(name: &str) -> Option<String> {
        let value = match name {
            "CALICO_IPV4POOL_CIDR" => "10.244.0.0/16",
            "CALICO_IPV6POOL_CIDR" => "none",
            "IP" => "192.0.2.7/24",
            _ => return None,
        };
        Some(value.to_owned())
    }

    async fn start(store: &dyn Store, node: &str, reason: Reason) -> Result<(), Failure> {
        let config = StoreConfig::Sqlite { path: "/x.db".into() };
        try_run(store, &config, reason, node, &environment).await
    }

    #[tokio::test]
    async fn a_first_node_creates_what_calicos_creates_and_a_second_start_nothing() {
        let store = MemoryStore::new();
        start(&store, "node-a", Reason::Named).await.unwrap();
        let made = records(&store).await;
        for expected in [
            "Node(node-a)",
            "IPPool(default-ipv4-ippool)",
            "ClusterInformation(default)",
            "Tier(default)",
            "Tier(kube-admin)",
            "Tier(kube-baseline)",
            "FelixConfiguration(default)",
            "FelixConfiguration(node.node-a)",
            "BGPConfiguration(default)",
            "KubeControllersConfiguration(default)",
        ] {
            assert!(made.contains_key(expected), "{expected}: {:?}", made.keys());
        }
        start(&store, "node-a", Reason::Named).await.unwrap();
        assert_eq!(records(&store).await, made);
    }

    #[tokio::test]
    async fn what_another_writer_changed_in_between_is_read_again() {
        let store = MemoryStore::new();
        start(&store, "node-a", Reason::Named).await.unwrap();
        let stale = find(&store, Kind::Node, "node-a").await.unwrap().unwrap();
        let (record, mut node) = stale.clone();
        node.metadata.labels.insert("theirs".to_owned(), String::new());
        store.commit(vec![Change::update(record.key, node.encode(), record.revision)]).await.unwrap();

        let (mut overtaken, mut read) = (Overtaken::default(), stale.clone());
        loop {
            let (record, mut node) = read;
            node.metadata.labels.insert("ours".to_owned(), String::new());
            let outcome = replace(&store, record, &node).await.map_err(Failure::from);
            if overtaken.is_done(outcome).await.unwrap() {
                break;
            }
            read = find(&store, Kind::Node, "node-a").await.unwrap().unwrap();
        }
        let (_, node) = find(&store, Kind::Node, "node-a").await.unwrap().unwrap();
        assert_eq!(node.metadata.labels.keys().collect::<Vec<_>>(), ["ours", "theirs"]);
        let lost = async || replace(&store, stale.0.clone(), &stale.1).await.map_err(Failure::from);
        let last = loop {
            match overtaken.is_done(lost().await).await {
                Ok(is_done) => assert!(!is_done),
                Err(error) => break error,
            }
        };
        assert!(matches!(last, Failure::Store(error) if error.is_lost_race()), "it ends");
    }

    #[tokio::test]
    async fn nodes_may_race() {
        let store = MemoryStore::new();
        let starts = ["node-a", "node-b", "node-c"].map(|node| start(&store, node, Reason::Named));
        let [a, b, c] = starts;
        let (a, b, c) = tokio::join!(a, b, c);
        a.and(b).and(c).unwrap();
        let made = records(&store).await;
        assert_eq!(made.keys().filter(|key| key.starts_with("Node(")).count(), 3);
        assert_eq!(made.keys().filter(|key| key.starts_with("IPPool(")).count(), 1);
    }

    #[tokio::test]
    async fn another_machines_file_is_never_the_fallback() {
        let store = MemoryStore::new();
        start(&store, "node-a", Reason::Fallback).await.unwrap();
        start(&store, "node-a", Reason::Fallback).await.unwrap();
        let refused = start(&store, "node-b", Reason::Fallback).await.unwrap_err();
        assert!(matches!(refused, Failure::Refused(_)), "{refused}");
        start(&store, "node-b", Reason::Named).await.unwrap();
    }
}
