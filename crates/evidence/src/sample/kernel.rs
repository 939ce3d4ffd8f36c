//! The node's side of the sample: links, routes, neighbours, settings, the runtime, BGP, and pods from inside.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::SignedDuration;
use model::{IpVersion, Mac};
use plan::NeededSetting;
use serde_json::json;

use super::{Sample, SamplePod, block_cidr, made_at, node_address, node_name};
use crate::firewall::Firewall;
use crate::kernel::{Address, Kernel, Link, Neighbour, NeighbourState, PodView, Route, RouteKind};
use crate::node::{Attachment, Bgp, BgpSession, RuntimeSandbox, Setup};
use crate::{NodeEvidence, Origin, Sighted};

const UPLINK: &str = "eth0";
const MTU: u32 = 1500;

pub(super) fn node(sample: Sample, number: usize, pods: &[&SamplePod]) -> NodeEvidence {
    let name = node_name(number);
    let from = |what: &'static str| Origin::probe(name.as_str(), what);
    let mut node = NodeEvidence::new(name.clone());
    node.kernel = Kernel {
        links: Some(links(pods, &from("links"))),
        addresses: Some(vec![address(UPLINK, node_address(number), 16, &from("addresses"))]),
        routes: Some(routes(sample, number, pods, &from("routes"))),
        neighbours: Some(pods.iter().map(|pod| neighbour(pod, &from("neighbours"))).collect()),
        sysctls: Some(sysctls(pods, &name)),
        ..Kernel::default()
    };
    node.firewall = Some(Sighted::new(firewall(), from("nft ruleset")));
    // The number of the node's end, after loopback and the card.
    let views = (3..).zip(pods).map(|(number, pod)| inside(pod, number, &from("pods")));
    node.pod_views = Some(views.collect());
    let mut sandboxes: Vec<_> = pods.iter().map(|pod| sandbox(pod, &from("sandboxes"))).collect();
    sandboxes.push(network_sandbox(number, &from("sandboxes")));
    node.sandboxes = Some(sandboxes);
    node.attachments = Some(pods.iter().map(|pod| attachment(pod, &from("journal"))).collect());
    node.bgp = Some(bgp(sample, number, &from("bird")));
    node.setup = setup(&name);
    node
}

fn links(pods: &[&SamplePod], origin: &Origin) -> Vec<Sighted<Link>> {
    let up = |name: &str, mac: Option<Mac>| Link {
        name: name.to_owned(),
        mac,
        mtu: Some(MTU),
        is_up: Some(true),
        is_running: Some(true),
        ..Link::default()
    };
    let mut links = vec![up("lo", None), up(UPLINK, None)];
    for pod in pods {
        let mut link = up(&pod.device(), Some(Mac::HOST_END));
        link.kind = Some("veth".to_owned());
        link.has_peer_elsewhere = Some(true);
        links.push(link);
    }
    for (number, link) in (1..).zip(&mut links) {
        link.index = Some(number);
    }
    links.into_iter().map(|link| Sighted::new(link, origin.clone())).collect()
}

pub(super) fn address(device: &str, address: IpAddr, len: u8, origin: &Origin) -> Sighted<Address> {
    let net = IpNet::new(address, len).unwrap_or_else(|_| IpNet::from(address));
    let (device, scope) = (device.to_owned(), "global".to_owned());
    let address = Address { device, net, scope, is_secondary: false, is_duplicate: false };
    Sighted::new(address, origin.clone())
}

pub fn route(destination: IpNet, via: Option<IpAddr>, device: Option<&str>, protocol: &str) -> Route {
    Route {
        kind: if device.is_some() { RouteKind::Unicast } else { RouteKind::Blackhole },
        via,
        device: device.map(str::to_owned),
        protocol: Some(protocol.to_owned()),
        ..Route::to(destination)
    }
}

/// The uplink's own, one per pod, a black hole for what is free in its own blocks, and one per block elsewhere.
fn routes(sample: Sample, number: usize, pods: &[&SamplePod], origin: &Origin) -> Vec<Sighted<Route>> {
    let net = |text: &str| text.parse::<IpNet>().expect("a network");
    let block = |index: usize| net(&block_cidr(index).to_string());
    let gateway = IpAddr::from([172, 16, 255, 254]);
    let mut routes = vec![
        route(net("0.0.0.0/0"), Some(gateway), Some(UPLINK), "static"),
        route(net("172.16.0.0/16"), None, Some(UPLINK), "kernel"),
    ];
    routes.extend(pods.iter().map(|pod| route(IpNet::from(pod.address), None, Some(&pod.device()), "80")));
    for other in 0..sample.nodes {
        let blocks = other * sample.blocks_per_node..(other + 1) * sample.blocks_per_node;
        routes.extend(blocks.map(|index| match other == number {
            true => route(block(index), None, None, "bird"),
            false => route(block(index), Some(node_address(other)), Some(UPLINK), "bird"),
        }));
    }
    routes.into_iter().map(|route| Sighted::new(route, origin.clone())).collect()
}

/// Packets that leave the cluster get the node's address, and pods send only from their own.
fn firewall() -> Firewall {
    let address = |field: &str, op: &str| {
        json!({"match": {"op": op, "left": {"payload": {"protocol": "ip", "field": field}},
                         "right": {"prefix": {"addr": "10.0.0.0", "len": 8}}}})
    };
    let from_pod = json!({"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "cali*"}});
    let from_elsewhere = json!({"match": {"op": "==", "left": {"fib": {"result": "oif", "flags": ["saddr", "iif"]}}, "right": false}});
    let ruleset = json!({"nftables": [
        {"chain": {"family": "inet", "table": "plumb", "name": "pods"}},
        {"rule": {"family": "inet", "table": "plumb", "chain": "pods", "handle": 2, "expr": [from_elsewhere, {"drop": null}]}},
        {"chain": {"family": "inet", "table": "plumb", "name": "pods-prerouting", "type": "filter", "hook": "prerouting", "prio": -300}},
        {"rule": {"family": "inet", "table": "plumb", "chain": "pods-prerouting", "handle": 3,
                  "expr": [from_pod, {"jump": {"target": "pods"}}]}},
        {"chain": {"family": "inet", "table": "plumb", "name": "postrouting", "type": "nat", "hook": "postrouting", "prio": 100}},
        {"rule": {"family": "inet", "table": "plumb", "chain": "postrouting", "handle": 5,
                  "expr": [address("saddr", "=="), address("daddr", "!="), {"masquerade": null}]}},
    ]});
    Firewall::read(&ruleset).unwrap_or_default()
}

fn neighbour(pod: &SamplePod, origin: &Origin) -> Sighted<Neighbour> {
    let neighbour = Neighbour {
        address: pod.address,
        device: pod.device(),
        mac: Some(pod.mac()),
        state: NeighbourState::Permanent,
        is_proxy: false,
    };
    Sighted::new(neighbour, origin.clone())
}

fn sysctls(pods: &[&SamplePod], node: &str) -> BTreeMap<String, Sighted<String>> {
    let mut values: BTreeMap<String, u8> =
        [(plan::FORWARD_V4.to_owned(), 1), (plan::LOOSE_RP_FILTER.to_owned(), 0)].into();
    for pod in pods {
        let is_used = |needed: &NeededSetting| needed.setting.version() == IpVersion::of(pod.address);
        let needed = plan::needed_settings().filter(is_used);
        values.extend(needed.map(|needed| (needed.setting.path(&pod.device()), needed.value)));
    }
    let sighted = |path: &str, value: u8| {
        Sighted::new(value.to_string(), Origin::probe(node, format!("sysctl {path}")))
    };
    values.into_iter().map(|(path, value)| (path.clone(), sighted(&path, value))).collect()
}

fn inside(pod: &SamplePod, outer_end: u32, origin: &Origin) -> PodView {
    let gateway = IpAddr::V4(plan::V4_GATEWAY);
    let sighted = |route| Sighted::new(route, origin.clone());
    let net = |text: &str| text.parse::<IpNet>().expect("a network");
    let link = Link {
        name: UPLINK.to_owned(),
        index: Some(2),
        peer_index: Some(outer_end),
        mac: Some(pod.mac()),
        mtu: Some(MTU),
        is_up: Some(true),
        is_running: Some(true),
        ..Link::default()
    };
    let neighbour = Neighbour {
        address: gateway,
        device: UPLINK.to_owned(),
        mac: Some(Mac::HOST_END),
        state: NeighbourState::Permanent,
        is_proxy: false,
    };
    let kernel = Kernel {
        links: Some(vec![Sighted::new(link, origin.clone())]),
        addresses: Some(vec![address(UPLINK, pod.address, 32, origin)]),
        routes: Some(vec![
            sighted(route(net("0.0.0.0/0"), Some(gateway), Some(UPLINK), "boot")),
            sighted(route(IpNet::from(gateway), None, Some(UPLINK), "boot")),
        ]),
        neighbours: Some(vec![Sighted::new(neighbour, origin.clone())]),
        ..Kernel::default()
    };
    PodView {
        pod: Some(pod.name.clone()),
        container_id: Some(pod.container_id()),
        kernel,
        ..PodView::default()
    }
}

fn sandbox(pod: &SamplePod, origin: &Origin) -> Sighted<RuntimeSandbox> {
    let sandbox = RuntimeSandbox {
        id: pod.container_id(),
        is_ready: Some(true),
        pod: pod.name.clone(),
        pod_uid: Some(format!("uid-{}", pod.number)),
        created_at: Some(made_at()),
        ..RuntimeSandbox::default()
    };
    Sighted::new(sandbox, origin.clone())
}

fn network_sandbox(number: usize, origin: &Origin) -> Sighted<RuntimeSandbox> {
    let sandbox = RuntimeSandbox {
        id: format!("ffff{number:060x}"),
        is_ready: Some(true),
        pod: super::network_pod(number).seen.name,
        created_at: Some(made_at()),
        ..RuntimeSandbox::default()
    };
    Sighted::new(sandbox, origin.clone())
}

fn attachment(pod: &SamplePod, origin: &Origin) -> Sighted<Attachment> {
    let attachment = Attachment {
        network: super::NETWORK.to_owned(),
        container_id: pod.container_id(),
        interface: UPLINK.to_owned(),
        device: pod.device(),
        addresses: vec![pod.address],
        pod: Some(pod.name.clone()),
        is_in_flux: false,
    };
    Sighted::new(attachment, origin.clone())
}

fn bgp(sample: Sample, number: usize, origin: &Origin) -> Bgp {
    let session = |other: usize| BgpSession {
        peer: node_address(other),
        peer_type: "node-to-node mesh".to_owned(),
        state: "up".to_owned(),
        since: "07:11:05".to_owned(),
        info: "Established".to_owned(),
    };
    let others = (0..sample.nodes).filter(|other| *other != number);
    let sessions = others.map(|other| Sighted::new(session(other), origin.clone())).collect();
    Bgp { is_running: Some(true), sessions, ..Bgp::default() }
}

fn setup(node: &str) -> Setup {
    fn told<T>(node: &str, what: &'static str, seen: T) -> Option<Sighted<T>> {
        Some(Sighted::new(seen, Origin::probe(node, what)))
    }
    let unit = Sighted::new("active".to_owned(), Origin::probe(node, "unit kubelet.service"));
    Setup {
        swaps: told(node, "swaps", Vec::new()),
        hostname: told(node, "hostname", node.to_owned()),
        nodename_file: told(node, "/var/lib/calico/nodename", node.to_owned()),
        node_name: told(node, "name", node.into()),
        units: Some([("kubelet.service".to_owned(), unit)].into()),
        clock_ahead: told(node, "clock", SignedDuration::from_millis(20)),
        listening_ports: told(node, "listening ports", vec![22, 179, 10250]),
        probed: Some(BTreeMap::new()),
        kernel_modules: told(node, "modules", vec!["vxlan".to_owned(), "veth".to_owned()]),
        ..Setup::default()
    }
}
