//! The whole network of a sandbox that runs: made anew in place, healed, taken away again.

use lab::Lab;
use plan::Maker;
use plan::task::{KernelChange, PodNetwork, RepairTask, TaskOutcome};

use crate::{ADDRESS, Bench};

fn wire(bench: &Bench) -> PodNetwork {
    PodNetwork {
        network: Lab::NETWORK.to_owned(),
        container_id: bench.pod.container_id.clone(),
        interface: "eth0".to_owned(),
        device: bench.device(),
        addresses: vec![ADDRESS.parse().unwrap()],
        mac: Some(bench.wiring.pod.mac),
        mtu: Some(1450),
    }
}

fn can_talk(bench: &Bench) -> bool {
    let node = bench.node.namespace().can_ping(ADDRESS).unwrap();
    node && bench.pod.netns().can_ping(bench.node.address()).unwrap()
}

#[test]
fn a_sandbox_without_a_network_gets_one_and_loses_it_again() {
    let Some(bench) = Bench::bare("a_sandbox_without_a_network_gets_one_and_loses_it_again") else { return };
    let task = RepairTask::here(KernelChange::Wire(wire(&bench)));
    let undo = bench.does(&task);
    assert!(can_talk(&bench));
    assert_eq!(undo, RepairTask::here(KernelChange::Unwire(wire(&bench))));
    bench.does(&undo);
    assert!(!bench.node_ip("-o link").contains("cali") && !bench.pod_ip("-o link").contains("eth0"));
    bench.does(&task);
    assert!(can_talk(&bench));
}

#[test]
fn what_is_missing_is_added_in_place() {
    let Some(bench) = Bench::new("what_is_missing_is_added_in_place") else { return };
    let task = RepairTask::here(KernelChange::Wire(wire(&bench)));
    assert_eq!(bench.run(&task), TaskOutcome::Already);
    let device = bench.device();
    bench.node_ip(&format!("route del {ADDRESS}"));
    bench.node_ip(&format!("neigh del {ADDRESS} dev {device}"));
    bench.pod_ip("route flush table main");
    assert_eq!(bench.run(&task), TaskOutcome::Done { undo: None }, "there is nothing worth taking back");
    assert!(can_talk(&bench));
    assert_eq!(bench.run(&task), TaskOutcome::Already);
}

/// Somebody moved the node's end into the pod.
#[test]
fn an_end_that_was_moved_away_is_brought_back() {
    let Some(bench) = Bench::new("an_end_that_was_moved_away_is_brought_back") else { return };
    let (device, pod) = (bench.device(), bench.pod.netns().name().to_owned());
    bench.node_ip(&format!("link set {device} netns {pod}"));
    let task = RepairTask::here(KernelChange::Wire(wire(&bench)));
    assert_eq!(bench.run(&task), TaskOutcome::Done { undo: None });
    assert!(can_talk(&bench));
}

/// As Calico made it: no alias of ours, another protocol. On its node the new route is marked as its own are.
#[test]
fn what_calico_made_is_healed_in_its_own_way() {
    let Some(mut bench) = Bench::new("what_calico_made_is_healed_in_its_own_way") else { return };
    bench.context.maker = Maker::Calico;
    let device = bench.device();
    bench.node_ip(&format!("link set {device} alias calico"));
    bench.node_ip(&format!("route del {ADDRESS}"));
    let task = RepairTask::here(KernelChange::Wire(wire(&bench)));
    assert_eq!(bench.run(&task), TaskOutcome::Done { undo: None });
    let route = bench.node_ip(&format!("route show {ADDRESS}"));
    assert!(route.contains(&device) && !route.contains("proto"), "boot is not printed: {route}");
    assert!(can_talk(&bench));
}

#[test]
fn strangers_things_are_not_touched() {
    let Some(mut bench) = Bench::bare("strangers_things_are_not_touched") else { return };
    let task = RepairTask::here(KernelChange::Wire(wire(&bench)));
    let device = bench.device();
    // Another sandbox's, by its alias.
    bench.node_ip(&format!("link add {device} type veth peer name other"));
    bench.node_ip(&format!("link set {device} alias plumb/{}/somebody/eth0", Lab::NETWORK));
    bench.refuses(&task, "another sandbox's");
    bench.node_ip(&format!("link del {device}"));
    // The pod has an interface of that name already, from elsewhere.
    bench.pod_ip("link add eth0 type veth peer name elsewhere");
    bench.refuses(&task, "from somebody else");
    bench.pod_ip("link del eth0");
    // Somebody's route to that address.
    bench.node_ip(&format!("route add {ADDRESS} dev lo"));
    bench.refuses(&task, "");
    bench.node_ip(&format!("route del {ADDRESS}"));
    let unwire = RepairTask::here(KernelChange::Unwire(wire(&bench)));
    assert_eq!(bench.run(&unwire), TaskOutcome::Already);
    for broken in [
        PodNetwork { addresses: Vec::new(), ..wire(&bench) },
        PodNetwork { addresses: vec!["127.0.0.1".parse().unwrap()], ..wire(&bench) },
        PodNetwork { network: "../x".to_owned(), ..wire(&bench) },
        PodNetwork { device: "eth0".to_owned(), ..wire(&bench) },
    ] {
        bench.refuses(&RepairTask::here(KernelChange::Wire(broken)), "");
    }
    bench.context.ready = Some(Vec::new());
    bench.refuses(&task, "does not list");
    bench.context.ready = None;
    bench.refuses(&task, "cannot be asked");
}
