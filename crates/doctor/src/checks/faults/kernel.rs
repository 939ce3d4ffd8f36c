//! Faults of kernels: on the node, inside pods, and between nodes.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{FindingCode, Kind};
use plan::DeviceSetting;
use serde_json::json;

use super::records::endpoint;
use super::{Inject, OTHER, PODS};
use evidence::firewall::{Chain, Hook, Place};
use evidence::kernel::{Link, NeighbourState, PodView, Route, Vxlan};
use evidence::probe::Echo;
use evidence::sample::{block_cidr, node_address, node_name, record};
use evidence::{Evidence, NodeEvidence, Origin, Sighted};

pub(super) const FAULTS: &[(FindingCode, Inject)] = &[
    (FindingCode::BlockRouteMissing, block_route_missing),
    (FindingCode::DeviceDown, device_down),
    (FindingCode::DeviceSettingWrong, device_setting_wrong),
    (FindingCode::DeviceWithoutEndpoint, device_without_endpoint),
    (FindingCode::EndpointWithoutDevice, endpoint_without_device),
    (FindingCode::ForwardingDropped, forwarding_dropped),
    (FindingCode::MtuDiffers, mtu_differs),
    (FindingCode::MtuTooLarge, mtu_too_large),
    (FindingCode::NatMissing, nat_missing),
    (FindingCode::NeighbourMissing, neighbour_missing),
    (FindingCode::NeighbourWithoutEndpoint, neighbour_without_endpoint),
    (FindingCode::NeighbourWrong, neighbour_wrong),
    (FindingCode::PacketsLost, packets_lost),
    (FindingCode::PodAddressMissing, pod_address_missing),
    (FindingCode::PodDefaultRouteMissing, pod_default_route_missing),
    (FindingCode::PodGatewayUnresolved, pod_gateway_unresolved),
    (FindingCode::PodInterfaceMissing, pod_interface_missing),
    (FindingCode::PodNetworkCrowded, pod_network_crowded),
    (FindingCode::PodNamespaceGone, pod_namespace_gone),
    (FindingCode::PodSpoofingPossible, pod_spoofing_possible),
    (FindingCode::RouteDiverted, route_diverted),
    (FindingCode::RouteGatewayUnreachable, route_gateway_unreachable),
    (FindingCode::RouteMissing, route_missing),
    (FindingCode::RouteShadowed, route_shadowed),
    (FindingCode::RouteToWrongDevice, route_to_wrong_device),
    (FindingCode::RouteViaWrongNode, route_via_wrong_node),
    (FindingCode::RouteWithoutEndpoint, route_without_endpoint),
];

/// A node's first pod: its address and its device.
pub(super) fn first(evidence: &mut Evidence, node: usize) -> (IpAddr, String) {
    let endpoint = &endpoint(evidence, node * PODS).seen;
    (endpoint.addresses[0], endpoint.device.clone().unwrap())
}

pub(super) fn host(evidence: &mut Evidence, node: usize) -> &mut NodeEvidence {
    evidence.node_mut(node_name(node))
}

pub(super) fn links(evidence: &mut Evidence, node: usize) -> &mut Vec<Sighted<Link>> {
    host(evidence, node).kernel.links.as_mut().unwrap()
}

pub(super) fn routes(evidence: &mut Evidence, node: usize) -> &mut Vec<Sighted<Route>> {
    host(evidence, node).kernel.routes.as_mut().unwrap()
}

pub(super) fn route(evidence: &mut Evidence, node: usize, to: IpNet) -> &mut Route {
    &mut routes(evidence, node).iter_mut().find(|route| route.seen.destination == to).unwrap().seen
}

pub(super) fn inside(evidence: &mut Evidence, node: usize) -> (&mut PodView, String) {
    let view = &mut host(evidence, node).pod_views.as_mut().unwrap()[0];
    let subject = format!("pod {}", view.pod.clone().unwrap());
    (view, subject)
}

pub(super) fn route_subject(node: usize, to: IpNet) -> String {
    format!("route {to} on {}", node_name(node))
}

pub(super) fn other_block() -> IpNet {
    block_cidr(OTHER).to_string().parse().unwrap()
}

fn block_route_missing(evidence: &mut Evidence, node: usize) -> String {
    routes(evidence, node).retain(|route| route.seen.destination != other_block());
    route_subject(node, other_block())
}

fn route_via_wrong_node(evidence: &mut Evidence, node: usize) -> String {
    let wrong = if node == 0 { 1 } else { 0 };
    route(evidence, node, other_block()).via = Some(node_address(wrong));
    route_subject(node, other_block())
}

fn route_gateway_unreachable(evidence: &mut Evidence, node: usize) -> String {
    route(evidence, node, other_block()).is_dead = true;
    route_subject(node, other_block())
}

/// The kernel takes the routes and neighbours of a device that goes down.
fn device_down(evidence: &mut Evidence, node: usize) -> String {
    let (_, device) = first(evidence, node);
    let link = links(evidence, node).iter_mut().find(|link| link.seen.name == device).unwrap();
    link.seen.is_up = Some(false);
    forget_device(evidence, node, &device);
    format!("device {device} on {}", node_name(node))
}

pub(super) fn forget_device(evidence: &mut Evidence, node: usize, device: &str) {
    let kernel = &mut host(evidence, node).kernel;
    kernel.routes.as_mut().unwrap().retain(|route| route.seen.device.as_deref() != Some(device));
    kernel.neighbours.as_mut().unwrap().retain(|neighbour| neighbour.seen.device != device);
}

fn endpoint_without_device(evidence: &mut Evidence, node: usize) -> String {
    let (_, device) = first(evidence, node);
    links(evidence, node).retain(|link| link.seen.name != device);
    forget_device(evidence, node, &device);
    // Both ends of a veth go together.
    inside(evidence, node).0.kernel.links = Some(Vec::new());
    format!("endpoint {}", endpoint(evidence, node * PODS).seen)
}

fn device_without_endpoint(evidence: &mut Evidence, node: usize) -> String {
    let mut link = links(evidence, node)[2].clone();
    link.seen.name = format!("cali0000000000{node}");
    // Somebody moved the pod's end back; a veth whose other namespace is gone would be gone, too.
    (link.seen.index, link.seen.has_peer_elsewhere) = (Some(900), Some(false));
    let mut leftover = routes(evidence, node)[2].clone();
    leftover.seen.device = Some(link.seen.name.clone());
    leftover.seen.destination = IpAddr::from([10, 0, 200, node as u8]).into();
    let subject = format!("device {} on {}", link.seen.name, node_name(node));
    links(evidence, node).push(link);
    routes(evidence, node).push(leftover);
    subject
}

fn device_setting_wrong(evidence: &mut Evidence, node: usize) -> String {
    let (_, device) = first(evidence, node);
    let path = DeviceSetting::ProxyArp.path(&device);
    let sysctls = host(evidence, node).kernel.sysctls.as_mut().unwrap();
    sysctls.get_mut(&path).unwrap().seen = "0".to_owned();
    format!("{path} on {}", node_name(node))
}

fn forwarding_dropped(evidence: &mut Evidence, node: usize) -> String {
    let hook = Hook { place: Place::Forward, is_nat: false, priority: 0, drops_the_rest: true };
    let named = |text: &str| text.to_owned();
    let (family, table, name) = (named("ip"), named("filter"), named("FORWARD"));
    let chain = Chain { family, table, name, hook: Some(hook), rules: Vec::new() };
    host(evidence, node).firewall.as_mut().unwrap().seen.chains.push(chain);
    format!("node {}", node_name(node))
}

fn nat_missing(evidence: &mut Evidence, node: usize) -> String {
    without_chain(evidence, node, "postrouting")
}

fn pod_spoofing_possible(evidence: &mut Evidence, node: usize) -> String {
    without_chain(evidence, node, "pods")
}

fn without_chain(evidence: &mut Evidence, node: usize, name: &str) -> String {
    let firewall = &mut host(evidence, node).firewall.as_mut().unwrap().seen;
    firewall.chains.retain(|chain| chain.name != name);
    format!("node {}", node_name(node))
}

fn mtu_differs(evidence: &mut Evidence, node: usize) -> String {
    let (_, device) = first(evidence, node);
    inside(evidence, node).0.kernel.links.as_mut().unwrap()[0].seen.mtu = Some(9000);
    format!("device {device} on {}", node_name(node))
}

fn mtu_too_large(evidence: &mut Evidence, node: usize) -> String {
    let spec = json!({"cidr": format!("10.9{node}.0.0/16"), "vxlanMode": "Always"});
    evidence.records.add(record(Kind::IpPool, &format!("vxlan-{node}"), spec));
    let vxlan = Some(Vxlan { parent: Some("eth0".to_owned()), ..Vxlan::default() });
    let link = Link { name: "vxlan.calico".to_owned(), mtu: Some(1500), vxlan, ..Link::default() };
    let inside = host(evidence, node).pod_views.iter_mut().flatten();
    let inside = inside.flat_map(|view| view.kernel.links.iter_mut().flatten());
    inside.for_each(|link| link.seen.mtu = Some(1450));
    let pods = links(evidence, node).iter_mut().filter(|link| link.seen.is_workload());
    pods.for_each(|link| link.seen.mtu = Some(1450));
    // Where there is one it is only made too large.
    match links(evidence, node).iter_mut().find(|known| known.seen.name == link.name) {
        Some(known) => known.seen.mtu = link.mtu,
        None => links(evidence, node).push(Sighted::new(link, Origin::probe(node_name(node), "links"))),
    }
    format!("device vxlan.calico on {}", node_name(node))
}

fn neighbour_missing(evidence: &mut Evidence, node: usize) -> String {
    let (address, device) = first(evidence, node);
    let neighbours = host(evidence, node).kernel.neighbours.as_mut().unwrap();
    neighbours.retain(|neighbour| neighbour.seen.device != device);
    format!("neighbour {address} at {device} on {}", node_name(node))
}

fn neighbour_wrong(evidence: &mut Evidence, node: usize) -> String {
    let (address, device) = first(evidence, node);
    let neighbours = host(evidence, node).kernel.neighbours.as_mut().unwrap();
    let neighbour = neighbours.iter_mut().find(|neighbour| neighbour.seen.device == device).unwrap();
    neighbour.seen.mac = Some("02:ff:ff:ff:ff:ff".parse().unwrap());
    format!("neighbour {address} at {device} on {}", node_name(node))
}

fn neighbour_without_endpoint(evidence: &mut Evidence, node: usize) -> String {
    let (_, device) = first(evidence, node);
    let neighbours = host(evidence, node).kernel.neighbours.as_mut().unwrap();
    let mut leftover = neighbours.iter().find(|neighbour| neighbour.seen.device == device).unwrap().clone();
    leftover.seen.address = IpAddr::from([10, 0, 201, node as u8]);
    let subject = format!("neighbour {} at {device} on {}", leftover.seen.address, node_name(node));
    neighbours.push(leftover);
    subject
}

/// Nothing that the node sends to the pods of the other arrives.
fn packets_lost(evidence: &mut Evidence, node: usize) -> String {
    let pod = endpoint(evidence, OTHER * PODS).seen.addresses[0];
    for (from, echo) in [(node, Echo::Silent), (OTHER, Echo::Answered)] {
        let origin = Origin::probe(node_name(from), "echo");
        let probed = host(evidence, from).setup.probed.get_or_insert_default();
        probed.insert(pod, Sighted::new(echo, origin));
    }
    format!("way {} to {}", node_name(node), node_name(OTHER))
}

fn pod_address_missing(evidence: &mut Evidence, node: usize) -> String {
    let (view, subject) = inside(evidence, node);
    view.kernel.addresses.as_mut().unwrap()[0].seen.net = "10.0.202.1/32".parse().unwrap();
    subject
}

fn pod_default_route_missing(evidence: &mut Evidence, node: usize) -> String {
    let (view, subject) = inside(evidence, node);
    view.kernel.routes.as_mut().unwrap().retain(|route| route.seen.destination.prefix_len() > 0);
    subject
}

fn pod_gateway_unresolved(evidence: &mut Evidence, node: usize) -> String {
    let (view, subject) = inside(evidence, node);
    view.kernel.neighbours.as_mut().unwrap()[0].seen.state = NeighbourState::Missing;
    subject
}

fn pod_network_crowded(evidence: &mut Evidence, node: usize) -> String {
    let (view, subject) = inside(evidence, node);
    view.too_many = vec!["more than 2048 routes".to_owned()];
    view.kernel.partial.routes = true;
    subject
}

fn pod_interface_missing(evidence: &mut Evidence, node: usize) -> String {
    let (view, subject) = inside(evidence, node);
    view.kernel.links = Some(Vec::new());
    subject
}

/// The runtime runs the sandbox, and its namespace is not there: with it both ends of its device are gone.
fn pod_namespace_gone(evidence: &mut Evidence, node: usize) -> String {
    let (_, device) = first(evidence, node);
    let view = host(evidence, node).pod_views.as_mut().unwrap().remove(0);
    links(evidence, node).retain(|link| link.seen.name != device);
    forget_device(evidence, node, &device);
    let lost = Sighted::new(view.container_id.unwrap(), Origin::probe(node_name(node), "namespaces"));
    host(evidence, node).lost_namespaces.get_or_insert_default().push(lost);
    format!("pod {}", view.pod.unwrap())
}

/// A black hole for a pod of another node.
fn route_diverted(evidence: &mut Evidence, node: usize) -> String {
    let pod = endpoint(evidence, OTHER * PODS + 1).seen.addresses[0];
    let hole = evidence::sample::kernel_route(pod.into(), None, None, "static");
    routes(evidence, node).push(Sighted::new(hole, Origin::probe(node_name(node), "routes")));
    route_subject(node, pod.into())
}

fn route_missing(evidence: &mut Evidence, node: usize) -> String {
    let (address, _) = first(evidence, node);
    routes(evidence, node).retain(|route| route.seen.destination != IpNet::from(address));
    route_subject(node, address.into())
}

fn route_to_wrong_device(evidence: &mut Evidence, node: usize) -> String {
    let (address, _) = first(evidence, node);
    route(evidence, node, address.into()).device = Some("eth0".to_owned());
    route_subject(node, address.into())
}

fn route_shadowed(evidence: &mut Evidence, node: usize) -> String {
    let (address, _) = first(evidence, node);
    let ours = route(evidence, node, address.into());
    let mut stranger = ours.clone();
    ours.metric = Some(100);
    (stranger.device, stranger.protocol) = (Some("eth0".to_owned()), Some("static".to_owned()));
    routes(evidence, node).push(Sighted::new(stranger, Origin::probe(node_name(node), "routes")));
    route_subject(node, address.into())
}

fn route_without_endpoint(evidence: &mut Evidence, node: usize) -> String {
    let (address, _) = first(evidence, node);
    let mut leftover = route(evidence, node, address.into()).clone();
    leftover.destination = IpAddr::from([10, 0, 203, node as u8]).into();
    let subject = route_subject(node, leftover.destination);
    routes(evidence, node).push(Sighted::new(leftover, Origin::probe(node_name(node), "routes")));
    subject
}
