//! Records and objects of a small cluster in which some things have no owner and others only look so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ipam::{Owner, Reservations};
use jiff::{SignedDuration, Timestamp};
use model::ipam::{Affinity, AffinityState, Block, Handle};
use model::kube::{Layout, definitions};
use model::{AffinityOwner, Cidr, HandleId, Key, KeyRange, Kind, Resource};
use serde_json::{Value, json};
use store::kube::{KubeConfig, KubeStore};
use store::{Record, Store};
use testkit::kube::{Api, KubeApiServer, Setup, start_or_skip};

pub(crate) const SYSTEM: &str = "kube-system";
pub(crate) const SHOP: &str = "shop";

/// An API server with definitions, roles and a namespace; also where another store keeps the records.
pub(crate) fn server(test: &str) -> Option<KubeApiServer> {
    let server = start_or_skip(test, Setup::default())?;
    let api = server.api();
    api.define(&definitions(Layout::V1)).unwrap();
    for manifest in model::kube::access::accounts_and_roles(Layout::V1, SYSTEM) {
        api.apply(&manifest, "").unwrap();
    }
    api.create("/api/v1/namespaces", &json!({ "metadata": { "name": SHOP } })).unwrap();
    Some(server)
}

/// A token of the controller's account.
pub(crate) fn token(api: &Api) -> String {
    let path = format!("/api/v1/namespaces/{SYSTEM}/serviceaccounts/plumb-controller/token");
    let answer = api.create(&path, &json!({ "spec": {} })).unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

pub(crate) async fn kube_store(server: &KubeApiServer) -> Arc<dyn Store> {
    let config = KubeConfig { kubeconfig: Some(server.kubeconfig().unwrap()), ..KubeConfig::default() };
    Arc::new(KubeStore::connect(config).await.unwrap())
}

/// Long ago, so that nothing is too young to be judged.
pub(crate) fn long_ago() -> Timestamp {
    Timestamp::now() - SignedDuration::from_hours(2)
}

/// A node's block while it is made up.
pub(crate) struct NodeBlock {
    pub(crate) node: &'static str,
    pub(crate) block: Block,
    handles: BTreeMap<HandleId, i64>,
    /// When its allocations say that they were made.
    pub(crate) at: Timestamp,
}

impl NodeBlock {
    pub(crate) fn new(node: &'static str, cidr: &str) -> NodeBlock {
        NodeBlock::of(node, AffinityOwner::Host(node.to_owned()), cidr)
    }

    pub(crate) fn of(node: &'static str, owner: AffinityOwner, cidr: &str) -> NodeBlock {
        let block = ipam::new_block(cidr.parse().unwrap(), &owner, None, long_ago());
        NodeBlock { node, block, handles: BTreeMap::new(), at: long_ago() }
    }

    /// An address as Calico's plugin notes it, or ours if there is a UID.
    pub(crate) fn allocate(&mut self, pod: &str, container: &str, uid: Option<&str>) -> IpAddr {
        let owner = Owner::on_node(format!("k8s-pod-network.{container}"), self.node, self.at);
        self.take(&owner.of_pod(SHOP, pod, uid))
    }

    pub(crate) fn take(&mut self, owner: &Owner) -> IpAddr {
        *self.handles.entry(owner.handle.clone()).or_default() += 1;
        ipam::take(&mut self.block, owner, 1, &Reservations::default())[0]
    }

    pub(crate) async fn write(&self, store: &dyn Store) {
        let cidr = self.block.cidr;
        let owner = self.block.owner().unwrap();
        let affinity = Affinity::new(AffinityState::Confirmed).encode();
        store.create(Key::Affinity { owner, block: cidr }, affinity).await.unwrap();
        for (handle, count) in &self.handles {
            write_handle(store, handle.as_str(), cidr, *count).await;
        }
        store.create(self.block.key(), self.block.encode()).await.unwrap();
    }
}

pub(crate) async fn write_handle(store: &dyn Store, handle: &str, block: Cidr, count: i64) {
    let record = Handle { block: [(block.to_string(), count)].into(), ..Handle::default() };
    store.create(Key::Handle(handle.into()), record.encode()).await.unwrap();
}

pub(crate) async fn write_pool(store: &dyn Store) {
    let mut pool = Resource::new(Kind::IpPool, "pods");
    pool.body
        .insert("spec".into(), json!({ "cidr": "10.64.0.0/16", "blockSize": 26, "nodeSelector": "all()" }));
    store.create(pool.key(), pool.encode()).await.unwrap();
}

/// So that leaks of nodes that exist are collected soon.
pub(crate) async fn write_settings(store: &dyn Store, leak_grace: &str) {
    let mut record = Resource::new(Kind::KubeControllersConfiguration, "default");
    record
        .body
        .insert("spec".into(), json!({ "controllers": { "node": { "leakGracePeriod": leak_grace } } }));
    store.create(record.key(), record.encode()).await.unwrap();
}

/// A Node of Calico in a store of its own.
pub(crate) async fn write_node(store: &dyn Store, name: &str, kubernetes: &str) {
    let mut node = Resource::new(Kind::Node, name);
    let reference = json!({ "nodeName": kubernetes, "orchestrator": "k8s" });
    node.body.insert("spec".into(), json!({ "orchRefs": [reference] }));
    store.create(node.key(), node.encode()).await.unwrap();
}

/// Everything in IPAM, as texts: what is allocated to whom, and which handles, blocks and affinities exist.
pub(crate) async fn ipam_of(store: &dyn Store) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for range in
        [KeyRange::AllBlocks, KeyRange::Handles, KeyRange::HostAffinities, KeyRange::VirtualAffinities]
    {
        for Record { key, value, .. } in store.list_all(range).await.unwrap().0 {
            all.insert(key.to_string());
            let Key::Block(cidr) = key else { continue };
            let Ok(block) = Block::decode(&cidr, &value) else { continue };
            for ordinal in 0..block.allocations.len() {
                if let (Some(held), Some(address)) = (block.attribute(ordinal), block.address(ordinal)) {
                    all.insert(format!("{address} {}", held.handle().map_or("", HandleId::as_str)));
                }
            }
        }
    }
    all
}

pub(crate) fn node(api: &Api, name: &str) {
    api.create("/api/v1/nodes", &json!({ "metadata": { "name": name } })).unwrap();
}

/// The node's kubelet says so.
pub(crate) fn ready(api: &Api, name: &str, is_ready: bool) {
    let now = Timestamp::now().to_string();
    let status = if is_ready { "True" } else { "False" };
    let condition = json!({ "type": "Ready", "status": status, "reason": "Kubelet", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now });
    let path = format!("/api/v1/nodes/{name}/status");
    let answer =
        api.patch("strategic-merge", &path, &json!({ "status": { "conditions": [condition] } })).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// A pod that runs, with its address and sandbox; `None`: it is starting. `is_endpoint`: Kubernetes keeps the endpoints.
pub(crate) fn pod(
    api: &Api,
    name: &str,
    node: &str,
    attached: Option<(IpAddr, &str)>,
    is_endpoint: bool,
) -> String {
    pod_as(api, SHOP, name, node, "default", attached, is_endpoint)
}

pub(crate) fn pod_as(
    api: &Api,
    namespace: &str,
    name: &str,
    node: &str,
    account: &str,
    attached: Option<(IpAddr, &str)>,
    is_endpoint: bool,
) -> String {
    let spec = json!({ "nodeName": node, "serviceAccountName": account, "automountServiceAccountToken": false,
        "containers": [{ "name": "c", "image": "i" }] });
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let account_path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    if api.get(&format!("{account_path}/{account}")).unwrap().status == 404 {
        api.create(&account_path, &json!({ "metadata": { "name": account } })).unwrap();
    }
    let made = api.create(&path, &json!({ "metadata": { "name": name }, "spec": spec })).unwrap();
    if let Some((address, container)) = attached {
        let network = format!("{address}/32");
        // Where another store keeps the endpoints, nothing is noted on pods.
        let notes = json!({ "cni.projectcalico.org/podIP": network, "cni.projectcalico.org/podIPs": network,
            "cni.projectcalico.org/containerID": container });
        let change = json!({
            "metadata": { "annotations": if is_endpoint { notes } else { json!({}) } },
            "status": { "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] },
        });
        let answer = api.patch("strategic-merge", &format!("{path}/{name}/status"), &change).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Kubelets that renew their leases, until this is dropped.
pub(crate) struct Kubelets {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelets {
    /// `ahead`: how far their clocks are.
    pub(crate) fn start(api: &Api, nodes: &'static [&'static str], ahead: SignedDuration) -> Kubelets {
        let collection = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let lease = move |node: &str| -> Value {
            let now = (Timestamp::now() + ahead).strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
            json!({ "metadata": { "name": node }, "spec": { "holderIdentity": node, "renewTime": now } })
        };
        for node in nodes {
            api.create(collection, &lease(node)).unwrap();
        }
        let (stop, api) = (Arc::new(AtomicBool::new(false)), api.clone());
        let stopped = stop.clone();
        let renew = move || {
            while !stopped.load(Ordering::Relaxed) {
                for node in nodes {
                    // While the server is away there is nothing to renew.
                    let _ = api.patch("merge", &format!("{collection}/{node}"), &lease(node));
                }
                std::thread::sleep(Duration::from_millis(300));
            }
        };
        Kubelets { stop, thread: Some(std::thread::spawn(renew)) }
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
