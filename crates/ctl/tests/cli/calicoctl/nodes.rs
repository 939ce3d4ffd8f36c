//! Deleting a node: calicoctl takes its endpoints along, we refuse.

use model::{Key, Kind};
use serde_json::{Value, json};
use store::Change;

use super::{case, check, run};
use crate::harness::{Desk, machine_has_own_config};

fn put(key: &str, value: &Value) -> Change {
    Change::create(Key::from_etcd_text(key).unwrap(), value.to_string().into_bytes())
}

/// A node with an endpoint that names two addresses, of which another node has the second.
fn fill(desk: &Desk) {
    desk.apply(
        "{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: a}, spec: {cidr: 10.65.0.0/24}}\n---\n\
         {apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: n1}, spec: {}}\n",
    );
    let mut allocations = vec![Value::Null; 64];
    (allocations[1], allocations[2]) = (0.into(), 1.into());
    let free: Vec<u32> = (0..64).filter(|ordinal| !matches!(ordinal, 1 | 2)).collect();
    let block = json!({"cidr": "10.65.0.0/26", "affinity": "host:n1", "strictAffinity": false, "allocations": allocations,
        "unallocated": free, "deleted": false, "sequenceNumber": 7, "sequenceNumberForAllocation": {"1": 5, "2": 6},
        "attributes": [{"handle_id": "h1", "secondary": {"node": "n1"}}, {"handle_id": "h2", "secondary": {"node": "n2"}}]});
    let handle = json!({"block": {"10.65.0.0/26": 1}, "deleted": false});
    let endpoint = json!({"kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "n1-k8s-web-eth0", "namespace": "shop"},
        "spec": {"node": "n1", "orchestrator": "k8s", "pod": "web", "endpoint": "eth0", "containerID": "c",
            "interfaceName": "cali1", "ipNetworks": ["10.65.0.1/32", "10.65.0.2/32"]}});
    let key = Key::namespaced(Kind::WorkloadEndpoint, "shop", "n1-k8s-web-eth0");
    desk.write(vec![
        put("/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26", &block),
        put("/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-26", &json!({"state": "confirmed"})),
        put("/calico/ipam/v2/handle/h1", &handle),
        put("/calico/ipam/v2/handle/h2", &handle),
        Change::create(key, endpoint.to_string().into_bytes()),
    ]);
}

#[test]
fn a_node_takes_its_endpoints_along_and_no_address_of_another() {
    if machine_has_own_config("a_node_takes_its_endpoints_along_and_no_address_of_another") {
        return;
    }
    let desk = Desk::on_sqlite();
    fill(&desk);
    let before = desk.dump();
    desk.plumb(&["delete", "node", "n1"]).refused(1, &["it has 1 endpoint(s) and 2 address(es) in use"]);
    assert_eq!(desk.dump(), before);
    check(&desk, &[case(&["delete", "node", "n1"]).prints("Successfully deleted 1 'Node' resource(s)\n")]);
    check(
        &desk,
        &[
            case(&["get", "wep", "-A"]).prints("NAMESPACE   WORKLOAD   NODE   NETWORKS   INTERFACE   \n\n"),
            case(&["ipam", "show", "--ip=10.65.0.1"]).prints("10.65.0.1 is not assigned\n"),
        ],
    );
    let kept = run(&desk, &["ipam", "show", "--ip=10.65.0.2"], "").stdout;
    assert!(kept.contains("Handle ID: h2"), "{kept}");
    assert!(!desk.dump().iter().any(|record| record.contains("/host/n1/")), "{:?}", desk.dump());
}
