//! What has no owner goes, and nothing else, on every store and in spite of whatever goes wrong.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ipam::{Owner, Tunnel};
use jiff::SignedDuration;
use model::ipam::{Affinity, AffinityState};
use model::names::EndpointName;
use model::{AffinityOwner, Key, Kind, Resource};
use serde_json::json;
use store::etcd::{EtcdConfig, EtcdStore};
use store::{OpenMode, Revision, Store, StoreConfig};
use testkit::etcd::{self, EtcdCluster};
use testkit::forwarder::{Forwarder, Traffic};
use testkit::kube::KubeApiServer;

use crate::program::{Controller, Start};
use crate::world::{self, Kubelets, NodeBlock, SHOP, SYSTEM};

/// The shortest time in which two observations are two.
const QUICK: [&str; 4] = ["--grace", "2s", "--rate", "1000"];
const LEAK_GRACE: &str = "3s";
/// Nodes whose kubelets renew their leases. That of node-d does not.
const RENEWING: &[&str] = &["node-a", "node-b"];

fn sandbox(number: u32) -> String {
    format!("{number:064x}")
}

/// What of the records is to go. Everything else is to stay.
#[derive(Clone, Debug, Default)]
struct World {
    going: BTreeSet<String>,
}

impl World {
    fn leaks(&mut self, address: IpAddr, container: &str) {
        self.going.insert(format!("{address} k8s-pod-network.{container}"));
        self.going.insert(format!("IPAMHandle(k8s-pod-network.{container})"));
    }

    fn goes(&mut self, key: &Key) {
        self.going.insert(key.to_string());
    }
}

/// Objects of Kubernetes, and the IPAM records of a cluster that Calico ran: much that has an owner, and much that has none.
async fn make(server: &KubeApiServer, store: &dyn Store, are_views: bool, skew: SignedDuration) -> World {
    let (api, mut world) = (server.api(), World::default());
    world::write_pool(store).await;
    world::write_settings(store, LEAK_GRACE).await;
    for node in ["node-a", "node-b", "node-d"] {
        world::node(&api, node);
        world::ready(&api, node, true);
        if !are_views {
            world::write_node(store, node, node).await;
        }
    }
    let mut a = NodeBlock::new("node-a", "10.64.0.0/26");
    a.at += skew;
    let lives = a.allocate("web", &sandbox(1), None);
    world::pod(&api, "web", "node-a", Some((lives, &sandbox(1))), are_views);
    // Its namesake of before: nothing but the name is the same.
    let old = a.allocate("web", &sandbox(2), None);
    world.leaks(old, &sandbox(2));
    a.allocate("starts", &sandbox(3), None);
    world::pod(&api, "starts", "node-a", None, are_views);
    let gone = a.allocate("gone", &sandbox(4), None);
    world.leaks(gone, &sandbox(4));
    a.take(&Tunnel::Vxlan.owner("node-a"));
    a.write(store).await;
    // Under an agent of ours: that can ask the runtime and the kernel.
    let mut b = NodeBlock::new("node-b", "10.64.1.0/26");
    b.allocate("gone-b", &sandbox(5), None);
    b.write(store).await;
    world::pod_as(&api, SYSTEM, "plumbd", "node-b", "plumb-node", None, are_views);
    // Of a node that exists in no list any more.
    let mut c = NodeBlock::new("node-c", "10.64.2.0/26");
    let lost = c.allocate("lost", &sandbox(6), None);
    world.leaks(lost, &sandbox(6));
    let tunnel = c.take(&Tunnel::Vxlan.owner("node-c"));
    world.going.insert(format!("{tunnel} vxlan-tunnel-addr-node-c"));
    world.goes(&Key::Handle("vxlan-tunnel-addr-node-c".into()));
    c.write(store).await;
    world.goes(&c.block.key());
    world.goes(&Key::Affinity { owner: AffinityOwner::Host("node-c".to_owned()), block: c.block.cidr });
    // Of a node whose kubelet has not been heard of for a while.
    let mut d = NodeBlock::new("node-d", "10.64.3.0/26");
    d.allocate("gone-d", &sandbox(7), None);
    d.write(store).await;
    let of_services = AffinityOwner::Virtual("load-balancer".to_owned());
    let mut services = NodeBlock::of("load-balancer", of_services, "10.64.4.0/26");
    services.take(&Owner::on_node("lb-x", "load-balancer", world::long_ago()).with("service", "web"));
    services.write(store).await;
    // Counts an address that no block has; and a claim that never came to its end.
    world::write_handle(store, &format!("k8s-pod-network.{}", sandbox(8)), a.block.cidr, 1).await;
    world.goes(&Key::Handle(format!("k8s-pod-network.{}", sandbox(8)).as_str().into()));
    let claim = Key::Affinity {
        owner: AffinityOwner::Host("node-a".to_owned()),
        block: "10.64.9.0/26".parse().unwrap(),
    };
    store.create(claim.clone(), Affinity::new(AffinityState::Pending).encode()).await.unwrap();
    world.goes(&claim);
    if !are_views {
        write_endpoint(store, "node-a", "web", &sandbox(1), lives).await;
    }
    world
}

async fn write_endpoint(store: &dyn Store, node: &str, pod: &str, container: &str, address: IpAddr) {
    let name = EndpointName::of_pod(node, pod, "eth0").compute().unwrap();
    let mut endpoint = Resource::new(Kind::WorkloadEndpoint, name);
    endpoint.metadata.namespace = Some(SHOP.to_owned());
    endpoint.metadata.creation_timestamp = Some(world::long_ago().to_string());
    endpoint.body.insert(
        "spec".into(),
        json!({ "orchestrator": "k8s", "node": node, "pod": pod, "endpoint": "eth0", "containerID": container,
            "interfaceName": "cali0d7763386da", "ipNetworks": [format!("{address}/32")] }),
    );
    store.create(endpoint.key(), endpoint.encode()).await.unwrap();
}

/// Waits until exactly that is gone, and a while longer.
async fn exactly_that_goes(store: &dyn Store, before: &BTreeSet<String>, world: &World, by: &mut Controller) {
    let expected: BTreeSet<String> = before.difference(&world.going).cloned().collect();
    assert_eq!(before.len(), expected.len() + world.going.len(), "all of it was there: {:?}", world.going);
    let deadline = std::time::Instant::now() + testkit::PATIENCE;
    loop {
        let now = world::ipam_of(store).await;
        if now == expected {
            break;
        }
        let missing: Vec<_> = expected.difference(&now).collect();
        assert!(missing.is_empty(), "it was to stay: {missing:?}\n{}", by.log());
        let left: Vec<_> = now.difference(&expected).collect();
        assert!(std::time::Instant::now() < deadline, "it was to go: {left:?}\n{}", by.log());
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    by.wait_for_passes(3);
    assert_eq!(world::ipam_of(store).await, expected, "{}", by.log());
}

fn kubeconfig(server: &KubeApiServer, name: &str, port: u16) -> PathBuf {
    let user = json!({ "token": world::token(&server.api()) });
    server.write_kubeconfig(name, &format!("https://127.0.0.1:{port}"), user).unwrap()
}

/// With the shipped account and no other rights.
fn on_kubernetes(server: &KubeApiServer) -> Start {
    let path = kubeconfig(server, "controller", server.port());
    let start = Start::default().with("DATASTORE_TYPE", "kubernetes");
    let start = start.with("CALICO_API_GROUP", "crd.projectcalico.org/v1");
    start.with("KUBECONFIG", path.display().to_string()).and(&QUICK)
}

/// etcd keeps the records, and Kubernetes is behind a port that can be cut.
fn on_etcd(cluster: &EtcdCluster, server: &KubeApiServer, port: u16) -> Start {
    let path = kubeconfig(server, &format!("beside-{port}"), port);
    let start = Start::default().with("ETCD_ENDPOINTS", cluster.endpoint(0)).and(&QUICK);
    start.and(&["--kubeconfig", path.to_str().unwrap()])
}

async fn etcd_store(cluster: &EtcdCluster) -> Arc<dyn Store> {
    Arc::new(EtcdStore::connect(EtcdConfig::new([cluster.endpoint(0)])).await.unwrap())
}

fn kubelets(server: &KubeApiServer) -> Kubelets {
    Kubelets::start(&server.api(), RENEWING, SignedDuration::ZERO)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_kubernetes_what_has_no_owner_goes() {
    let Some(server) = world::server("in_kubernetes_what_has_no_owner_goes") else { return };
    let store = world::kube_store(&server).await;
    let world = make(&server, &*store, true, SignedDuration::ZERO).await;
    let before = world::ipam_of(&*store).await;
    let _kubelets = kubelets(&server);
    let mut controller = on_kubernetes(&server).run();
    exactly_that_goes(&*store, &before, &world, &mut controller).await;
    assert!(controller.collected("address-leaked") >= 2, "{}", controller.log());
    assert!(controller.collected("handle-unused") >= 1, "{}", controller.log());
    let log = controller.log();
    assert!(log.contains("code=\"address-leaked\"") && log.contains("kubelet reports it gone"), "{log}");
    assert!(!controller.histories().is_empty());
    let record =
        store.get(&Key::cluster(Kind::KubeControllersConfiguration, "default")).await.unwrap().unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record.value).unwrap();
    let running = &record["status"]["runningConfig"]["controllers"]["node"]["leakGracePeriod"];
    assert_eq!(running, LEAK_GRACE, "{record}");
}

/// Both lead, each with a Lease of its own: what goes, goes once, and nothing else does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_act_at_the_same_time_do_no_harm() {
    let Some(server) = world::server("two_that_act_at_the_same_time_do_no_harm") else { return };
    let store = world::kube_store(&server).await;
    let world = make(&server, &*store, true, SignedDuration::ZERO).await;
    let before = world::ipam_of(&*store).await;
    let _kubelets = kubelets(&server);
    let admin = server.kubeconfig().unwrap().display().to_string();
    let start = on_kubernetes(&server).with("KUBECONFIG", admin);
    let mut one = start.clone().and(&["--lease-namespace", "default"]).run();
    let mut two = start.and(&["--lease-namespace", SHOP]).run();
    exactly_that_goes(&*store, &before, &world, &mut one).await;
    two.wait_for_passes(3);
    assert!(one.leads() && two.leads());
    let expected: BTreeSet<String> = before.difference(&world.going).cloned().collect();
    assert_eq!(world::ipam_of(&*store).await, expected);
}

/// Of the node's allocations and its kubelet's lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_differ_cost_nobody_anything() {
    for hours in [-3, 1] {
        let Some(server) = world::server("clocks_that_differ_cost_nobody_anything") else { return };
        let store = world::kube_store(&server).await;
        let skew = SignedDuration::from_hours(hours);
        let world = make(&server, &*store, true, skew).await;
        let before = world::ipam_of(&*store).await;
        let _kubelets = Kubelets::start(&server.api(), RENEWING, skew);
        let mut controller = on_kubernetes(&server).run();
        exactly_that_goes(&*store, &before, &world, &mut controller).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_etcd_what_has_no_owner_goes_unless_kubernetes_is_away() {
    let test = "in_etcd_what_has_no_owner_goes_unless_kubernetes_is_away";
    let Some(server) = world::server(test) else { return };
    let Some(cluster) = etcd::start_or_skip(test, etcd::Setup::default()) else { return };
    let store = etcd_store(&cluster).await;
    let mut world = make(&server, &*store, false, SignedDuration::ZERO).await;
    // A Node of Calico whose node of Kubernetes was deleted, with all that it has; and an endpoint that leaked.
    world::write_node(&*store, "calico-e", "node-e").await;
    let mut e = NodeBlock::new("calico-e", "10.64.5.0/26");
    let lost = e.allocate("lost-e", &sandbox(9), None);
    e.write(&*store).await;
    world.leaks(lost, &sandbox(9));
    world.goes(&e.block.key());
    world.goes(&Key::Affinity { owner: AffinityOwner::Host("calico-e".to_owned()), block: e.block.cidr });
    write_endpoint(&*store, "calico-e", "lost-e", &sandbox(9), lost).await;
    let before = world::ipam_of(&*store).await;
    let forwarder = Forwarder::to(server.port());
    let _kubelets = kubelets(&server);

    forwarder.set(Traffic::AnswersLost);
    let mut controller = on_etcd(&cluster, &server, forwarder.port()).and(&["--take-over"]).run();
    controller.wait("to fail", |controller| controller.metric("passes_failed_total") >= Some(2));
    assert_eq!(world::ipam_of(&*store).await, before, "nothing is concluded while Kubernetes is away");
    assert!(controller.get("/readiness").unwrap().contains("503"));
    forwarder.set(Traffic::Cut);
    forwarder.set(Traffic::Flows);

    exactly_that_goes(&*store, &before, &world, &mut controller).await;
    let node = Key::cluster(Kind::Node, "calico-e");
    assert_eq!(store.get(&node).await.unwrap(), None, "{}", controller.log());
    for node in ["node-a", "node-b", "node-d"] {
        assert!(store.get(&Key::cluster(Kind::Node, node)).await.unwrap().is_some(), "{node}");
    }
}

/// Killed before and after a change was made: the next one finishes, and nothing else happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_at_any_step_leaves_nothing_wrong() {
    let test = "a_leader_that_is_killed_at_any_step_leaves_nothing_wrong";
    let Some(server) = world::server(test) else { return };
    let Some(cluster) = etcd::start_or_skip(test, etcd::Setup::default()) else { return };
    let store = etcd_store(&cluster).await;
    let world = make(&server, &*store, false, SignedDuration::ZERO).await;
    let before = world::ipam_of(&*store).await;
    let _kubelets = kubelets(&server);
    let quick = ["--lease-duration", "2s", "--renew-deadline", "1s", "--retry-period", "200ms"];
    let start = on_etcd(&cluster, &server, server.port()).and(&quick);
    for point in ["repair.begun", "repair.made"] {
        let mut killed = start.clone().with("PLUMB_FAILPOINT", point).run();
        killed.wait_for_end();
        assert!(killed.log().contains(&format!("failpoint {point} reached")), "{}", killed.log());
        let now = world::ipam_of(&*store).await;
        let lost: Vec<_> = before.difference(&now).filter(|was| !world.going.contains(*was)).collect();
        assert!(lost.is_empty(), "{point}: {lost:?}");
    }
    let mut last = start.run();
    exactly_that_goes(&*store, &before, &world, &mut last).await;
}

/// What a block holds that cannot be read, nobody knows: no handle goes, and no address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_that_an_unreadable_block_may_hold() {
    let test = "nothing_goes_that_an_unreadable_block_may_hold";
    let Some(server) = world::server(test) else { return };
    let Some(cluster) = etcd::start_or_skip(test, etcd::Setup::default()) else { return };
    let store = etcd_store(&cluster).await;
    let world = make(&server, &*store, false, SignedDuration::ZERO).await;
    let key = Key::Block("10.64.3.0/26".parse().unwrap());
    let whole = store.get(&key).await.unwrap().unwrap();
    let revision = store.update(key.clone(), b"{".to_vec(), whole.revision.clone()).await.unwrap();
    let before = world::ipam_of(&*store).await;
    let _kubelets = kubelets(&server);
    let mut controller = on_etcd(&cluster, &server, server.port()).run();
    controller.wait_for_passes(5);
    let now = world::ipam_of(&*store).await;
    let handles = |all: &BTreeSet<String>| -> Vec<String> {
        all.iter().filter(|text| text.starts_with("IPAMHandle")).cloned().collect()
    };
    let unused = Key::Handle(format!("k8s-pod-network.{}", sandbox(8)).as_str().into()).to_string();
    assert!(handles(&now).contains(&unused), "{}", controller.log());
    let lost: Vec<_> = before.difference(&now).filter(|was| !world.going.contains(*was)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    restore(&*store, &key, &whole.value, &revision).await;
    // Read again, all of it goes, as if nothing had been.
    let mut before = before;
    before.extend(world::ipam_of(&*store).await);
    exactly_that_goes(&*store, &before, &world, &mut controller).await;
}

async fn restore(store: &dyn Store, key: &Key, value: &[u8], revision: &Revision) {
    store.update(key.clone(), value.to_vec(), revision.clone()).await.unwrap();
}

/// With SQLite and without Kubernetes nothing shows whether a pod lives: only what the records show goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_kubernetes_addresses_stay() {
    let folder = testkit::scratch("sqlite").unwrap();
    let config = StoreConfig::Sqlite { path: folder.path().join("plumb.db") };
    let store = store::open(&config, OpenMode::CreateIfMissing).await.unwrap();
    world::write_pool(&*store).await;
    world::write_settings(&*store, LEAK_GRACE).await;
    world::write_node(&*store, "node-a", "node-a").await;
    let mut a = NodeBlock::new("node-a", "10.64.0.0/26");
    a.allocate("gone", &sandbox(1), None);
    a.write(&*store).await;
    world::write_handle(&*store, &format!("k8s-pod-network.{}", sandbox(8)), a.block.cidr, 1).await;
    let mut world = World::default();
    world.goes(&Key::Handle(format!("k8s-pod-network.{}", sandbox(8)).as_str().into()));
    let before = world::ipam_of(&*store).await;
    let path = folder.path().join("plumb.db").display().to_string();
    let start = Start::default().with("DATASTORE_TYPE", "sqlite").with("SQLITE_PATH", path);
    let mut controller = start.and(&QUICK).run();
    exactly_that_goes(&*store, &before, &world, &mut controller).await;
}

/// In Kubernetes, where each change is a request: two for a handle, at most six for a block of a node that is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_removed_costs_few_requests() {
    const HANDLES: u32 = 120;
    const BLOCKS: u32 = 40;
    let test = "what_is_removed_costs_few_requests";
    let Some(server) = world::server(test) else { return };
    let store = world::kube_store(&server).await;
    world::write_pool(&*store).await;
    world::write_settings(&*store, LEAK_GRACE).await;
    world::node(&server.api(), "node-a");
    world::ready(&server.api(), "node-a", true);
    let a = NodeBlock::new("node-a", "10.64.0.0/26");
    a.write(&*store).await;
    let cost = |controller: &mut Controller| {
        // What an observation costs when there is nothing to do.
        controller.wait_for_passes(2);
        let (passes, requests) = (controller.passes(), controller.metric("requests_total").unwrap());
        controller.wait_for_passes(4);
        let (more, spent) =
            (controller.passes() - passes, controller.metric("requests_total").unwrap() - requests);
        (spent / more, controller.passes(), controller.metric("requests_total").unwrap())
    };
    let mut figures = Vec::new();
    let mut controller = on_kubernetes(&server).run();
    controller.wait("to lead", Controller::leads);
    for (number, most, code) in [(HANDLES, 21, "handle-unused"), (BLOCKS, 60, "affinity-of-gone-node")] {
        let (each, passes, requests) = cost(&mut controller);
        let before = world::ipam_of(&*store).await;
        for index in 0..number {
            if code == "handle-unused" {
                let handle = format!("k8s-pod-network.{}", sandbox(1000 + index));
                world::write_handle(&*store, &handle, a.block.cidr, 1).await;
            } else {
                NodeBlock::new("node-gone", &format!("10.64.{}.0/26", 100 + index)).write(&*store).await;
            }
        }
        let written = world::ipam_of(&*store).await;
        let going = written.difference(&before).cloned().collect();
        exactly_that_goes(&*store, &written, &World { going }, &mut controller).await;
        let observations = (controller.passes() - passes) * each;
        let spent = (controller.metric("requests_total").unwrap() - requests).saturating_sub(observations);
        figures.push(format!("{code}: {:.2} requests each", spent as f64 / f64::from(number)));
        // Another observation may have begun.
        assert!(
            spent <= u64::from(number * most) / 10 + each,
            "{spent} for {number}: {figures:?}\n{}",
            controller.log()
        );
    }
    testkit::note(test, &figures.join(", "));
}
