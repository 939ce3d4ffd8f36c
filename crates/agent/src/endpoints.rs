//! The endpoint records of this node, kept up to date: a list, then every change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use model::names::EndpointName;
use model::originals::Named;
use model::{DeviceName, Key, KeyRange, Kind, Mac, Resource, Sandbox};
use plan::between::AllowedSource;
use serde_json::Value;
use store::{Record, Store};
use tokio::sync::Notify;

use crate::cni::endpoint_addresses;
use crate::follow::{Told, follow};

/// What the agent needs to know of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalEndpoint {
    pub(crate) record: Record,
    pub(crate) container_id: String,
    pub(crate) interface: String,
    /// The host end's name.
    pub(crate) device: Option<DeviceName>,
    /// The pod end's hardware address, where it is recorded.
    pub(crate) mac: Option<Mac>,
    pub(crate) addresses: Vec<IpAddr>,
    /// What it may send from besides, where the node allows that at all (`allowSpoofedSourcePrefixes`).
    pub(crate) more_sources: Vec<IpNet>,
    /// Namespace and name, if it is a pod's.
    pub(crate) pod: Option<(String, String)>,
}

/// Only those of one node are kept, however many there are in the cluster.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    known: Mutex<Records>,
    /// What endpoints may send from besides their addresses may have changed.
    pub(crate) sources_changed: Notify,
}

#[derive(Debug, Default)]
struct Records {
    known: BTreeMap<Key, LocalEndpoint>,
    vouching: BTreeMap<Key, Vouched>,
}

/// What an endpoint record vouches for that names no sandbox of this node: it may be a running pod's all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Vouched {
    /// It cannot be read: any address may be its own.
    AnyAddress,
    /// It names no sandbox, as in 2017: these addresses are in use.
    Addresses(Vec<IpAddr>),
}

impl Endpoints {
    pub(crate) fn all(&self) -> Vec<LocalEndpoint> {
        self.known().known.values().cloned().collect()
    }

    /// What records vouch for that are in no other list.
    pub(crate) fn vouched(&self) -> Vec<Vouched> {
        self.known().vouching.values().cloned().collect()
    }

    /// What endpoints may send from besides their addresses, by their devices.
    pub(crate) fn more_sources(&self) -> BTreeSet<AllowedSource> {
        let known = self.known();
        let of = |endpoint: &LocalEndpoint| {
            let device = endpoint.device.clone();
            device
                .into_iter()
                .flat_map(|device| endpoint.more_sources.iter().map(move |net| (device.clone(), *net)))
                .collect::<Vec<_>>()
        };
        known.known.values().flat_map(of).collect()
    }

    /// The record at this key if it is this sandbox's, as it was last heard of. Whoever changes it by its revision
    /// learns whether it still is.
    pub(crate) fn record_of(&self, key: &Key, sandbox: &Sandbox) -> Option<Record> {
        let known = self.known();
        let endpoint = known.known.get(key)?;
        let is_own =
            endpoint.container_id == sandbox.container_id() && endpoint.interface == sandbox.interface();
        is_own.then(|| endpoint.record.clone())
    }

    /// Follows the store; never ends. `in_sync` hears whether what is known is complete.
    pub(crate) async fn follow(&self, store: &dyn Store, node: &str, in_sync: impl Fn(bool)) {
        let mut listed = Records::default();
        let tell = |told| match told {
            Told::Listing => listed = Records::default(),
            Told::Listed(record) => listed.take_in(&record, node),
            Told::Complete => {
                *self.known() = std::mem::take(&mut listed);
                self.sources_changed.notify_one();
                in_sync(true);
            }
            Told::Put(record) => self.change(&record.key, |records| records.take_in(&record, node)),
            Told::Deleted(key) => self.change(&key, |records| records.forget(&key)),
            Told::Lost => in_sync(false),
        };
        follow(store, KeyRange::Kind(Kind::WorkloadEndpoint), "endpoints", tell).await;
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut Records)) {
        let mut records = self.known();
        let had_sources = records.has_sources(key);
        change(&mut records);
        if had_sources || records.has_sources(key) {
            self.sources_changed.notify_one();
        }
    }

    fn known(&self) -> MutexGuard<'_, Records> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn take_in(&mut self, record: &Record, node: &str) {
        self.forget(&record.key);
        let endpoint = read(record, node);
        if endpoint.as_ref().is_none_or(|endpoint| endpoint.addresses.is_empty())
            && let Some(vouched) = vouched(record, node)
        {
            self.vouching.insert(record.key.clone(), vouched);
        }
        self.known.extend(endpoint.map(|endpoint| (record.key.clone(), endpoint)));
    }

    /// It may send from more than its addresses.
    fn has_sources(&self, key: &Key) -> bool {
        self.known.get(key).is_some_and(|endpoint| !endpoint.more_sources.is_empty())
    }

    fn forget(&mut self, key: &Key) {
        self.known.remove(key);
        self.vouching.remove(key);
    }
}

/// What a record vouches for of which [`read`] understands nothing, or no addresses. Nothing if it is another node's.
fn vouched(record: &Record, node: &str) -> Option<Vouched> {
    let resource =
        Resource::decode(&record.key, Kind::WorkloadEndpoint, &record.value, record.revision.as_str());
    let Ok(resource) = resource else {
        let Key::Resource { name, .. } = &record.key else { return None };
        let is_of_another = name.parse::<EndpointName>().is_ok_and(|name| name.node != node);
        return (!is_of_another).then_some(Vouched::AnyAddress);
    };
    if resource.spec("node").and_then(Value::as_str) != Some(node) {
        return None;
    }
    match (endpoint_addresses(&resource), resource.spec("ipNetworks")) {
        (Some(addresses), _) => Some(Vouched::Addresses(addresses)),
        (None, None | Some(Value::Null)) => None,
        (None, Some(_)) => Some(Vouched::AnyAddress),
    }
}

/// `None` if the record is another node's, or cannot be understood: what is not known is not touched.
pub(crate) fn read(record: &Record, node: &str) -> Option<LocalEndpoint> {
    let resource =
        Resource::decode(&record.key, Kind::WorkloadEndpoint, &record.value, record.revision.as_str())
            .ok()?;
    let text = |field: &str| resource.spec(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    if text("node") != Some(node) {
        return None;
    }
    Some(LocalEndpoint {
        record: record.clone(),
        container_id: Named::ContainerId.original(&resource)?.to_owned(),
        interface: Named::Interface.original(&resource)?.to_owned(),
        device: text("interfaceName").and_then(|name| DeviceName::new(name).ok()),
        mac: text("mac").and_then(|mac| mac.parse().ok()),
        addresses: endpoint_addresses(&resource).unwrap_or_default(),
        more_sources: more_sources(&resource),
        pod: Named::Pod.original(&resource).map(|pod| {
            let namespace = Named::Namespace.original(&resource).unwrap_or_default();
            (namespace.to_owned(), pod.to_owned())
        }),
    })
}

/// Networks, or single addresses; what is neither allows nothing.
fn more_sources(endpoint: &Resource) -> Vec<IpNet> {
    let listed = endpoint.spec("allowSpoofedSourcePrefixes").and_then(Value::as_array);
    let network = |text: &str| text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok();
    listed.into_iter().flatten().filter_map(Value::as_str).filter_map(network).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use serde_json::json;
    use store::MemoryStore;

    use super::*;

    async fn put(store: &dyn Store, node: &str, pod: &str) -> Key {
        let mut endpoint = Resource::new(Kind::WorkloadEndpoint, format!("{node}-k8s-{pod}-eth0"));
        endpoint.metadata.namespace = Some("shop".to_owned());
        let spec = json!({
            "node": node, "orchestrator": "k8s", "pod": pod, "endpoint": "eth0", "containerID": format!("c-{pod}"),
            "interfaceName": "cali1",
        });
        endpoint.body.insert("spec".to_owned(), spec);
        store.create(endpoint.key(), endpoint.encode()).await.unwrap();
        endpoint.key()
    }

    async fn until(condition: impl Fn() -> bool) {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn those_of_this_node_are_known_and_followed() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let first = put(&*store, "a", "one").await;
        put(&*store, "b", "other").await;
        let (endpoints, synced) = (Arc::new(Endpoints::default()), Arc::new(AtomicBool::new(false)));
        let following = tokio::spawn({
            let (store, endpoints, synced) = (store.clone(), endpoints.clone(), synced.clone());
            async move { endpoints.follow(&*store, "a", |now| synced.store(now, Ordering::Relaxed)).await }
        });
        until(|| synced.load(Ordering::Relaxed)).await;
        assert_eq!(
            endpoints.all().iter().map(|known| known.container_id.as_str()).collect::<Vec<_>>(),
            ["c-one"]
        );
        put(&*store, "a", "two").await;
        until(|| endpoints.all().len() == 2).await;
        let record = store.get(&first).await.unwrap().unwrap();
        store.delete(first, record.revision).await.unwrap();
        until(|| endpoints.all().len() == 1).await;
        // One that may send from more than its addresses.
        assert!(endpoints.more_sources().is_empty());
        let key = put(&*store, "a", "router").await;
        let record = store.get(&key).await.unwrap().unwrap();
        let mut resource =
            Resource::decode(&key, Kind::WorkloadEndpoint, &record.value, record.revision.as_str()).unwrap();
        resource
            .spec_mut()
            .insert("allowSpoofedSourcePrefixes".to_owned(), json!(["10.9.0.0/16", "fd00::7", "x"]));
        let revision = store.update(key.clone(), resource.encode(), record.revision).await.unwrap();
        until(|| endpoints.more_sources().len() == 2).await;
        store.delete(key, revision).await.unwrap();
        until(|| endpoints.more_sources().is_empty()).await;
        following.abort();
    }

    #[test]
    fn what_cannot_be_read_or_names_no_sandbox_vouches_for_addresses() {
        let record = |name: &str, value: &str| Record {
            key: Key::namespaced(Kind::WorkloadEndpoint, "shop", name),
            value: value.as_bytes().to_vec().into(),
            revision: store::Revision::new("1"),
        };
        let mut records = Records::default();
        records.take_in(&record("a-k8s-x-eth0", "{"), "a");
        records.take_in(&record("b-k8s-y-eth0", "{"), "a");
        records
            .take_in(&record("c-k8s-z-eth0", r#"{"spec":{"node":"c","ipNetworks":["10.0.0.9/32"]}}"#), "a");
        records
            .take_in(&record("a-k8s-w-eth0", r#"{"spec":{"node":"a","ipNetworks":["10.0.0.1/32"]}}"#), "a");
        let addresses = Vouched::Addresses(vec!["10.0.0.1".parse().unwrap()]);
        assert_eq!(records.vouching.values().cloned().collect::<Vec<_>>(), [addresses, Vouched::AnyAddress]);
        let odd = r#"{"spec":{"node":"a","containerID":"c","endpoint":"eth0","ipNetworks":["ten"]}}"#;
        records.take_in(&record("a-k8s-x-eth0", odd), "a");
        assert_eq!((records.known.len(), records.vouching.len()), (1, 2), "it may have any address");
        records.take_in(&record("a-k8s-x-eth0", r#"{"spec":{"node":"b"}}"#), "a");
        records.forget(&Key::namespaced(Kind::WorkloadEndpoint, "shop", "a-k8s-w-eth0"));
        assert!(records.known.is_empty() && records.vouching.is_empty());
    }
}
