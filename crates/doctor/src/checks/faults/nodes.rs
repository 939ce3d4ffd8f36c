//! Faults of nodes: their addresses, their set-up, and BGP.

use jiff::SignedDuration;
use model::{FindingCode, Kind};
use plan::FORWARD_V4;
use serde_json::json;

use super::{Inject, OTHER, PODS, TWIN};
use evidence::kernel::Address;
use evidence::kubernetes::Condition;
use evidence::node::{AddressChoice, BgpSession, Setup, UnfinishedDel};
use evidence::sample::{node_address, node_name, record};
use evidence::{Evidence, KubeNode, Origin, PodName, Sighted};

pub(super) const FAULTS: &[(FindingCode, Inject)] = &[
    (FindingCode::BgpAsWrong, bgp_as_wrong),
    (FindingCode::BgpNotRunning, bgp_not_running),
    (FindingCode::BgpPasswordWrong, bgp_password_wrong),
    (FindingCode::BgpPortClosed, bgp_port_closed),
    (FindingCode::BgpSessionDown, bgp_session_down),
    (FindingCode::CalicoNodeNotReady, calico_node_not_ready),
    (FindingCode::ClockSkew, clock_skew),
    (FindingCode::CniConfigShadowed, cni_config_shadowed),
    (FindingCode::CredentialsExpired, credentials_expired),
    (FindingCode::DelUnfinished, del_unfinished),
    (FindingCode::EtcdEvenMembers, etcd_even_members),
    (FindingCode::ForwardingOff, forwarding_off),
    (FindingCode::KubeProxyNotReady, kube_proxy_not_ready),
    (FindingCode::KubeletFailing, kubelet_failing),
    (FindingCode::KubeletRefusesSwap, kubelet_refuses_swap),
    (FindingCode::NodeAddressDoubtful, node_address_doubtful),
    (FindingCode::NodeAddressMissing, node_address_missing),
    (FindingCode::NodeAddressShared, node_address_shared),
    (FindingCode::NodeAddressUnfit, node_address_unfit),
    (FindingCode::NodeAddressWrong, node_address_wrong),
    (FindingCode::NodeLeftBehind, node_left_behind),
    (FindingCode::NodeNetworkUnavailable, node_network_unavailable),
    (FindingCode::NodeNotReady, node_not_ready),
    (FindingCode::NodeUnrecorded, node_unrecorded),
    (FindingCode::NodenameDiffers, nodename_differs),
    (FindingCode::RpFilterLoose, rp_filter_loose),
    (FindingCode::RulesNotLoaded, rules_not_loaded),
    (FindingCode::StateFolderUnusable, state_folder_unusable),
    (FindingCode::StoreUnreachable, store_unreachable),
    (FindingCode::TunnelMacShared, tunnel_mac_shared),
];

fn kube_proxy_not_ready(evidence: &mut Evidence, node: usize) -> String {
    let pods = evidence.pods.as_mut().unwrap();
    let name = format!("calico-node-{node:05}");
    let mut pod = pods.iter().find(|pod| pod.seen.name.name == name).unwrap().clone();
    pod.seen.name = PodName::new("kube-system", format!("kube-proxy-{node}"));
    (pod.seen.status, pod.seen.ready) = ("CrashLoopBackOff".to_owned(), Some((0, 1)));
    pods.push(pod);
    subject(node)
}

fn node_network_unavailable(evidence: &mut Evidence, node: usize) -> String {
    let condition = Condition {
        kind: "NetworkUnavailable".to_owned(),
        status: "True".to_owned(),
        reason: "NoRouteCreated".to_owned(),
        ..Condition::default()
    };
    kube(evidence, node).conditions.push(condition);
    subject(node)
}

/// The machine was cloned.
fn tunnel_mac_shared(evidence: &mut Evidence, node: usize) -> String {
    for node in [node, TWIN] {
        let annotation = "projectcalico.org/VXLANTunnelMACAddr".to_owned();
        kube(evidence, node).annotations.insert(annotation, "66:05:a1:aa:bb:01".to_owned());
    }
    "cluster".to_owned()
}

fn store_unreachable(evidence: &mut Evidence, node: usize) -> String {
    let problem = "no answer within 5 s".to_owned();
    let problem = Sighted::new(problem, Origin::probe(node_name(node), "store"));
    evidence.node_mut(node_name(node)).store_problem = Some(problem);
    subject(node)
}

fn setup(evidence: &mut Evidence, node: usize) -> &mut Setup {
    &mut evidence.node_mut(node_name(node)).setup
}

fn kube(evidence: &mut Evidence, node: usize) -> &mut KubeNode {
    let name = node_name(node);
    let nodes = evidence.kube_nodes.as_mut().unwrap();
    &mut nodes.iter_mut().find(|kube| kube.seen.name.is(&name)).unwrap().seen
}

fn subject(node: usize) -> String {
    format!("node {}", node_name(node))
}

fn break_session(evidence: &mut Evidence, node: usize, peer: usize, info: &str) -> String {
    let sessions = &mut evidence.node_mut(node_name(node)).bgp.as_mut().unwrap().sessions;
    let session: &mut BgpSession =
        &mut sessions.iter_mut().find(|session| session.seen.peer == node_address(peer)).unwrap().seen;
    (session.state, session.info) = ("start".to_owned(), info.to_owned());
    format!("BGP session {} to {}", node_name(node), node_address(peer))
}

/// Without its session the node learns nothing of the other, is not ready, and says so.
fn bgp_session_down(evidence: &mut Evidence, node: usize) -> String {
    let routes = evidence.node_mut(node_name(node)).kernel.routes.as_mut().unwrap();
    routes.retain(|route| route.seen.via != Some(node_address(OTHER)));
    calico_node_not_ready(evidence, node);
    break_session(evidence, node, OTHER, "Passive")
}

fn bgp_as_wrong(evidence: &mut Evidence, node: usize) -> String {
    break_session(evidence, node, OTHER, "Idle BGP Error: Bad peer AS")
}

fn bgp_password_wrong(evidence: &mut Evidence, node: usize) -> String {
    break_session(evidence, node, OTHER, "Idle BGP Error: Authentication failure")
}

fn bgp_not_running(evidence: &mut Evidence, node: usize) -> String {
    evidence.node_mut(node_name(node)).bgp.as_mut().unwrap().is_running = Some(false);
    setup(evidence, node).listening_ports.as_mut().unwrap().seen.retain(|port| *port != 179);
    break_session(evidence, OTHER, node, "Connect Socket: Connection refused");
    subject(node)
}

fn bgp_port_closed(evidence: &mut Evidence, node: usize) -> String {
    setup(evidence, node).listening_ports.as_mut().unwrap().seen.retain(|port| *port != 179);
    break_session(evidence, OTHER, node, "Connect Socket: Connection refused");
    subject(node)
}

fn calico_node_not_ready(evidence: &mut Evidence, node: usize) -> String {
    let name = format!("calico-node-{node:05}");
    let pods = evidence.pods.as_mut().unwrap();
    pods.iter_mut().find(|pod| pod.seen.name.name == name).unwrap().seen.ready = Some((0, 1));
    subject(node)
}

fn clock_skew(evidence: &mut Evidence, node: usize) -> String {
    setup(evidence, node).clock_ahead.as_mut().unwrap().seen = SignedDuration::from_mins(3);
    subject(node)
}

fn cni_config_shadowed(evidence: &mut Evidence, node: usize) -> String {
    let config = |name: &str, plugin: &str| {
        let text = json!({"name": "n", "plugins": [{"type": plugin}]}).to_string();
        (name.to_owned(), Sighted::new(text, Origin::probe(node_name(node), name)))
    };
    let configs = [config("05-flannel.conflist", "flannel"), config("10-calico.conflist", "calico")];
    setup(evidence, node).cni_configs = Some(configs.into());
    subject(node)
}

/// A machine that was deleted from the records and lives on with its block.
fn node_unrecorded(evidence: &mut Evidence, node: usize) -> String {
    let name = format!("extra-{node}");
    let owner = model::AffinityOwner::Host(name.clone());
    let cidr = evidence::sample::block_cidr(200 + node);
    super::books::claim(&mut evidence.ipam.as_mut().unwrap().books, cidr, &owner);
    let registers = Sighted::new(name.as_str().into(), Origin::probe(&name, "node name"));
    evidence.node_mut(&name).setup.node_name = Some(registers);
    format!("node {name}")
}

/// Deleted in Kubernetes, and its machine lives on.
fn node_left_behind(evidence: &mut Evidence, node: usize) -> String {
    let name = node_name(node);
    evidence.kube_nodes.as_mut().unwrap().retain(|kube| !kube.seen.name.is(&name));
    subject(node)
}

fn node_address_doubtful(evidence: &mut Evidence, node: usize) -> String {
    let choice =
        AddressChoice { unsettled: vec!["nothing confirms it".to_owned()], ..AddressChoice::default() };
    let sighted = Sighted::new(choice, Origin::probe(node_name(node), "address"));
    setup(evidence, node).address_choices = Some(vec![sighted]);
    subject(node)
}

fn credentials_expired(evidence: &mut Evidence, node: usize) -> String {
    let at = Sighted::new("2026-08-01T00:00:00Z".parse().unwrap(), Origin::probe(node_name(node), "token"));
    setup(evidence, node).credentials_expire_at = Some([("calico-kubeconfig".to_owned(), at)].into());
    subject(node)
}

fn etcd_even_members(evidence: &mut Evidence, _: usize) -> String {
    for node in [0, OTHER] {
        let pods = evidence.pods.as_mut().unwrap();
        let mut pod = pods
            .iter()
            .find(|pod| pod.seen.node == Some(node_name(node).into()) && pod.seen.host_network == Some(true))
            .unwrap()
            .clone();
        pod.seen.name = PodName::new("kube-system", format!("etcd-{}", node_name(node)));
        pod.seen.ready = Some((1, 1));
        pods.push(pod);
    }
    "cluster".to_owned()
}

/// The kernel writes it through to every device.
fn forwarding_off(evidence: &mut Evidence, node: usize) -> String {
    let sysctls = evidence.node_mut(node_name(node)).kernel.sysctls.as_mut().unwrap();
    for (path, value) in sysctls.iter_mut() {
        if path.ends_with("/forwarding") || path == FORWARD_V4 {
            value.seen = "0".to_owned();
        }
    }
    format!("{FORWARD_V4} on {}", node_name(node))
}

fn kubelet_failing(evidence: &mut Evidence, node: usize) -> String {
    setup(evidence, node).units.as_mut().unwrap().get_mut("kubelet.service").unwrap().seen =
        "failed".to_owned();
    node_not_ready(evidence, node)
}

fn kubelet_refuses_swap(evidence: &mut Evidence, node: usize) -> String {
    setup(evidence, node).swaps.as_mut().unwrap().seen.push("/swapfile".to_owned());
    kubelet_failing(evidence, node)
}

fn node_not_ready(evidence: &mut Evidence, node: usize) -> String {
    kube(evidence, node).conditions[0].status = "Unknown".to_owned();
    calico_node_not_ready(evidence, node);
    break_session(evidence, OTHER, node, "Connect Socket: Host is unreachable");
    subject(node)
}

fn node_address_missing(evidence: &mut Evidence, node: usize) -> String {
    let name = format!("new-{node}");
    evidence.records.add(record(Kind::Node, &name, json!({})));
    format!("node {name}")
}

fn node_address_shared(evidence: &mut Evidence, node: usize) -> String {
    let address = node_address(TWIN);
    let annotations = &mut kube(evidence, node).annotations;
    annotations.insert("projectcalico.org/IPv4Address".to_owned(), format!("{address}/16"));
    address.to_string()
}

fn node_address_unfit(evidence: &mut Evidence, node: usize) -> String {
    let annotations = &mut kube(evidence, node).annotations;
    annotations.insert("projectcalico.org/IPv4Address".to_owned(), "169.254.10.1/16".to_owned());
    subject(node)
}

/// A second card: the node goes by its address, sessions do not come up, routes are not learned.
fn node_address_wrong(evidence: &mut Evidence, node: usize) -> String {
    let address = format!("192.168.{}.1/24", 100 + node);
    let own = Address {
        device: "eth1".to_owned(),
        net: address.parse().unwrap(),
        scope: "global".to_owned(),
        is_secondary: false,
        is_duplicate: false,
    };
    let host = evidence.node_mut(node_name(node));
    host.kernel
        .addresses
        .as_mut()
        .unwrap()
        .push(Sighted::new(own, Origin::probe(node_name(node), "addresses")));
    let nodes = evidence.records.all_mut(Kind::Node);
    let own = nodes.iter_mut().find(|other| other.seen.metadata.name == node_name(node));
    own.expect("every node has a record")
        .seen
        .spec_mut()
        .insert("bgp".to_owned(), json!({"ipv4Address": address}));
    break_session(evidence, node, OTHER, "Passive");
    calico_node_not_ready(evidence, node);
    subject(node)
}

fn del_unfinished(evidence: &mut Evidence, node: usize) -> String {
    let since = evidence.taken_at.unwrap();
    let del = UnfinishedDel { file: "del-1".to_owned(), since, container_id: None, is_set_aside: true };
    let origin = Origin::probe(node_name(node), "queue");
    evidence.node_mut(node_name(node)).unfinished_dels = Some(vec![Sighted::new(del, origin)]);
    subject(node)
}

fn rules_not_loaded(evidence: &mut Evidence, node: usize) -> String {
    let problem = "cannot load the nftables rules of the cluster: nft is not installed".to_owned();
    let problem = Sighted::new(problem, Origin::probe(node_name(node), "nftables rules"));
    evidence.node_mut(node_name(node)).rules_problem = Some(problem);
    subject(node)
}

fn state_folder_unusable(evidence: &mut Evidence, node: usize) -> String {
    let problem = "cannot write the state directory /var/lib/plumb: no space left on device".to_owned();
    let problem = Sighted::new(problem, Origin::probe(node_name(node), "state folder"));
    evidence.node_mut(node_name(node)).state_folder_problem = Some(problem);
    subject(node)
}

fn nodename_differs(evidence: &mut Evidence, node: usize) -> String {
    setup(evidence, node).nodename_file.as_mut().unwrap().seen = format!("template-{node}-{PODS}");
    subject(node)
}

fn rp_filter_loose(evidence: &mut Evidence, node: usize) -> String {
    let host = evidence.node_mut(node_name(node));
    host.attachments = None;
    let path = plan::LOOSE_RP_FILTER;
    host.kernel.sysctls.as_mut().unwrap().get_mut(path).unwrap().seen = "2".to_owned();
    format!("{path} on {}", node_name(node))
}
