//! Pods made and removed by containerd, which calls our plugin in its own ways.

use std::collections::BTreeSet;
use std::thread;

use host::cri::SandboxState;
use host::cri::messages::PortMapping;
use model::Kind;
use serde_json::json;
use testkit::process::{Process, run, wait_until};

use crate::containerd::{self, Containerd};
use crate::machine::NODE_ADDRESS;
use crate::node::{self, Node, Service};

with_and_without_agent! {
    pods_of_containerd_talk_and_leave_nothing,
    many_pods_at_once_get_an_address_each,
    a_pod_that_gets_no_address_leaves_nothing_and_can_be_tried_again,
    a_chain_that_breaks_after_us_leaves_nothing,
    pods_live_on_when_containerd_is_killed_and_started_again,
    after_a_power_cut_the_runtimes_dels_find_all_that_is_left,
    portmap_behind_us_leads_to_the_pod,
    bandwidth_behind_us_limits_the_pod,
}

/// `None`, with the reason reported, where containerd cannot run.
fn node(test: &str, service: Service) -> Option<Node> {
    Node::start_unless(test, containerd::missing(), service)
}

fn containerd(node: &Node) -> Containerd<'_> {
    let containerd = Containerd::start(node).unwrap();
    containerd.wait_for_network().unwrap();
    containerd
}

fn pods_of_containerd_talk_and_leave_nothing(test: &str, service: Service) {
    let Some(node) = node(test, service) else { return };
    let containerd = containerd(&node);
    let pods = ["web", "db"].map(|name| containerd.run(containerd.new_pod(name)).unwrap());
    node.assert_pods(2);
    for (own, other) in [(&pods[0], &pods[1]), (&pods[1], &pods[0])] {
        assert!(node.machine.can_ping(&own.netns, NODE_ADDRESS));
        assert!(node.machine.can_ping(&own.netns, &other.address.to_string()));
    }
    for (pod, left) in pods.iter().zip([1, 0]) {
        containerd.end(&pod.id).unwrap();
        node.assert_pods(left);
        // With the namespace, and again without one when the sandbox is removed.
        let calls = node.calls_for(&pod.id);
        assert_eq!(calls.first().map(String::as_str), Some("ADD netns"));
        assert_eq!(calls.last().map(String::as_str), Some("DEL -"));
        assert!(calls.iter().filter(|call| call.starts_with("DEL")).count() >= 2, "{calls:?}");
    }
}

fn many_pods_at_once_get_an_address_each(test: &str, service: Service) {
    let Some(node) = node(test, service) else { return };
    let containerd = containerd(&node);
    let count = 20;
    let pods: Vec<_> = thread::scope(|scope| {
        let run = |number: usize| containerd.run(containerd.new_pod(&format!("web-{number}"))).unwrap();
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    node.assert_pods(count);
    assert!(node.machine.can_ping(&pods[0].netns, &pods[count - 1].address.to_string()));
    // The arguments come in whatever order; nothing may depend on it.
    let adds: Vec<_> = node.calls().into_iter().filter(|call| call.verb == "ADD").collect();
    let first = |arguments: &str| arguments.split('=').next().unwrap_or_default().to_owned();
    let orders: BTreeSet<_> = adds.iter().map(|call| first(&call.arguments)).collect();
    println!("CNI_ARGS began with {orders:?}");
    thread::scope(|scope| {
        for pod in &pods {
            let containerd = &containerd;
            scope.spawn(move || containerd.end(&pod.id).unwrap());
        }
    });
    node.assert_pods(0);
}

fn a_pod_that_gets_no_address_leaves_nothing_and_can_be_tried_again(test: &str, service: Service) {
    let Some(node) = node(test, service) else { return };
    let containerd = containerd(&node);
    let pool = |disabled: bool| json!({"cidr": "10.244.0.0/16", "disabled": disabled});
    node.books.put(Kind::IpPool, "pods", pool(true));
    let error = containerd.run(containerd.new_pod("web")).unwrap_err();
    // What the plugin said comes through to whoever reads kubelet's events.
    assert!(format!("{error:#}").contains("pool"), "{error:#}");
    let verbs: Vec<String> = node.calls().into_iter().map(|call| call.verb).collect();
    assert_eq!(verbs[..2], ["ADD", "DEL"], "{verbs:?}");
    node.assert_pods(0);
    node.books.put(Kind::IpPool, "pods", pool(false));
    let pod = containerd.run(containerd.new_pod("web")).unwrap();
    assert!(node.machine.can_ping(&pod.netns, NODE_ADDRESS));
    containerd.end_all().unwrap();
    node.assert_pods(0);
}

fn a_chain_that_breaks_after_us_leaves_nothing(test: &str, service: Service) {
    let Some(node) = node(test, service) else { return };
    let containerd = containerd(&node);
    let pod = containerd.run(containerd.new_pod("before")).unwrap();
    node.configure("1.0.0", &[json!({"type": "refuses"})]).unwrap();
    // Containerd notices the new configuration by itself, a moment later.
    wait_until("a pod to be refused", || match containerd.run(containerd.new_pod("web")) {
        Ok(pod) => containerd.end(&pod.id).is_err(),
        Err(_) => true,
    })
    .unwrap();
    assert_eq!(node.calls().last().map(|call| call.verb.clone()), Some("DEL".to_owned()));
    node.assert_pods(1);
    assert!(node.machine.can_ping(&pod.netns, NODE_ADDRESS));
    containerd.end_all().unwrap();
    node.assert_pods(0);
}

fn pods_live_on_when_containerd_is_killed_and_started_again(test: &str, service: Service) {
    let Some(node) = node(test, service) else { return };
    let mut containerd = containerd(&node);
    let pods = ["web", "db"].map(|name| containerd.run(containerd.new_pod(name)).unwrap());
    containerd.restart().unwrap();
    let sandboxes = containerd.sandboxes().unwrap();
    assert_eq!(sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready).count(), 2);
    node.assert_pods(2);
    assert!(node.machine.can_ping(&pods[0].netns, &pods[1].address.to_string()));
    containerd.end(&pods[0].id).unwrap();
    node.assert_pods(1);
    containerd.restart().unwrap();
    containerd.end_all().unwrap();
    node.assert_pods(0);
}

/// The kernel has forgotten everything, the runtime and the store have not.
fn after_a_power_cut_the_runtimes_dels_find_all_that_is_left(test: &str, service: Service) {
    let Some(node) = node(test, service) else { return };
    let mut containerd = containerd(&node);
    for name in ["web", "db"] {
        containerd.run(containerd.new_pod(name)).unwrap();
    }
    node.assert_pods(2);
    containerd.lose_power().unwrap();
    containerd.wait_for_network().unwrap();
    let pod = containerd.run(containerd.new_pod("web")).unwrap();
    assert!(node.machine.can_ping(&pod.netns, NODE_ADDRESS));
    for sandbox in containerd.sandboxes().unwrap().iter().filter(|sandbox| sandbox.id != pod.id) {
        containerd.end(&sandbox.id).unwrap();
    }
    node.assert_pods(1);
    assert!(node.machine.can_ping(&pod.netns, NODE_ADDRESS));
    containerd.end_all().unwrap();
    node.assert_pods(0);
}

fn portmap_behind_us_leads_to_the_pod(test: &str, service: Service) {
    let Some(node) = Node::start_with_portmap(test, containerd::missing(), service) else { return };
    let containerd = containerd(&node);
    let mut config = containerd.new_pod("web");
    config.port_mappings =
        vec![PortMapping { protocol: 0, container_port: 8080, host_port: 18_080, ..PortMapping::default() }];
    let pod = containerd.run(config).unwrap();
    let mut server = node.machine.command("nsenter");
    server.arg(format!("--net={}", pod.netns.display()));
    server.args(["busybox", "nc", "-ll", "-p", "8080", "-e", "echo", "from the pod"]);
    let _server = Process::spawn(server).unwrap();
    wait_until("an answer through the mapped port", || {
        let asked = node.machine.run("busybox", &["nc", "-w", "5", NODE_ADDRESS, "18080"]);
        asked.is_ok_and(|answer| answer.contains("from the pod"))
    })
    .unwrap();
    containerd.end(&pod.id).unwrap();
    node.assert_pods(0);
    assert!(!node.maps_port(18_080));
}

fn bandwidth_behind_us_limits_the_pod(test: &str, service: Service) {
    if let Some(reason) = node::missing_plugin(&["bandwidth"]) {
        return testkit::skip(test, &reason);
    }
    let Some(node) = node(test, service) else { return };
    for arguments in [&["link", "add", "probe", "type", "ifb"][..], &["link", "del", "probe"]] {
        if let Err(error) = run(node.machine.command("ip").args(arguments)) {
            return testkit::skip(test, &format!("this kernel has no ifb devices: {error:#}"));
        }
    }
    node.configure("1.0.0", &[json!({"type": "bandwidth", "capabilities": {"bandwidth": true}})]).unwrap();
    let containerd = containerd(&node);
    let mut config = containerd.new_pod("web");
    for direction in ["ingress", "egress"] {
        config.annotations.insert(format!("kubernetes.io/{direction}-bandwidth"), "10M".to_owned());
    }
    let pod = containerd.run(config).unwrap();
    let shapers = node.machine.run("tc", &["qdisc", "show"]).unwrap();
    let limits = shapers.lines().filter(|line| line.contains("tbf") && line.contains("10Mbit")).count();
    assert_eq!(limits, 2, "{shapers}");
    assert!(node.machine.can_ping(&pod.netns, NODE_ADDRESS));
    containerd.end(&pod.id).unwrap();
    node.assert_pods(0);
    // The veth is out of service with the answer to DEL and removed soon after; bandwidth's own device goes with DEL.
    wait_until("only the loopback device is left", || {
        node.machine.run("ip", &["-br", "link"]).is_ok_and(|links| links.lines().count() == 1)
    })
    .unwrap();
}

/// Calls that never reached us: the runtime's list, and the kernel, say that the sandbox is no more.
#[test]
fn the_runtimes_own_list_tells_the_agent_what_leaked() {
    let test = "the_runtimes_own_list_tells_the_agent_what_leaked";
    let Some(node) = node(test, Service::Agent) else { return };
    let containerd = containerd(&node);
    let pods = ["web", "db"].map(|name| containerd.run(containerd.new_pod(name)).unwrap());
    node.with_calls_lost(|| containerd.end(&pods[0].id)).unwrap().unwrap();
    assert_eq!(node.calls_for(&pods[0].id), ["ADD netns"]);
    // Two looks of the agent, and all of it is gone; the pod that the runtime lists stays.
    node.assert_pods(1);
    assert!(node.books.handles().iter().all(|handle| handle.contains(&pods[1].id)));
    assert!(node.machine.can_ping(&pods[1].netns, NODE_ADDRESS));
    containerd.end_all().unwrap();
    node.assert_pods(0);
}
