//! Faults of a cluster whose nodes are reached through VXLAN.

use model::FindingCode;
use serde_json::json;

use super::kernel::{host, links, other_block, route, route_subject, routes};
use super::{Inject, NODES, OTHER};
use evidence::Evidence;
use evidence::firewall::Firewall;
use evidence::sample::{node_address, node_name, record};

pub(super) const FAULTS: &[(FindingCode, Inject)] = &[
    (FindingCode::BlockRouteMissing, tunnelled_route_missing),
    (FindingCode::BlockRouteWrong, past_the_tunnel),
    (FindingCode::TunnelDeviceWrong, tunnel_device_wrong),
    (FindingCode::TunnelDisabled, tunnel_disabled),
    (FindingCode::TunnelDropped, tunnel_dropped),
    (FindingCode::TunnelEndUnknown, tunnel_end_unknown),
];

const DEVICE: &str = "vxlan.calico";

fn tunnelled_route_missing(evidence: &mut Evidence, node: usize) -> String {
    routes(evidence, node).retain(|route| route.seen.destination != other_block());
    route_subject(node, other_block())
}

fn tunnel_disabled(evidence: &mut Evidence, node: usize) -> String {
    let name = format!("node.{}", node_name(node));
    let spec = json!({"vxlanEnabled": false});
    evidence.records.add(record(model::Kind::FelixConfiguration, &name, spec));
    format!("FelixConfiguration({name})")
}

/// What an old repair made of it.
fn past_the_tunnel(evidence: &mut Evidence, node: usize) -> String {
    let route = route(evidence, node, other_block());
    (route.device, route.via) = (Some("eth0".to_owned()), Some(node_address(OTHER)));
    route_subject(node, other_block())
}

/// With its last address go the routes through it.
fn tunnel_device_wrong(evidence: &mut Evidence, node: usize) -> String {
    let kernel = &mut host(evidence, node).kernel;
    kernel.addresses.as_mut().unwrap().retain(|held| held.seen.device != DEVICE);
    kernel.routes.as_mut().unwrap().retain(|route| route.seen.device.as_deref() != Some(DEVICE));
    assert!(links(evidence, node).iter().any(|link| link.seen.name == DEVICE));
    format!("device {DEVICE} on {}", node_name(node))
}

fn tunnel_dropped(evidence: &mut Evidence, node: usize) -> String {
    let port = json!({"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 4789}});
    let ruleset = json!({"nftables": [
        {"chain": {"family": "inet", "table": "hard", "name": "in", "type": "filter", "hook": "input", "prio": 0}},
        {"rule": {"family": "inet", "table": "hard", "chain": "in", "handle": 2, "expr": [port, {"drop": null}]}},
    ]});
    let chains = Firewall::read(&ruleset).unwrap().chains;
    host(evidence, node).firewall.as_mut().unwrap().seen.chains.extend(chains);
    format!("node {}", node_name(node))
}

fn tunnel_end_unknown(evidence: &mut Evidence, node: usize) -> String {
    assert!(node < NODES && node != OTHER);
    let at = node_address(OTHER);
    let forwards = host(evidence, node).kernel.forwards.as_mut().unwrap();
    forwards.retain(|known| known.seen.node != at);
    format!("neighbour {at} at {DEVICE} on {}", node_name(node))
}
