//! The tunnel to other nodes: its device in every state that a repair may ask for, and what it knows of its ends.

use plan::task::{KernelChange, RepairTask, TaskOutcome, Tunnel};

use crate::{Bench, route, through};

const DEVICE: &str = "vxlan.calico";

fn tunnel() -> Tunnel {
    Tunnel {
        vni: 4096,
        port: 4789,
        local: "192.0.2.1".parse().unwrap(),
        parent: "card".to_owned(),
        mac: "66:00:00:00:00:01".parse().unwrap(),
        mtu: 1400,
        address: "10.244.0.0".parse().ok(),
        is_up: true,
    }
}

fn change(from: Option<Tunnel>, to: Option<Tunnel>) -> RepairTask {
    RepairTask::here(KernelChange::Tunnel { device: DEVICE.to_owned(), from, to })
}

fn with_card(test: &str) -> Option<Bench> {
    let bench = Bench::new(test)?;
    for command in
        ["link add card type veth peer name wall", "link set card up", "address add 192.0.2.1/24 dev card"]
    {
        bench.node_ip(command);
    }
    Some(bench)
}

/// Refused for this reason. The kernel gives a device that has come up an address of its own, in its own time: only the answer is compared.
#[track_caller]
fn surprises(bench: &Bench, task: &RepairTask, reason: &str) {
    let refused = bench.run(task);
    assert!(
        matches!(&refused, TaskOutcome::Surprise { said } if said.contains(reason)),
        "{task}: {refused:?}"
    );
}

#[test]
fn a_tunnels_device_is_made_changed_and_taken_back() {
    let Some(bench) = with_card("a_tunnels_device_is_made_changed_and_taken_back") else { return };
    bench.does_and_takes_back(&change(None, Some(tunnel())));
    bench.does(&change(None, Some(tunnel())));
    let states = [
        Tunnel { address: None, ..tunnel() },
        Tunnel { is_up: false, ..tunnel() },
        Tunnel { mac: "66:00:00:00:00:02".parse().unwrap(), ..tunnel() },
        Tunnel { address: "10.244.9.9".parse().ok(), ..tunnel() },
        Tunnel { vni: 99, ..tunnel() },
        Tunnel { port: 8472, mtu: 1300, ..tunnel() },
    ];
    for state in states {
        bench.does_and_takes_back(&change(Some(tunnel()), Some(state.clone())));
        surprises(&bench, &change(Some(state), None), "VNI 4096, port 4789");
    }
    // One that can be changed in place keeps what leads through it.
    let to = "10.244.7.0/26";
    bench.does(&route(to, None, Some(through(DEVICE))));
    bench.does_and_takes_back(&change(
        Some(tunnel()),
        Some(Tunnel { mac: "66:00:00:00:00:02".parse().unwrap(), ..tunnel() }),
    ));
    assert!(bench.node_ip("route show").contains(to));
}

#[test]
fn only_tunnels_to_other_nodes_are_made() {
    let Some(bench) = with_card("only_tunnels_to_other_nodes_are_made") else { return };
    let named = |device: &str| {
        RepairTask::here(KernelChange::Tunnel { device: device.to_owned(), from: None, to: Some(tunnel()) })
    };
    bench.refuses(&named("flannel.1"), "not the name of a tunnel");
    bench.refuses(&named("../x"), "not the name of a tunnel");
    bench.node_ip(&format!("link add {DEVICE} type veth peer name none"));
    bench.refuses(&named(DEVICE), "is no VXLAN device");
    let inside = RepairTask { inside: Some(bench.pod.container_id.clone()), ..named(DEVICE) };
    bench.refuses(&inside, "not inside a sandbox");
}

#[test]
fn ends_of_tunnels_become_known_and_forgotten() {
    let Some(bench) = with_card("ends_of_tunnels_become_known_and_forgotten") else { return };
    bench.does(&change(None, Some(tunnel())));
    let node = |text: &str| text.parse().ok();
    let (one, other) = (node("192.0.2.7"), node("192.0.2.8"));
    let forward = |from, to| {
        let (device, mac) = (DEVICE.to_owned(), "66:00:00:00:00:07".parse().unwrap());
        RepairTask::here(KernelChange::Forward { device, mac, from, to })
    };
    bench.does_and_takes_back(&forward(None, one));
    bench.does(&forward(None, one));
    bench.does_and_takes_back(&forward(one, other));
    surprises(&bench, &forward(other, None), "66:00:00:00:00:07 behind 192.0.2.7");
    bench.does(&forward(one, None));
    let nowhere = RepairTask::here(KernelChange::Forward {
        device: "nosuch".to_owned(),
        mac: "66:00:00:00:00:07".parse().unwrap(),
        from: None,
        to: one,
    });
    surprises(&bench, &nowhere, "there is no device nosuch");
}
