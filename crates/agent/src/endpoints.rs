//! The endpoint records of this node, cached: a list, then every change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use model::kube::views;
use model::names::EndpointName;
use model::originals::Named;
use model::{DeviceName, Key, KeyRange, Kind, Mac, Resource, Sandbox, is_detached, is_same_attachment};
use plan::between::AllowedSource;
use serde_json::Value;
use store::{Record, Store};
use tokio::sync::Notify;

use crate::follow::{Update, follow};
use crate::verbs::endpoint_addresses;

/// What the agent caches of an endpoint.
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
    /// Further networks that it may send from, if the node allows that at all (`allowSpoofedSourcePrefixes`).
    pub(crate) more_sources: Vec<IpNet>,
    /// Namespace and name, if it is a pod's.
    pub(crate) pod: Option<(String, String)>,
    /// Of the record; where that is a view, of the pod.
    pub(crate) uids: Vec<String>,
}

/// A pod that Kubernetes has on this node, where endpoints are views of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodOnNode {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// As Kubernetes and as the runtime call it.
    pub(crate) uids: Vec<String>,
    /// Of the sandbox that the record names.
    pub(crate) container_id: Option<String>,
    /// A pod that has ended has none.
    pub(crate) has_addresses: bool,
}

impl LocalEndpoint {
    /// Whether both describe the same attachment. The rest of a record changes for many reasons, above all where it is a pod.
    pub(crate) fn is_same_attachment(&self, other: &LocalEndpoint) -> bool {
        is_same_attachment(&self.record.value, &other.record.value)
    }
}

/// Only those of one node are cached, however many the cluster has.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    cached: Mutex<Records>,
    /// The further networks that endpoints may send from may have changed.
    pub(crate) sources_changed: Notify,
}

#[derive(Debug, Default)]
struct Records {
    endpoints: BTreeMap<Key, LocalEndpoint>,
    /// Pods without a sandbox, where endpoints are views of pods.
    detached: BTreeMap<Key, Detached>,
    vouching: BTreeMap<Key, Vouched>,
}

#[derive(Debug)]
struct Detached {
    record: Record,
    uids: Vec<String>,
}

/// Addresses of an endpoint record that names no sandbox of this node, but may be a running pod's all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Vouched {
    /// The record cannot be read: any address may be its own.
    AnyAddress,
    /// The record names no sandbox, as Calico's records of 2017: these addresses are in use.
    Addresses(Vec<IpAddr>),
}

impl Endpoints {
    pub(crate) fn all(&self) -> Vec<LocalEndpoint> {
        self.cached().endpoints.values().cloned().collect()
    }

    pub(crate) fn vouched(&self) -> Vec<Vouched> {
        self.cached().vouching.values().cloned().collect()
    }

    /// The further networks that endpoints may send from, by device.
    pub(crate) fn more_sources(&self) -> BTreeSet<AllowedSource> {
        let cached = self.cached();
        let of = |endpoint: &LocalEndpoint| {
            let device = endpoint.device.clone();
            device
                .into_iter()
                .flat_map(|device| endpoint.more_sources.iter().map(move |net| (device.clone(), *net)))
                .collect::<Vec<_>>()
        };
        cached.endpoints.values().flat_map(of).collect()
    }

    /// The cached record at this key, whosever sandbox it names.
    pub(crate) fn record_at(&self, key: &Key) -> Option<Record> {
        let cached = self.cached();
        let attached = cached.endpoints.get(key).map(|endpoint| &endpoint.record);
        attached.or_else(|| cached.detached.get(key).map(|detached| &detached.record)).cloned()
    }

    /// Every pod with a network of its own. Only of use where endpoints are views of pods.
    pub(crate) fn pods(&self) -> Vec<PodOnNode> {
        let cached = self.cached();
        let attached = cached.endpoints.iter().map(|(key, endpoint)| {
            let container_id = Some(endpoint.container_id.clone());
            (key, endpoint.uids.clone(), container_id, !endpoint.addresses.is_empty())
        });
        let detached = cached.detached.iter().map(|(key, pod)| (key, pod.uids.clone(), None, false));
        let is_other =
            |key: &&Key| !cached.endpoints.contains_key(*key) && !cached.detached.contains_key(*key);
        let others = cached.vouching.keys().filter(is_other).map(|key| (key, Vec::new(), None, true));
        let pods = attached.chain(detached).chain(others);
        let pods = pods.filter_map(|(key, uids, container_id, has_addresses)| {
            let behind = views::behind(key)?;
            let (namespace, name) = (behind.namespace?, behind.name);
            Some(PodOnNode { namespace, name, uids, container_id, has_addresses })
        });
        pods.collect()
    }

    /// The cached record at this key, if it is this sandbox's. A change by its revision fails if it is out of date.
    pub(crate) fn record_of(&self, key: &Key, sandbox: &Sandbox) -> Option<Record> {
        let cached = self.cached();
        let endpoint = cached.endpoints.get(key)?;
        let is_own =
            endpoint.container_id == sandbox.container_id() && endpoint.interface == sandbox.interface();
        is_own.then(|| endpoint.record.clone())
    }

    /// Follows the store; never ends. Calls `in_sync` with whether all records are cached.
    pub(crate) async fn follow(&self, store: &dyn Store, node: &str, in_sync: impl Fn(bool)) {
        let mut listed = Records::default();
        let on_update = |update| match update {
            Update::ListBegins => listed = Records::default(),
            Update::Listed(record) => listed.put(&record, node),
            Update::ListEnds => {
                *self.cached() = std::mem::take(&mut listed);
                self.sources_changed.notify_one();
                in_sync(true);
            }
            Update::Put(record) => self.change(&record.key, |records| records.put(&record, node)),
            Update::Deleted(key) => self.change(&key, |records| records.remove(&key)),
            Update::OutOfSync => in_sync(false),
        };
        follow(store, KeyRange::EndpointsOf(node.to_owned()), "endpoints", on_update).await;
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut Records)) {
        let mut records = self.cached();
        let had_sources = records.has_sources(key);
        change(&mut records);
        if had_sources || records.has_sources(key) {
            self.sources_changed.notify_one();
        }
    }

    fn cached(&self) -> MutexGuard<'_, Records> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn put(&mut self, record: &Record, node: &str) {
        self.remove(&record.key);
        if is_detached(&record.value) {
            if is_of_node(&record.key, node) {
                let uids = decode(record).map(|resource| views::uids(&resource)).unwrap_or_default();
                self.detached.insert(record.key.clone(), Detached { record: record.clone(), uids });
                // Its status may still show addresses.
                self.vouching.extend(vouched(record, node).map(|vouched| (record.key.clone(), vouched)));
            }
            return;
        }
        let endpoint = read(record, node);
        if endpoint.as_ref().is_none_or(|endpoint| endpoint.addresses.is_empty())
            && let Some(vouched) = vouched(record, node)
        {
            self.vouching.insert(record.key.clone(), vouched);
        }
        self.endpoints.extend(endpoint.map(|endpoint| (record.key.clone(), endpoint)));
    }

    fn has_sources(&self, key: &Key) -> bool {
        self.endpoints.get(key).is_some_and(|endpoint| !endpoint.more_sources.is_empty())
    }

    fn remove(&mut self, key: &Key) {
        self.endpoints.remove(key);
        self.detached.remove(key);
        self.vouching.remove(key);
    }
}

/// Whether an endpoint's name is one of this node's. A name that cannot be read may be.
fn is_of_node(key: &Key, node: &str) -> bool {
    let Key::Resource { name, .. } = key else { return false };
    !name.parse::<EndpointName>().is_ok_and(|name| name.node != node)
}

/// The addresses of a record in which [`read`] finds no sandbox or no addresses. `None` if it is another node's.
fn vouched(record: &Record, node: &str) -> Option<Vouched> {
    let Some(resource) = decode(record) else {
        return is_of_node(&record.key, node).then_some(Vouched::AnyAddress);
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

/// `None` if the record is another node's, or cannot be read.
pub(crate) fn read(record: &Record, node: &str) -> Option<LocalEndpoint> {
    let resource = decode(record)?;
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
        uids: views::uids(&resource),
    })
}

fn decode(record: &Record) -> Option<Resource> {
    Resource::decode(&record.key, Kind::WorkloadEndpoint, &record.value, record.revision.as_str()).ok()
}

/// Networks or single addresses; anything else is skipped.
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
    async fn those_of_this_node_are_cached_and_followed() {
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
            endpoints.all().iter().map(|endpoint| endpoint.container_id.as_str()).collect::<Vec<_>>(),
            ["c-one"]
        );
        put(&*store, "a", "two").await;
        until(|| endpoints.all().len() == 2).await;
        let record = store.get(&first).await.unwrap().unwrap();
        store.delete(first, record.revision).await.unwrap();
        until(|| endpoints.all().len() == 1).await;

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
    fn a_pod_without_a_sandbox_vouches_for_nothing_but_is_known() {
        let record = |name: &str, spec: serde_json::Value| Record {
            key: Key::namespaced(Kind::WorkloadEndpoint, "shop", format!("a-k8s-{name}-eth0")),
            value: json!({"metadata": {"namespace": "shop", "uid": format!("u-{name}")}, "spec": spec})
                .to_string()
                .into(),
            revision: store::Revision::new("1"),
        };
        let endpoints = Endpoints::default();
        let put = |record: Record| endpoints.cached().put(&record, "a");
        put(record("fresh", json!({"node": "a", "pod": "fresh", "endpoint": "eth0"})));
        let attached = json!({
            "node": "a", "pod": "runs", "endpoint": "eth0", "containerID": "c", "ipNetworks": ["10.0.0.1/32"],
        });
        put(record("runs", attached));
        put(record("foreign", json!({"node": "a", "pod": "foreign", "ipNetworks": ["10.0.0.2/32"]})));
        assert_eq!(endpoints.all().len(), 1);
        let addresses = Vouched::Addresses(vec!["10.0.0.2".parse().unwrap()]);
        assert_eq!(endpoints.vouched(), [addresses], "of a pod that another program has attached");
        let known: Vec<_> =
            endpoints.pods().into_iter().map(|pod| (pod.name, pod.uids, pod.container_id)).collect();
        let of = |name: &str, container: Option<&str>| {
            (name.to_owned(), vec![format!("u-{name}")], container.map(str::to_owned))
        };
        assert_eq!(
            known,
            [of("runs", Some("c")), of("fresh", None), ("foreign".to_owned(), Vec::new(), None)]
        );
        // Its sandbox is gone, and the kubelet still reports the address.
        put(record("between", json!({"node": "a", "containerID": "", "ipNetworks": ["10.0.0.3/32"]})));
        assert_eq!(endpoints.vouched()[0], Vouched::Addresses(vec!["10.0.0.3".parse().unwrap()]));
        let between: Vec<_> = endpoints.pods().into_iter().filter(|pod| pod.name == "between").collect();
        assert_eq!((between.len(), between[0].has_addresses), (1, false));
        let fresh = record("fresh", json!({})).key;
        assert!(endpoints.record_at(&fresh).is_some());
        endpoints.cached().remove(&fresh);
        assert_eq!(endpoints.record_at(&fresh), None);
    }

    #[test]
    fn a_record_that_is_unreadable_or_names_no_sandbox_vouches_for_addresses() {
        let record = |name: &str, value: &str| Record {
            key: Key::namespaced(Kind::WorkloadEndpoint, "shop", name),
            value: value.as_bytes().to_vec().into(),
            revision: store::Revision::new("1"),
        };
        let mut records = Records::default();
        records.put(&record("a-k8s-x-eth0", "{"), "a");
        records.put(&record("b-k8s-y-eth0", "{"), "a");
        records.put(&record("c-k8s-z-eth0", r#"{"spec":{"node":"c","ipNetworks":["10.0.0.9/32"]}}"#), "a");
        records.put(&record("a-k8s-w-eth0", r#"{"spec":{"node":"a","ipNetworks":["10.0.0.1/32"]}}"#), "a");
        let addresses = Vouched::Addresses(vec!["10.0.0.1".parse().unwrap()]);
        assert_eq!(records.vouching.values().cloned().collect::<Vec<_>>(), [addresses, Vouched::AnyAddress]);
        let odd = r#"{"spec":{"node":"a","containerID":"c","endpoint":"eth0","ipNetworks":["ten"]}}"#;
        records.put(&record("a-k8s-x-eth0", odd), "a");
        assert_eq!((records.endpoints.len(), records.vouching.len()), (1, 2), "it may have any address");
        records.put(&record("a-k8s-x-eth0", r#"{"spec":{"node":"b"}}"#), "a");
        records.remove(&Key::namespaced(Kind::WorkloadEndpoint, "shop", "a-k8s-w-eth0"));
        assert!(records.endpoints.is_empty() && records.vouching.is_empty());
    }
}
