//! What records and Kubernetes say of each node, side by side.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam::Tunnel;
use ipnet::IpNet;
use model::{Kind, NodeName, Resource};
use serde_json::Value;

use super::Case;
use evidence::{Evidence, Exhibit, KubeNode, Origin, Sighted, address_of};

const V4_ANNOTATION: &str = "projectcalico.org/IPv4Address";
const V6_ANNOTATION: &str = "projectcalico.org/IPv6Address";
const TUNNEL_ANNOTATIONS: [(Tunnel, &str); 5] = [
    (Tunnel::Ipip, "projectcalico.org/IPv4IPIPTunnelAddr"),
    (Tunnel::Vxlan, "projectcalico.org/IPv4VXLANTunnelAddr"),
    (Tunnel::VxlanV6, "projectcalico.org/IPv6VXLANTunnelAddr"),
    (Tunnel::Wireguard, "projectcalico.org/IPv4WireguardInterfaceAddr"),
    (Tunnel::WireguardV6, "projectcalico.org/IPv6WireguardInterfaceAddr"),
];

/// One node by all records that speak of it.
#[derive(Debug)]
pub struct NodeView<'e> {
    /// As its records spell it.
    pub name: NodeName,
    pub record: Option<&'e Sighted<Resource>>,
    /// Several, where it was listed and described.
    pub kube: Vec<&'e Sighted<KubeNode>>,
    /// The addresses under which other nodes look for it, each with its network if that is told.
    pub addresses: Vec<Recorded<'e>>,
    pub tunnels: Vec<(Tunnel, IpAddr)>,
    /// A tunnel has an address that nobody can read: it may be any.
    pub has_unread_tunnels: bool,
}

/// An address, and the record that says so.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'e> {
    pub net: IpNet,
    /// Whether the record tells the length of the network.
    pub has_length: bool,
    pub origin: &'e Origin,
    /// The annotation or field it stands in.
    pub place: &'static str,
}

impl Recorded<'_> {
    pub fn address(&self) -> IpAddr {
        self.net.addr()
    }

    /// As it stands in the record.
    pub fn text(&self) -> String {
        if self.has_length { self.net.to_string() } else { self.net.addr().to_string() }
    }

    pub fn exhibit(&self) -> Exhibit {
        self.origin.exhibit(format!("{}: {}", self.place, self.text()))
    }
}

impl NodeView<'_> {
    pub fn internal_ips(&self) -> impl Iterator<Item = IpAddr> {
        self.kube.iter().flat_map(|kube| kube.seen.internal_ips.iter().copied())
    }

    pub fn address(&self, is_ipv4: bool) -> Option<&Recorded<'_>> {
        self.addresses.iter().find(|recorded| recorded.address().is_ipv4() == is_ipv4)
    }
}

impl Case<'_> {
    /// Whether a Node record has no node in Kubernetes any more. Said only where Kubernetes' nodes were all listed, and where the list is of
    /// this cluster: other records have their nodes in it.
    pub fn is_gone_from_kubernetes(&self, node: &NodeName) -> bool {
        let Some(record) = self.node_view(node).and_then(|view| view.record) else { return false };
        let is_complete = self.evidence.kube_nodes.is_some() && !self.evidence.partial.kube_nodes;
        is_complete
            && self.is_of_this_cluster()
            && self.kube_node(&orchestrators_name(&record.seen)).is_none()
            && self.kube_node(node).is_none()
    }

    fn is_of_this_cluster(&self) -> bool {
        let records = self.evidence.records.all(Kind::Node).iter();
        records.into_iter().any(|record| self.kube_node(&orchestrators_name(&record.seen)).is_some())
    }
}

/// What Kubernetes calls the node of a record.
pub(crate) fn orchestrators_name(node: &Resource) -> NodeName {
    let references = node.spec("orchRefs").and_then(Value::as_array).into_iter().flatten();
    let of_kubernetes = references.into_iter().find(|reference| reference["orchestrator"] == "k8s");
    let name = of_kubernetes.and_then(|reference| reference["nodeName"].as_str());
    name.filter(|name| !name.is_empty()).unwrap_or(&node.metadata.name).into()
}

pub(super) fn views(evidence: &Evidence) -> BTreeMap<NodeName, NodeView<'_>> {
    let mut views: BTreeMap<NodeName, NodeView<'_>> = BTreeMap::new();
    for record in evidence.records.all(Kind::Node) {
        let view = view_of(&mut views, record.seen.metadata.name.as_str().into());
        view.record = Some(record);
        let bgp = record.seen.spec("bgp").unwrap_or(&Value::Null);
        for (field, place) in
            [("ipv4Address", "spec.bgp.ipv4Address"), ("ipv6Address", "spec.bgp.ipv6Address")]
        {
            note(view, bgp[field].as_str(), place, &record.origin);
        }
        let (tunnels, has_unread) = tunnels_of(&record.seen);
        view.tunnels.extend(tunnels);
        view.has_unread_tunnels |= has_unread;
    }
    for node in evidence.kube_nodes.iter().flatten() {
        let view = view_of(&mut views, node.seen.name.clone());
        view.kube.push(node);
        for place in [V4_ANNOTATION, V6_ANNOTATION] {
            note(view, node.seen.annotations.get(place).map(String::as_str), place, node.place(place));
        }
        let told = TUNNEL_ANNOTATIONS
            .iter()
            .filter_map(|(tunnel, place)| Some((*tunnel, address_of(node.seen.annotations.get(*place)?)?)));
        let told: Vec<_> = told.filter(|tunnel| !view.tunnels.contains(tunnel)).collect();
        view.tunnels.extend(told);
    }
    views
}

fn view_of<'v, 'e>(views: &'v mut BTreeMap<NodeName, NodeView<'e>>, name: NodeName) -> &'v mut NodeView<'e> {
    views.entry(name.clone()).or_insert_with(|| NodeView {
        name,
        record: None,
        kube: Vec::new(),
        addresses: Vec::new(),
        tunnels: Vec::new(),
        has_unread_tunnels: false,
    })
}

fn note<'e>(view: &mut NodeView<'e>, text: Option<&str>, place: &'static str, origin: &'e Origin) {
    let Some(text) = text else { return };
    let has_length = text.contains('/');
    let net = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    let known = |net: &IpNet| view.addresses.iter().any(|recorded| recorded.address() == net.addr());
    if let Some(net) = net.filter(|net| !known(net)) {
        view.addresses.push(Recorded { net, has_length, origin, place });
    }
}

/// The tunnels, and whether there are some that cannot be read.
fn tunnels_of(node: &Resource) -> (Vec<(Tunnel, IpAddr)>, bool) {
    let mut has_unread = false;
    let mut field = |part: Option<&str>, name: &str| {
        let value = match part {
            Some(part) => node.spec(part)?.get(name)?,
            None => node.spec(name)?,
        };
        let is_there = !value.is_null() && value.as_str() != Some("");
        let address = value.as_str().and_then(address_of);
        has_unread |= is_there && address.is_none();
        address
    };
    let tunnels = [
        (Tunnel::Ipip, field(Some("bgp"), "ipv4IPIPTunnelAddr")),
        (Tunnel::Vxlan, field(None, "ipv4VXLANTunnelAddr")),
        (Tunnel::VxlanV6, field(None, "ipv6VXLANTunnelAddr")),
        (Tunnel::Wireguard, field(Some("wireguard"), "interfaceIPv4Address")),
        (Tunnel::WireguardV6, field(Some("wireguard"), "interfaceIPv6Address")),
    ];
    (tunnels.into_iter().filter_map(|(tunnel, address)| Some((tunnel, address?))).collect(), has_unread)
}
