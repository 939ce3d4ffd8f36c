//! A small cluster in a store, with faults that a repair can mend, and what it looks like.

use std::collections::BTreeMap;
use std::sync::Arc;

use book::load::Progress;
use doctor::{Options, Report};
use ipam::{Owner, Reservations};
use model::ipam::{Affinity, Block, Handle};
use model::names::EndpointName;
use model::{AffinityOwner, Cidr, HandleId, IpVersion, Key, KeyRange, Kind};
use repair::{Plan, Scope};
use serde_json::{Value, json};
use store::{Change, Store};

pub(crate) const BLOCK: &str = "10.0.0.0/26";
/// A pod that lives, in the same block as all the faults.
pub(crate) const LIVE: &str = "10.0.0.0";
/// Addresses of a node that is gone.
pub(crate) const LEAKED: usize = 6;
/// Handles that nothing refers to.
pub(crate) const UNUSED: usize = 3;

pub(crate) fn block() -> Cidr {
    BLOCK.parse().unwrap()
}

fn id(number: usize) -> String {
    format!("{number:064x}")
}

fn owner(number: usize, node: &str) -> Owner {
    Owner { handle: HandleId::of_sandbox("k8s-pod-network", &id(number)), attributes: BTreeMap::new() }
        .with("node", node)
        .with("namespace", "shop")
        .with("pod", &format!("pod-{number}"))
}

fn counts() -> Vec<u8> {
    Handle { block: [(BLOCK.to_owned(), 1)].into(), ..Handle::default() }.encode()
}

/// One live pod on node `a`; leaked addresses of node `gone`; handles without addresses; another block of `gone`.
pub(crate) async fn make(store: &Arc<dyn Store>) {
    let resource = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec}).to_string();
    let host = |name: &str| AffinityOwner::Host(name.to_owned());
    let mut books = Block::new(block(), Some(&host("a")), 7);
    let mut changes = vec![
        Change::create(Key::cluster(Kind::IpPool, "pods"), resource("pods", json!({"cidr": "10.0.0.0/16"}))),
        Change::create(
            Key::cluster(Kind::Node, "a"),
            resource("a", json!({"bgp": {"ipv4Address": "172.30.0.1/24"}})),
        ),
        Change::create(Key::Affinity { owner: host("a"), block: block() }, Affinity::default().encode()),
    ];
    for number in 0..=LEAKED {
        let owner = owner(number, if number == 0 { "a" } else { "gone" });
        ipam::take(&mut books, &owner, 1, &Reservations::default());
        changes.push(Change::create(Key::Handle(owner.handle), counts()));
    }
    changes.push(Change::create(Key::Block(block()), books.encode()));
    for number in 100..100 + UNUSED {
        changes.push(Change::create(Key::Handle(owner(number, "a").handle), counts()));
    }
    let empty: Cidr = "10.0.1.0/26".parse().unwrap();
    changes.push(Change::create(Key::Block(empty), Block::new(empty, Some(&host("gone")), 3).encode()));
    changes.push(Change::create(
        Key::Affinity { owner: host("gone"), block: empty },
        Affinity::default().encode(),
    ));
    let name = EndpointName::of_pod("a", "pod-0", "eth0").compute().unwrap();
    let endpoint = json!({
        "node": "a", "pod": "pod-0", "orchestrator": "k8s", "endpoint": "eth0", "containerID": id(0),
        "ipNetworks": [format!("{LIVE}/32")], "interfaceName": "cali1",
    });
    changes.push(Change::create(
        Key::namespaced(Kind::WorkloadEndpoint, "shop", name.clone()),
        resource(&name, endpoint),
    ));
    store.commit(changes).await.unwrap();
}

pub(crate) async fn look(store: &Arc<dyn Store>) -> (Plan, Report) {
    let evidence = gather::of_store(&**store, &Progress::default()).await.unwrap();
    let report = doctor::diagnose(&evidence);
    let mut plan = repair::plan(&evidence, &report, &Scope::Everything, &Options::default());
    plan.id = "test-1".to_owned();
    (plan, report)
}

/// Every record without the numbers that only ever grow, and without the order of lists that mean sets.
pub(crate) async fn dump(store: &Arc<dyn Store>) -> BTreeMap<String, Value> {
    let mut records = BTreeMap::new();
    for range in [
        KeyRange::Blocks(IpVersion::V4),
        KeyRange::Handles,
        KeyRange::HostAffinities,
        KeyRange::Kind(Kind::WorkloadEndpoint),
    ] {
        for record in store.list_all(range).await.unwrap().0 {
            let value: Value = serde_json::from_slice(&record.value).unwrap();
            let value = match &record.key {
                Key::Block(cidr) => owners(&Block::decode(cidr, &record.value).unwrap()),
                _ => value,
            };
            records.insert(record.key.etcd_text(), value);
        }
    }
    records
}

fn owners(block: &Block) -> Value {
    assert_eq!(block.contradictions(), [] as [&str; 0]);
    let owner =
        |ordinal: usize| Some((block.address(ordinal)?.to_string(), json!(block.attribute(ordinal)?)));
    let held: serde_json::Map<String, Value> = (0..block.capacity()).filter_map(owner).collect();
    json!({"affinity": block.affinity, "held": held})
}

/// Every fault is gone and the pod that lives has what it had.
pub(crate) async fn assert_mended(store: &Arc<dyn Store>, before: &BTreeMap<String, Value>) {
    let (plan, report) = look(store).await;
    assert!(report.findings.is_empty() && plan.is_empty(), "{:#?}", report.findings);
    let after = dump(store).await;
    let books = |of: &BTreeMap<String, Value>| of[&Key::Block(block()).etcd_text()]["held"][LIVE].clone();
    assert_eq!(books(&after), books(before));
    assert!(after.keys().any(|key| key.contains("pod--0")), "{after:#?}");
}
