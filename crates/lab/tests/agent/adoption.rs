//! Pods that were there before the agent: made by single calls, or by Calico. With an endpoint record and the runtime's
//! word they are taken over; without, nobody touches them. And what dead ones left is found wherever it is.

use std::collections::BTreeSet;
use std::net::IpAddr;

use lab::kubelet::Listing;
use lab::{CniCall, Pod};
use model::names::EndpointName;
use model::{Key, Kind};
use serde_json::json;

use crate::common::{Bench, DelOutcome as _, sandbox_of};
use crate::running::{Agent, wait_until};
use crate::stories::on_sqlite_and_kubernetes;

/// A runtime for the agent to ask, with these sandboxes.
pub(crate) fn runtime(bench: &Bench, ready: &[&Pod]) -> Listing {
    let folder = bench.state_folder();
    std::fs::create_dir_all(&folder).unwrap();
    let runtime = Listing::serve(&folder.join("cri.sock"), &folder.join("cri.json")).unwrap();
    for pod in ready {
        runtime.add(pod).unwrap();
    }
    runtime
}

/// An agent that asks the runtime often.
fn agent_with_runtime(bench: &Bench) -> Agent {
    let endpoint = format!("unix://{}/cri.sock", bench.state_folder().display());
    bench.agent(&[("CONTAINER_RUNTIME_ENDPOINT", &endpoint), ("PLUMB_GRACE", "1s")])
}

pub(crate) fn device_of(bench: &Bench, pod: &Pod) -> String {
    let endpoint: serde_json::Value = serde_json::from_str(&bench.endpoint_of(pod)).unwrap();
    endpoint["spec"]["interfaceName"].as_str().unwrap().to_owned()
}

fn alias_of(bench: &Bench, device: &str) -> Option<String> {
    let text = bench.node.namespace().ip(&["link", "show", "dev", device]).unwrap();
    text.lines().find_map(|line| line.trim().strip_prefix("alias ")).map(str::to_owned)
}

/// Leaves of a pod's network what Calico's plugin would have made: no alias, no permanent neighbours, and routes under
/// another number.
pub(crate) fn as_calico_made_it(bench: &Bench, pod: &Pod, address: IpAddr) -> String {
    let device = device_of(bench, pod);
    let (address, node) = (address.to_string(), bench.node.namespace());
    node.ip(&["link", "set", "dev", &device, "alias", ""]).unwrap();
    node.ip(&["neigh", "del", &address, "dev", &device]).unwrap();
    node.ip(&["route", "del", &address, "dev", &device]).unwrap();
    node.ip(&["route", "add", &address, "dev", &device, "scope", "link"]).unwrap();
    pod.netns().ip(&["neigh", "flush", "dev", "eth0", "nud", "permanent"]).unwrap();
    assert_eq!(alias_of(bench, &device), None);
    if let Some(cluster) = bench.cluster() {
        // Our plugin notes more on the pod than Calico's.
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let noted = json!({"metadata": {"annotations": {"plumbline.io/mac": null, "plumbline.io/interface-name": null}}});
        assert_eq!(cluster.api().patch("merge", &path, &noted).unwrap().status, 200);
    }
    device
}

/// The pod is looked after: what a stranger takes away comes back.
#[track_caller]
fn assert_protected(bench: &Bench, agent: &Agent, pod: &Pod, address: IpAddr) {
    let (address, device) = (address.to_string(), device_of(bench, pod));
    let node = bench.node.namespace();
    node.ip(&["route", "flush", "dev", &device]).unwrap();
    let is_back = || node.ip(&["route", "show", &address]).unwrap().contains("proto 112");
    wait_until(is_back, || agent.log());
    let has_neighbour = || node.ip(&["neigh", "show", &address]).unwrap().contains("PERMANENT");
    wait_until(has_neighbour, || agent.log());
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
}

fn pods_of_single_calls_are_taken_over(bench: &Bench) {
    let (pod, unlisted) = (bench.pod("shop", "web-0"), bench.pod("shop", "web-1"));
    let (address, other) = (bench.add(&pod).address().unwrap(), bench.add(&unlisted).address().unwrap());
    let _runtime = runtime(bench, &[&pod]);
    let agent = agent_with_runtime(bench);
    wait_until(|| bench.metric("attachments") == 1, || agent.log());
    assert_eq!(bench.metric("adopted_total"), 1);
    assert_protected(bench, &agent, &pod, address);
    // The entry survives a restart, and knows the namespace: a device that was deleted is made anew.
    agent.kill();
    let agent = bench.agent(&[]);
    let device = device_of(bench, &pod);
    bench.node.namespace().ip(&["link", "del", &device]).unwrap();
    let add = bench.agent_call("CHECK", &pod);
    let answer = bench.agent_add(&pod).result().unwrap();
    wait_until(
        || add.clone().with_netconf("prevResult", answer.clone()).run(&bench.node).unwrap().success,
        || agent.log(),
    );
    bench.assert_books_match_pods(&[(&pod, address), (&unlisted, other)]);
    for pod in [&pod, &unlisted] {
        bench.agent_del(pod).result_of_del();
    }
    bench.assert_nothing_left();
}

fn calicos_pods_are_taken_over_only_if_record_and_runtime_vouch(bench: &Bench) {
    let [pod, stopped, unlisted, late] =
        ["web-0", "web-1", "web-2", "late"].map(|name| bench.pod("shop", name));
    let address = bench.add(&pod).address().unwrap();
    let device = as_calico_made_it(bench, &pod, address);
    let others = [&stopped, &unlisted].map(|pod| bench.add(pod).address().unwrap());
    let foreign = [(&stopped, others[0]), (&unlisted, others[1])]
        .map(|(pod, address)| as_calico_made_it(bench, pod, address));
    // Calico's pods ask for their gateway, and the kernel answers for addresses that it has a route to.
    let node = bench.node.namespace();
    node.ip(&["link", "add", "uplink", "type", "veth", "peer", "name", "switch"]).unwrap();
    node.ip(&["link", "set", "uplink", "up"]).unwrap();
    node.ip(&["route", "add", "default", "dev", "uplink"]).unwrap();
    // One that no record knows.
    node.ip(&["link", "add", "cali0123456789a", "type", "veth", "peer", "name", "eth0"]).unwrap();
    node.ip(&["link", "set", "eth0", "netns", late.netns().name()]).unwrap();
    let strangers = || {
        let devices = [&*foreign[0], &*foreign[1], "cali0123456789a"];
        let links = devices.map(|name| node.ip(&["link", "show", name]).unwrap());
        let routes = devices.map(|name| node.ip(&["route", "show", "dev", name]).unwrap());
        (links, routes, [&stopped, &unlisted].map(|pod| bench.endpoint_of(pod)))
    };
    let before = strangers();

    let runtime = runtime(bench, &[&pod, &stopped]);
    runtime.stop(&stopped).unwrap();
    let agent = agent_with_runtime(bench);
    wait_until(|| bench.metric("attachments") == 1, || agent.log());
    assert_eq!(alias_of(bench, &device), Some(sandbox_of(&pod).alias()));
    let routes = node.ip(&["route", "show", "dev", &device]).unwrap();
    assert!(routes.contains("scope link") && !routes.contains("proto 112"), "Calico's serves: {routes}");
    assert_protected(bench, &agent, &pod, address);
    // A sandbox that comes to be known later shows that looks went by meanwhile.
    let third = bench.pod("shop", "third");
    bench.add(&third).result().unwrap();
    runtime.add(&third).unwrap();
    wait_until(|| bench.metric("attachments") == 2, || agent.log());
    assert_eq!(strangers(), before);

    for pod in [&pod, &third] {
        bench.agent_del(pod).result_of_del();
    }
    let left: BTreeSet<IpAddr> = bench.books().allocations().into_values().collect();
    assert_eq!(left, BTreeSet::from(others));
    assert_eq!(strangers(), before);
    assert_eq!(bench.metric("collected_total"), 0);
}

fn a_namespace_that_is_not_as_recorded_is_not_taken_over(bench: &Bench) {
    let pod = bench.pod("shop", "web-0");
    let address = bench.add(&pod).address().unwrap();
    let device = as_calico_made_it(bench, &pod, address);
    pod.netns().ip(&["addr", "flush", "dev", "eth0"]).unwrap();
    pod.netns().ip(&["addr", "add", "10.9.9.9/32", "dev", "eth0"]).unwrap();
    let _runtime = runtime(bench, &[&pod]);
    let agent = agent_with_runtime(bench);
    let reason = "its interface has other addresses than were recorded";
    wait_until(|| agent.log().contains(reason), || agent.log());
    assert_eq!((alias_of(bench, &device), bench.metric("attachments")), (None, 0));
}

#[test]
fn addresses_that_dead_sandboxes_borrowed_are_given_back() {
    let Some(bench) = Bench::empty("addresses_that_dead_sandboxes_borrowed_are_given_back") else { return };
    // One block in all, and the other node has it.
    bench.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/26"}));
    let owner = bench.lab.node("node-b").unwrap();
    let theirs = bench.pod("shop", "theirs");
    let kept = CniCall::new(&bench.lab, &owner, "ADD", &theirs).run(&owner).unwrap().address().unwrap();
    let (live, dead) = (bench.pod("shop", "live"), bench.pod("shop", "dead"));
    let borrowed = bench.add(&live).address().unwrap();
    bench.add(&dead).address().unwrap();
    assert_eq!(bench.books().allocations().len(), 3);
    // Nothing but the address is left of it.
    let name = EndpointName::of_pod(bench.node.name(), &dead.name, &dead.interface).compute().unwrap();
    bench.remove_record(&Key::namespaced(Kind::WorkloadEndpoint, &dead.namespace, name));
    dead.netns().delete().unwrap();

    let _runtime = runtime(&bench, &[&live]);
    let agent = agent_with_runtime(&bench);
    wait_until(|| bench.books().allocations().len() < 3, || agent.log());
    let left: Vec<IpAddr> = bench.books().allocations().into_values().collect();
    assert!(left.contains(&kept) && left.contains(&borrowed), "{left:?}");
    assert_eq!(bench.metric("collected_total"), 1);
    assert!(live.netns().can_ping(bench.node.address()).unwrap());
}

on_sqlite_and_kubernetes! {
    pods_of_single_calls_are_taken_over
    calicos_pods_are_taken_over_only_if_record_and_runtime_vouch
    a_namespace_that_is_not_as_recorded_is_not_taken_over
}
