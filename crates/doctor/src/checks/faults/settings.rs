//! Faults of settings that do not fit: other components, clouds, rules of routing.

use model::{FindingCode, Kind};
use serde_json::json;

use super::{Inject, OTHER};
use evidence::firewall::Firewall;
use evidence::kernel::{Neighbour, NeighbourState, PolicyRule};
use evidence::sample::{kernel_route, node_address, node_name, record};
use evidence::{Evidence, Origin, PodName, Setting, SettingKind, Sighted};

pub(super) const FAULTS: &[(FindingCode, Inject)] = &[
    (FindingCode::BgpPeerSelectsNobody, bgp_peer_selects_nobody),
    (FindingCode::CloudDropsTunnel, cloud_drops_tunnel),
    (FindingCode::ClusterRangeMissesPool, cluster_range_misses_pool),
    (FindingCode::HostEndpointClosed, host_endpoint_closed),
    (FindingCode::NetworkComponentNotReady, network_component_not_ready),
    (FindingCode::NodeNeighbourLost, node_neighbour_lost),
    (FindingCode::NodeUninitialized, node_uninitialized),
    (FindingCode::PeerPacketsDropped, peer_packets_dropped),
    (FindingCode::PolicyRouteDiverts, policy_route_diverts),
    (FindingCode::ServiceRangeOverlaps, service_range_overlaps),
    (FindingCode::SourceCheckOn, source_check_on),
    (FindingCode::StrictArpOff, strict_arp_off),
    (FindingCode::SysctlHarmful, sysctl_harmful),
];

fn set(evidence: &mut Evidence, kind: SettingKind, value: &str) {
    let setting = Setting { kind, value: value.to_owned() };
    evidence.settings.get_or_insert_default().push(Sighted::new(setting, Origin::file("settings.yaml")));
}

fn bgp_peer_selects_nobody(evidence: &mut Evidence, node: usize) -> String {
    let name = format!("reflected-{node}");
    let spec = json!({"nodeSelector": "all()", "peerSelector": "route-reflector == 'true'"});
    evidence.records.add(record(Kind::BgpPeer, &name, spec));
    for node in evidence.records.all_mut(Kind::Node) {
        node.seen.metadata.labels.insert("rack".to_owned(), "7".to_owned());
    }
    format!("BGPPeer({name})")
}

fn cloud_drops_tunnel(evidence: &mut Evidence, node: usize) -> String {
    let name = format!("azure-{node}");
    let spec = json!({"cidr": format!("10.{}.0.0/16", 200 + node), "blockSize": 26, "ipipMode": "Always"});
    evidence.records.add(record(Kind::IpPool, &name, spec));
    for node in evidence.kube_nodes.iter_mut().flatten() {
        node.seen.provider = "azure:///subscriptions/0/x".to_owned();
    }
    format!("IPPool({name})")
}

fn host_endpoint_closed(evidence: &mut Evidence, node: usize) -> String {
    let name = format!("closed-{node}");
    let spec = json!({"node": node_name(node), "interfaceName": "*"});
    evidence.records.add(record(Kind::HostEndpoint, &name, spec));
    let felix = format!("node.{}", node_name(node));
    evidence.records.add(record(Kind::FelixConfiguration, &felix, json!({"failsafeInboundHostPorts": []})));
    format!("HostEndpoint({name})")
}

fn policy_route_diverts(evidence: &mut Evidence, node: usize) -> String {
    let kernel = &mut evidence.node_mut(node_name(node)).kernel;
    let mut route =
        kernel_route("10.0.0.0/12".parse().expect("a network"), None, Some("tailscale0"), "static");
    route.table = Some("52".to_owned());
    kernel.other_routes.get_or_insert_default().push(Sighted::new(route, Origin::file("ip-route-52.txt")));
    let rule = PolicyRule { priority: 5270, table: "52".to_owned(), is_for_all: true };
    kernel.rules.get_or_insert_default().push(Sighted::new(rule, Origin::file("ip-rule.txt")));
    format!("route 10.0.0.0/12 on {}", node_name(node))
}

fn service_range_overlaps(evidence: &mut Evidence, _: usize) -> String {
    set(evidence, SettingKind::ServiceRange, "10.0.0.0/16");
    "IPPool(pods)".to_owned()
}

fn source_check_on(evidence: &mut Evidence, node: usize) -> String {
    set(evidence, SettingKind::SourceDestCheck, &format!("i-0{node} {}", node_name(node)));
    evidence.records.add(record(Kind::IpPool, "direct", json!({"cidr": "10.199.0.0/16", "blockSize": 26})));
    "cluster".to_owned()
}

fn cluster_range_misses_pool(evidence: &mut Evidence, _: usize) -> String {
    set(evidence, SettingKind::ClusterRange, "100.127.0.0/16");
    "cluster".to_owned()
}

fn network_component_not_ready(evidence: &mut Evidence, node: usize) -> String {
    let pods = evidence.pods.as_mut().expect("pods");
    let name = format!("calico-node-{node:05}");
    let mut pod = pods.iter().find(|pod| pod.seen.name.name == name).expect("one on each node").clone();
    pod.seen.name = PodName::new("kube-system", format!("coredns-{node}"));
    (pod.seen.status, pod.seen.ready) = ("CrashLoopBackOff".to_owned(), Some((0, 1)));
    pod.seen.uid = None;
    pods.push(pod);
    format!("node {}", node_name(node))
}

fn node_neighbour_lost(evidence: &mut Evidence, node: usize) -> String {
    let address = node_address(OTHER);
    let neighbour = Neighbour {
        address,
        device: "eth0".to_owned(),
        state: NeighbourState::Missing,
        mac: None,
        is_proxy: false,
    };
    let known = evidence.node_mut(node_name(node)).kernel.neighbours.get_or_insert_default();
    known.push(Sighted::new(neighbour, Origin::file("ip-neigh.txt")));
    format!("neighbour {address} at eth0 on {}", node_name(node))
}

fn node_uninitialized(evidence: &mut Evidence, node: usize) -> String {
    let kube = evidence.kube_nodes.as_mut().and_then(|nodes| nodes.get_mut(node)).expect("a node");
    kube.seen.taints.push("node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule".to_owned());
    format!("node {}", node_name(node))
}

fn peer_packets_dropped(evidence: &mut Evidence, node: usize) -> String {
    let ruleset = json!({"nftables": [
        {"chain": {"family": "ip", "table": "ufw", "name": "in", "type": "filter", "hook": "input", "prio": 5, "policy": "drop"}},
    ]});
    let node = evidence.node_mut(node_name(node));
    node.bgp = None;
    let firewall = Firewall::read(&ruleset).expect("a ruleset");
    if let Some(mine) = &mut node.firewall {
        mine.seen.chains.extend(firewall.chains);
    }
    format!("node {}", node.name)
}

fn sysctl_harmful(evidence: &mut Evidence, node: usize) -> String {
    let sysctls = evidence.node_mut(node_name(node)).kernel.sysctls.get_or_insert_default();
    let value = Sighted::new("1".to_owned(), Origin::file("sysctl.txt"));
    sysctls.insert("net/ipv4/tcp_tw_recycle".to_owned(), value);
    format!("net/ipv4/tcp_tw_recycle on {}", node_name(node))
}

fn strict_arp_off(evidence: &mut Evidence, _: usize) -> String {
    set(evidence, SettingKind::ProxyMode, "ipvs");
    set(evidence, SettingKind::StrictArp, "false");
    let pods = evidence.pods.as_mut().expect("pods");
    let mut speaker =
        pods.iter().find(|pod| pod.seen.host_network == Some(true)).expect("one on its node").clone();
    speaker.seen.name = PodName::new("metallb-system", "speaker-2nl8v");
    speaker.seen.uid = None;
    pods.push(speaker);
    "cluster".to_owned()
}
