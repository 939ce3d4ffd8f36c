//! Every way between nodes, in both IP versions, with records in Kubernetes and agents that have the shipped rights and no more.

use lab::cluster::{Mode, OwnCluster, Plan};
use lab::ping::Outcome;
use testkit::process::wait_until;

use crate::scene::{add, delete, holders, plan, read, read_pod, up};

const NODES: [&str; 3] = ["node1", "node2", "node3"];

fn all_pings_answer(lab: &OwnCluster) {
    let lost = || {
        let mut trips = lab::ping::all(lab).unwrap();
        trips.retain(|trip| trip.outcome != Outcome::Answered);
        trips
    };
    wait_until("every ping to be answered", || lost().is_empty())
        .unwrap_or_else(|error| panic!("{error}: {:?}", lost()));
}

/// The annotations by which Calico's nodes learn the tunnels of others.
fn tunnels_of(lab: &OwnCluster, node: &str) -> usize {
    let object = read(lab, &format!("/api/v1/nodes/{node}")).unwrap();
    let is_there =
        |name: &&str| object["metadata"]["annotations"][format!("projectcalico.org/{name}")].is_string();
    ["IPv4VXLANTunnelAddr", "IPv6VXLANTunnelAddr"].iter().filter(|name| is_there(name)).count()
}

fn pods_reach_each_other(test: &str, mode: Mode, tunnels: usize) {
    let this = || Plan { mode, topology: mode.usual_topology(), ipv6: true, ..plan(NODES.len()) };
    let Some(lab) = up(test, this) else { return };
    let pods = NODES.map(|node| add(&lab, node, &format!("shop/on-{node}")));
    assert!(pods.iter().all(|pod| pod.addresses.len() == 2), "{pods:?}");
    all_pings_answer(&lab);
    assert_eq!(NODES.map(|node| tunnels_of(&lab, node)), [tunnels; 3]);
    lab.plumb(&["doctor", "--settle", "2"]).unwrap();

    lab.kill("node1", "agent").unwrap();
    lab.start("node1", "agent", &[]).unwrap();
    add(&lab, "node1", "shop/later");
    all_pings_answer(&lab);

    for name in ["shop/later", "shop/on-node1"] {
        delete(&lab, "node1", name, true);
        assert!(read_pod(&lab, name).is_none());
    }
    let kept = [&pods[1].container_id, &pods[2].container_id];
    let held = holders(&lab);
    let sandboxes = held.iter().filter(|holder| !holder.contains("node"));
    assert!(sandboxes.clone().all(|holder| kept.contains(&holder)), "{held:?}");
    assert_eq!(sandboxes.count(), 2, "{held:?}");
    for node in NODES {
        let log = lab.log_tail(node, "agent", usize::MAX);
        assert!(log.contains(&format!("/{node}.kubeconfig")), "it is not the administrator: {log}");
        assert!(!log.contains("refuses access"), "{node}: {log}");
    }
}

#[test]
fn through_tunnels() {
    pods_reach_each_other("through_tunnels", Mode::Vxlan, 2);
}

#[test]
fn through_tunnels_between_networks_only() {
    pods_reach_each_other("through_tunnels_between_networks_only", Mode::Crosssubnet, 2);
}

#[test]
fn by_routes_of_bgp() {
    pods_reach_each_other("by_routes_of_bgp", Mode::Bgp, 0);
}
