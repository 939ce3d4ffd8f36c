//! Containers made and removed by podman, which knows no Kubernetes: no pod's namespace, other arguments.

use std::thread;

use serde_json::json;

use crate::machine::NODE_ADDRESS;
use crate::node::{Node, Service};
use crate::podman::{self, Podman};

with_and_without_agent! {
    containers_of_podman_talk_and_leave_nothing,
    many_containers_of_podman_at_once_get_an_address_each,
    a_container_that_podman_cannot_start_leaves_nothing,
    podman_publishes_ports_through_portmap,
}

/// `None`, with the reason reported, where podman cannot run.
fn node(test: &str, service: Service) -> Option<Node> {
    Node::start_unless(test, podman::missing(), service)
}

fn containers_of_podman_talk_and_leave_nothing(test: &str, service: Service) {
    let Some(node) = node(test, service) else { return };
    let podman = Podman::new(&node).unwrap();
    let addresses = ["web", "db"].map(|name| podman.start(name, &[]).unwrap());
    node.assert_pods(2);
    assert_ne!(addresses[0], addresses[1]);
    for (name, other) in [("web", addresses[1]), ("db", addresses[0])] {
        assert!(podman.can_ping(name, NODE_ADDRESS));
        assert!(podman.can_ping(name, &other.to_string()));
    }
    // Stopping a container ends its network, starting it again makes a new one.
    podman.run(&["restart", "--time", "0", "web"]).unwrap();
    node.assert_pods(2);
    assert!(podman.can_ping("web", &addresses[1].to_string()));
    for (name, left) in [("web", 1), ("db", 0)] {
        podman.run(&["rm", "--force", "--time", "0", name]).unwrap();
        node.assert_pods(left);
    }
}

fn many_containers_of_podman_at_once_get_an_address_each(test: &str, service: Service) {
    let Some(node) = node(test, service) else { return };
    let podman = Podman::new(&node).unwrap();
    let names: Vec<String> = (0..6).map(|number| format!("web-{number}")).collect();
    thread::scope(|scope| {
        for name in &names {
            let podman = &podman;
            scope.spawn(move || podman.start(name, &[]).unwrap());
        }
    });
    node.assert_pods(names.len());
    podman.run(&["rm", "--force", "--time", "0", "--all"]).unwrap();
    node.assert_pods(0);
}

fn a_container_that_podman_cannot_start_leaves_nothing(test: &str, service: Service) {
    let Some(node) = node(test, service) else { return };
    let podman = Podman::new(&node).unwrap();
    // The network is there before podman finds out that there is nothing to run.
    podman.start("web", &["--entrypoint", "/bin/no-such-program"]).unwrap_err();
    assert!(node.calls().iter().any(|call| call.verb == "ADD"), "{:?}", node.calls());
    podman.run(&["rm", "--force", "web"]).unwrap();
    node.assert_pods(0);
    // Here it is the network that fails, after our part of it.
    node.configure("1.0.0", &[json!({"type": "refuses"})]).unwrap();
    podman.start("web", &[]).unwrap_err();
    podman.run(&["rm", "--force", "web"]).unwrap();
    node.assert_pods(0);
}

fn podman_publishes_ports_through_portmap(test: &str, service: Service) {
    let Some(node) = Node::start_with_portmap(test, podman::missing(), service) else { return };
    let podman = Podman::new(&node).unwrap();
    podman.start("web", &["--publish", "18080:8080"]).unwrap();
    assert!(node.maps_port(18_080));
    podman.run(&["rm", "--force", "--time", "0", "web"]).unwrap();
    node.assert_pods(0);
    assert!(!node.maps_port(18_080));
}
