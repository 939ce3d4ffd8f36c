//! A real API server of Kubernetes with Calico's custom resources, shared by the tests that need one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Weak};

use book::{Addition, Book, Settings};
use ipam::{Granted, ReleaseRule};
use model::kube::Layout;
use model::names::{EndpointName, host_interface_name};
use model::{AffinityOwner, Cidr, IpVersion, Key, KeyRange, Kind};
use serde_json::json;
use store::Store;
use store::kube::{Definitions, KubeConfig, KubeStore};
use testkit::kube::{ADMIN_TOKEN, Api, KubeApiServer, Setup, start_or_skip};
use tokio::sync::{MutexGuard, OwnedMutexGuard};

use crate::common::{assert_clean, assign, put_pools};

/// How the names of kubeconfig files end.
pub(crate) const KUBECONFIG: &str = ".kubeconfig";
/// Of all pods.
const NAMESPACE: &str = "default";

/// The server, with a way to it that processes can be told.
#[derive(Debug)]
pub(crate) struct Cluster {
    server: KubeApiServer,
    kubeconfig: PathBuf,
}

/// Goes away with the last test that uses it or waits for it.
static CLUSTER: LazyLock<tokio::sync::Mutex<Weak<Cluster>>> = LazyLock::new(Default::default);
static TURN: LazyLock<Arc<tokio::sync::Mutex<()>>> = LazyLock::new(Arc::default);

/// The server without any records, for one test at a time. `None` where there is none: the test is skipped.
pub(crate) async fn take_turn(test: &str) -> Option<(Arc<Cluster>, OwnedMutexGuard<()>)> {
    let cluster = shared(test, &mut CLUSTER.lock().await).await?;
    let turn = Arc::clone(&TURN).lock_owned().await;
    cluster.clear();
    Some((cluster, turn))
}

async fn shared(test: &str, shared: &mut MutexGuard<'_, Weak<Cluster>>) -> Option<Arc<Cluster>> {
    if let Some(cluster) = shared.upgrade() {
        return Some(cluster);
    }
    let server = tokio::task::block_in_place(|| start_or_skip(test, Setup::default()))?;
    let user = json!({ "token": ADMIN_TOKEN });
    let kubeconfig = server.write_kubeconfig("tests", &server.url(), user).unwrap();
    install(&kubeconfig).await;
    let cluster = Arc::new(Cluster { server, kubeconfig });
    **shared = Arc::downgrade(&cluster);
    Some(cluster)
}

async fn install(kubeconfig: &Path) {
    let definitions = Definitions::connect(&config(kubeconfig)).await.unwrap();
    for definition in model::kube::definitions(layout()) {
        let name = definition["metadata"]["name"].as_str().unwrap();
        definitions.create(name, &definition).await.unwrap();
    }
    for kind in Kind::all().filter(|kind| model::kube::is_custom_resource(*kind)) {
        definitions.wait_until_served(kind).await.unwrap();
    }
}

/// Nothing depends on it, so each run tries one.
fn layout() -> Layout {
    if testkit::seed().is_multiple_of(2) { Layout::V1 } else { Layout::V3 }
}

fn config(kubeconfig: &Path) -> KubeConfig {
    let api_group = Some(layout().api_version());
    KubeConfig { kubeconfig: Some(kubeconfig.to_owned()), api_group, ..KubeConfig::default() }
}

/// A connection of its own.
pub(crate) async fn connect(kubeconfig: &Path) -> Arc<dyn Store> {
    Arc::new(KubeStore::connect(config(kubeconfig)).await.expect("the API server is there"))
}

/// A way to a store that is an API server, for what others than the book write there.
pub(crate) fn api_at(address: &str) -> Option<Api> {
    address.ends_with(KUBECONFIG).then(|| Api::from_kubeconfig(address.as_ref()).unwrap())
}

impl Cluster {
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn api(&self) -> Api {
        self.server.api()
    }

    /// How many requests about records, pods and nodes the server has answered, by verb and resource. Watches are not in it:
    /// they are started once and stay.
    pub(crate) fn requests(&self) -> BTreeMap<(String, String), u64> {
        let mut requests = BTreeMap::new();
        let metrics = self.api().get("/metrics").unwrap().text;
        for line in metrics.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
            let (labels, count) = line.rsplit_once("} ").unwrap();
            let label = |name: &str| {
                let mut labels = labels.split(',').filter_map(|label| label.split_once('='));
                let (_, value) = labels.find(|(found, _)| *found == name).unwrap();
                value.trim_matches('"').to_owned()
            };
            let (verb, resource) = (label("verb"), label("resource"));
            let is_ours =
                label("group") == layout().group() || ["pods", "nodes"].contains(&resource.as_str());
            if is_ours && verb != "WATCH" {
                *requests.entry((verb, resource)).or_default() += count.parse::<f64>().unwrap() as u64;
            }
        }
        requests
    }

    /// Removes all records, nodes and pods.
    pub(crate) fn clear(&self) {
        self.server.clear(&[layout().group(), "minions", "pods"]).unwrap();
    }

    /// What a kubelet does, and whoever labels nodes.
    pub(crate) fn put_node(&self, name: &str, labels: &[(&str, &str)]) {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let node = json!({ "metadata": { "name": name, "labels": labels } });
        self.api().create("/api/v1/nodes", &node).unwrap();
    }
}

/// A pod on a node, without addresses yet.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    /// Its endpoint.
    pub(crate) key: Key,
    pub(crate) name: String,
    uid: String,
}

impl Pod {
    /// What a scheduler has done before a runtime asks for addresses.
    pub(crate) fn create(api: &Api, node: &str, name: &str) -> Pod {
        let pod = json!({ "metadata": { "name": name },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] } });
        let pod = api.create(&format!("/api/v1/namespaces/{NAMESPACE}/pods"), &pod).unwrap();
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        Pod { key: Pod::key(node, name), name: name.to_owned(), uid }
    }

    /// The endpoint of a pod.
    pub(crate) fn key(node: &str, name: &str) -> Key {
        let endpoint = EndpointName::of_pod(node, name, "eth0").compute().unwrap();
        Key::namespaced(Kind::WorkloadEndpoint, NAMESPACE, endpoint)
    }

    /// What writes the addresses onto the pod.
    pub(crate) fn attach(&self, sandbox: &str, granted: &[Granted]) -> Addition {
        let networks: Vec<String> =
            granted.iter().map(|granted| Cidr::single(granted.address).to_string()).collect();
        let device = host_interface_name(NAMESPACE, &self.name).unwrap();
        let spec =
            json!({ "containerID": sandbox, "ipNetworks": networks, "interfaceName": device.as_str() });
        let value =
            json!({ "kind": "WorkloadEndpoint", "metadata": { "namespace": NAMESPACE }, "spec": spec });
        Addition::attach(self.key.clone(), value.to_string(), self.uid.as_str())
    }
}

/// Calico before 3.31.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_finds_its_blocks_that_an_earlier_calico_left_without_labels() {
    let test = "a_node_finds_its_blocks_that_an_earlier_calico_left_without_labels";
    let Some((cluster, _turn)) = take_turn(test).await else { return };
    let (api, store) = (cluster.api(), connect(cluster.kubeconfig()).await);
    put_pools(&store, &[json!({"cidr": "10.0.0.0/28", "blockSize": 29})]).await;
    for node in ["node-a", "node-b"] {
        cluster.put_node(node, &[]);
    }
    let before = Book::new(store.clone());
    let own = Cidr::containing(assign(&before, "node-a", "a").await, 29).unwrap();
    assign(&before, "node-b", "b").await;
    let path = format!("/apis/{}/blockaffinities", layout().api_version());
    for affinity in api.read(&path).unwrap()["items"].as_array().unwrap() {
        let name = affinity["metadata"]["name"].as_str().unwrap();
        let change = json!({"metadata": {"labels": null}});
        api.patch("merge", &format!("{path}/{name}"), &change).unwrap();
    }
    let unlisted = assign(&Book::new(store.clone()), "node-a", "unlisted").await;
    assert!(own.contains(unlisted), "a list by labels does not show the affinity: {unlisted}");
    let owner = AffinityOwner::Host("node-a".to_owned());
    let found = store.affinities_of(&owner).await.unwrap();
    let keys: Vec<Key> = found.into_iter().map(|record| record.key).collect();
    assert_eq!(keys, [Key::Affinity { owner, block: own }], "not the other node's");
    let rule = ReleaseRule { must_be_empty: true, sequence_number: None };
    let released = before.release_host("node-a", rule).await.unwrap();
    assert!(released[0].block == own && released[0].result.is_err(), "it is found, and in use: {released:?}");

    let book = Book::following(store.clone(), Settings::default(), "node-a");
    assert_eq!(book.label_affinities("node-a").await.unwrap(), 1, "the other one is another node's");
    assert_eq!(book.label_affinities("node-a").await.unwrap(), 0);
    let affinities = KeyRange::AffinitiesOf(AffinityOwner::Host("node-a".to_owned()), IpVersion::V4);
    assert_eq!(store.list_all(affinities).await.unwrap().0.len(), 1);
    assert_clean(&store).await;
}
