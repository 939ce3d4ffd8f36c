//! Faults of endpoint records, pods, policies and logs.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::civil::DateTime;
use model::{FindingCode, Kind};
use serde_json::json;

use super::books::block;
use super::{Inject, OTHER, PODS};
use evidence::log::CniCommand;
use evidence::sample::{node_address, node_name, record};
use evidence::{Endpoint, Evidence, Happening, LogEvent, Origin, PodName, Sighted};

pub(super) const FAULTS: &[(FindingCode, Inject)] = &[
    (FindingCode::AddFailing, add_failing),
    (FindingCode::AddressOutsidePools, address_outside_pools),
    (FindingCode::AddressShared, address_shared),
    (FindingCode::BgpMeshOff, bgp_mesh_off),
    (FindingCode::BgpRecordUnfit, bgp_record_unfit),
    (FindingCode::ClusterRoutesContradictory, cluster_routes_contradictory),
    (FindingCode::DelRetried, del_retried),
    (FindingCode::DeviceShared, device_shared),
    (FindingCode::EndpointAddressDiffers, endpoint_address_differs),
    (FindingCode::EndpointMisplaced, endpoint_misplaced),
    (FindingCode::EndpointOfOldSandbox, endpoint_of_old_sandbox),
    (FindingCode::EndpointOnTwoNodes, endpoint_on_two_nodes),
    (FindingCode::EndpointWithoutContainerId, endpoint_without_container_id),
    (FindingCode::EndpointWithoutPod, endpoint_without_pod),
    (FindingCode::EndpointWithoutSandbox, endpoint_without_sandbox),
    (FindingCode::ModeUnsupported, mode_unsupported),
    (FindingCode::PodReplacedWithoutDel, pod_replaced_without_del),
    (FindingCode::PodWithoutEndpoint, pod_without_endpoint),
    (FindingCode::PolicyNotEnforced, policy_not_enforced),
    (FindingCode::PoolContainsNodes, pool_contains_nodes),
    (FindingCode::StaleDel, stale_del),
    (FindingCode::StoreLocked, store_locked),
    (FindingCode::StoreUnstable, store_unstable),
];

fn store_locked(evidence: &mut Evidence, _: usize) -> String {
    evidence.records.add(record(Kind::ClusterInformation, "default", json!({"datastoreReady": false})));
    "cluster".to_owned()
}

fn pool_contains_nodes(evidence: &mut Evidence, node: usize) -> String {
    let name = format!("lan-{node}");
    let spec = json!({"cidr": format!("{}/32", node_address(node)), "blockSize": 32});
    evidence.records.add(record(Kind::IpPool, &name, spec));
    format!("IPPool({name})")
}

fn bgp_mesh_off(evidence: &mut Evidence, _: usize) -> String {
    if evidence.records.find(Kind::BgpConfiguration, "default").is_none() {
        evidence.records.add(record(Kind::BgpConfiguration, "default", json!({})));
    }
    for bgp in evidence.records.all_mut(Kind::BgpConfiguration) {
        bgp.seen.spec_mut().insert("nodeToNodeMeshEnabled".to_owned(), json!(false));
    }
    // Where all pools go through VXLAN, nobody misses the mesh.
    evidence.records.add(record(Kind::IpPool, "routed", json!({"cidr": "10.99.0.0/16", "blockSize": 26})));
    "BGPConfiguration(default)".to_owned()
}

fn cluster_routes_contradictory(evidence: &mut Evidence, node: usize) -> String {
    let name = format!("node.{}", node_name(node));
    let spec = json!({"programClusterRoutes": "Enabled"});
    evidence.records.add(record(Kind::FelixConfiguration, &name, spec.clone()));
    if evidence.records.find(Kind::BgpConfiguration, "default").is_none() {
        evidence.records.add(record(Kind::BgpConfiguration, "default", spec));
    }
    format!("FelixConfiguration({name})")
}

/// Records come and go, so they are found by the pod's number.
pub(super) fn endpoint(evidence: &mut Evidence, number: usize) -> &mut Sighted<Endpoint> {
    let name = format!("web-{number}");
    let endpoints = evidence.endpoints.as_mut().unwrap();
    endpoints.iter_mut().find(|endpoint| endpoint.seen.pod.as_deref() == Some(&name)).unwrap()
}

fn subject(evidence: &mut Evidence, number: usize) -> String {
    format!("endpoint {}", endpoint(evidence, number).seen)
}

fn pod_name(number: usize) -> PodName {
    PodName::new(format!("team-{}", number % 50), format!("web-{number}"))
}

/// Moves everything of a pod to another address; what the books held is given back.
fn readdress(evidence: &mut Evidence, node: usize, number: usize, to: IpAddr) {
    let ordinal = number - node * PODS;
    let endpoint = endpoint(evidence, number);
    let from = std::mem::replace(&mut endpoint.seen.addresses, vec![to])[0];
    let pods = evidence.pods.as_mut().unwrap();
    pods.iter_mut().find(|pod| pod.seen.addresses == [from]).unwrap().seen.addresses = vec![to];
    let handle = block(evidence, node).attribute(ordinal).unwrap().handle().cloned().unwrap();
    evidence.ipam.as_mut().unwrap().books.handles.remove(&handle);
    ::ipam::give_back(block(evidence, node), &[ordinal], None);
    let host = evidence.node_mut(node_name(node));
    let kernel = &mut host.kernel;
    for route in
        kernel.routes.iter_mut().flatten().filter(|route| route.seen.destination == IpNet::from(from))
    {
        route.seen.destination = IpNet::from(to);
    }
    for neighbour in kernel.neighbours.iter_mut().flatten().filter(|neighbour| neighbour.seen.address == from)
    {
        neighbour.seen.address = to;
    }
    for held in host.attachments.iter_mut().flatten().filter(|held| held.seen.addresses == [from]) {
        held.seen.addresses = vec![to];
    }
    let inside =
        host.pod_views.iter_mut().flatten().flat_map(|view| view.kernel.addresses.iter_mut().flatten());
    for held in inside.filter(|held| held.seen.net.addr() == from) {
        held.seen.net = IpNet::from(to);
    }
}

fn address_outside_pools(evidence: &mut Evidence, node: usize) -> String {
    let to = IpAddr::from([192, 0, 2, node as u8]);
    readdress(evidence, node, node * PODS, to);
    to.to_string()
}

/// The second pod of the node has the first one's address, and the route leads to the first.
fn address_shared(evidence: &mut Evidence, node: usize) -> String {
    let shared = endpoint(evidence, node * PODS).seen.addresses[0];
    let second = endpoint(evidence, node * PODS + 1).seen.device.clone();
    readdress(evidence, node, node * PODS + 1, shared);
    let routes = evidence.node_mut(node_name(node)).kernel.routes.as_mut().unwrap();
    routes.retain(|route| route.seen.device != second);
    shared.to_string()
}

fn device_shared(evidence: &mut Evidence, node: usize) -> String {
    let device = endpoint(evidence, node * PODS).seen.device.clone().unwrap();
    endpoint(evidence, node * PODS + 1).seen.device = Some(device.clone());
    format!("device {device} on {}", node_name(node))
}

fn endpoint_address_differs(evidence: &mut Evidence, node: usize) -> String {
    let name = pod_name(node * PODS);
    let shown = block(evidence, node).address(40).unwrap();
    let pods = evidence.pods.as_mut().unwrap();
    pods.iter_mut().find(|pod| pod.seen.name == name).unwrap().seen.addresses = vec![shown];
    format!("pod {name}")
}

fn endpoint_misplaced(evidence: &mut Evidence, node: usize) -> String {
    endpoint(evidence, node * PODS).seen.node = Some(node_name(OTHER).into());
    subject(evidence, node * PODS)
}

fn endpoint_of_old_sandbox(evidence: &mut Evidence, node: usize) -> String {
    endpoint(evidence, node * PODS).seen.container_id = Some("ef".repeat(32));
    subject(evidence, node * PODS)
}

fn endpoint_on_two_nodes(evidence: &mut Evidence, node: usize) -> String {
    let mut second = endpoint(evidence, node * PODS).clone();
    second.seen.node = Some(node_name(OTHER).into());
    second.seen.name = format!("left-{node}");
    evidence.endpoints.as_mut().unwrap().push(second);
    format!("pod {}", pod_name(node * PODS))
}

fn endpoint_without_container_id(evidence: &mut Evidence, node: usize) -> String {
    endpoint(evidence, node * PODS).seen.container_id = None;
    subject(evidence, node * PODS)
}

fn endpoint_without_pod(evidence: &mut Evidence, node: usize) -> String {
    let name = pod_name(node * PODS);
    evidence.pods.as_mut().unwrap().retain(|pod| pod.seen.name != name);
    let host = evidence.node_mut(node_name(node));
    host.sandboxes.as_mut().unwrap().retain(|sandbox| sandbox.seen.pod != name);
    host.pod_views.as_mut().unwrap().retain(|view| view.pod.as_ref() != Some(&name));
    host.attachments.as_mut().unwrap().retain(|held| held.seen.pod.as_ref() != Some(&name));
    // Its namespace took both ends of the veth with it.
    let device = endpoint(evidence, node * PODS).seen.device.clone().unwrap();
    let links = evidence.node_mut(node_name(node)).kernel.links.as_mut().unwrap();
    links.retain(|link| link.seen.name != device);
    super::kernel::forget_device(evidence, node, &device);
    subject(evidence, node * PODS)
}

fn endpoint_without_sandbox(evidence: &mut Evidence, node: usize) -> String {
    let name = pod_name(node * PODS);
    let sandboxes = evidence.node_mut(node_name(node)).sandboxes.as_mut().unwrap();
    sandboxes.iter_mut().find(|sandbox| sandbox.seen.pod == name).unwrap().seen.is_ready = Some(false);
    subject(evidence, node * PODS)
}

fn pod_without_endpoint(evidence: &mut Evidence, node: usize) -> String {
    let name = pod_name(node * PODS);
    let endpoints = evidence.endpoints.as_mut().unwrap();
    endpoints.retain(|endpoint| endpoint.seen.pod_name().as_ref() != Some(&name));
    // As on a node of Calico, whose agent has no journal.
    evidence.node_mut(node_name(node)).attachments = None;
    format!("pod {name}")
}

fn mode_unsupported(evidence: &mut Evidence, node: usize) -> String {
    let spec = json!({"cidr": format!("10.8{node}.0.0/16"), "ipipMode": "Always"});
    evidence.records.add(record(Kind::IpPool, &format!("ipip-{node}"), spec));
    format!("IPPool(ipip-{node})")
}

fn policy_not_enforced(evidence: &mut Evidence, _: usize) -> String {
    for node in evidence.records.all_mut(Kind::Node) {
        node.seen
            .metadata
            .annotations
            .insert("plumbline.io/policies-not-enforced".to_owned(), "1".to_owned());
    }
    evidence.records.add(record(Kind::GlobalNetworkPolicy, "deny", json!({"selector": "all()"})));
    "cluster".to_owned()
}

fn log(evidence: &mut Evidence, node: usize, events: Vec<Happening>) {
    let start: DateTime = "2026-08-22T05:00:00".parse().unwrap();
    let log = evidence.log.get_or_insert_default();
    for (second, what) in (1i64..).zip(events) {
        let at = Some(start + jiff::SignedDuration::from_secs(second));
        let event = LogEvent { at, node: Some(node_name(node).into()), what, count: 1, last_at: None };
        log.push(Sighted::new(event, Origin::line(format!("kubelet-{node}.log"), second as u32, "…")));
    }
}

/// A pod that only logs know.
fn former(node: usize) -> PodName {
    PodName::new("logs", format!("db-{node}"))
}

fn call(node: usize, command: CniCommand, id: &str) -> Happening {
    let pod = Some(former(node));
    Happening::CniCall { command, container_id: id.repeat(16), pod, interface: None, netns: None }
}

fn bgp_record_unfit(evidence: &mut Evidence, node: usize) -> String {
    let name = format!("router-{node}");
    let spec =
        json!({"node": node_name(node), "peerIP": "172.16.250.1", "asNumber": 65000, "keepaliveTime": "24h"});
    evidence.records.add(record(Kind::BgpPeer, &name, spec));
    format!("BGPPeer({name})")
}

fn add_failing(evidence: &mut Evidence, node: usize) -> String {
    let failed = |_| Happening::CniFailed {
        command: CniCommand::Add,
        container_id: None,
        pod: Some(former(node)),
        error: "no address".to_owned(),
    };
    log(evidence, node, (0..2).map(failed).collect());
    format!("pod {}", former(node))
}

fn del_retried(evidence: &mut Evidence, node: usize) -> String {
    let id = format!("{node}abc");
    let pod = Some(former(node));
    let failed = Happening::SandboxStopFailed { container_id: id.repeat(16), pod, error: "no".to_owned() };
    log(evidence, node, vec![call(node, CniCommand::Del, &id), failed, call(node, CniCommand::Del, &id)]);
    format!("sandbox {}", id.repeat(3))
}

fn stale_del(evidence: &mut Evidence, node: usize) -> String {
    let deleted = Happening::EndpointDeleted { pod: Some(former(node)), node: None };
    log(
        evidence,
        node,
        vec![call(node, CniCommand::Add, "feed"), call(node, CniCommand::Del, "dead"), deleted],
    );
    format!("pod {}", former(node))
}

fn pod_replaced_without_del(evidence: &mut Evidence, node: usize) -> String {
    // An address that is allocated, so that the books do not contradict the suspicion.
    let old = endpoint(evidence, node * PODS).seen.addresses[0];
    let new = endpoint(evidence, node * PODS + 1).seen.addresses[0];
    let has = |address| Happening::PodAddress {
        pod: former(node),
        pod_uid: Some(format!("uid-of-{address}")),
        address,
        containers: Vec::new(),
        started_at: None,
    };
    log(evidence, node, vec![has(old), has(new)]);
    format!("pod {}", former(node))
}

fn store_unstable(evidence: &mut Evidence, node: usize) -> String {
    let trouble = || Happening::StoreTrouble { message: "etcdserver: leader changed".to_owned() };
    log(evidence, node, vec![trouble(), trouble()]);
    "cluster".to_owned()
}
