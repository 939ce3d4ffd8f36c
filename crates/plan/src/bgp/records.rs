//! What BGP depends on, read from the records of the cluster. What cannot be understood is kept as a reason, not dropped.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use model::validate::formats::{parse_as_number, parse_ip_with_port, whole_seconds};
use model::validate::{fits_session, is_device_pattern, unfit_for_bird};
use model::{Cidr, IpVersion, Resource, Selector};
use serde_json::Value;

use crate::between::NodeView;

/// Where nothing is said.
const AS_NUMBER: u32 = 64_512;
const PORT: u16 = 179;
/// Kubernetes' label of nodes that load balancers shall leave alone.
const NO_SERVICES: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// A node, as far as BGP goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BgpNode {
    pub v4: Option<IpAddr>,
    pub v6: Option<IpAddr>,
    /// What its record has in their place, and nobody can speak to.
    pub unfit: Vec<IpAddr>,
    /// Its own, if it has one. `Err`: what stands there instead.
    pub as_number: Option<Result<u32, String>>,
    /// There if it is a route reflector.
    pub cluster_id: Option<Ipv4Addr>,
    pub labels: BTreeMap<String, String>,
}

impl BgpNode {
    pub fn read(node: &Resource) -> BgpNode {
        let view = NodeView::read(node);
        let address = |version| view.of(version).address.map(|net: IpNet| net.addr());
        let of_bgp = |field: &str| node.spec("bgp").and_then(|bgp| bgp.get(field));
        let cluster_id = of_bgp("routeReflectorClusterID").and_then(Value::as_str);
        let (v4, v6) = (address(IpVersion::V4), address(IpVersion::V6));
        let is_fit = |address: &IpAddr| fits_session(*address).is_ok();
        BgpNode {
            v4: v4.filter(is_fit),
            v6: v6.filter(is_fit),
            unfit: v4.into_iter().chain(v6).filter(|address| !is_fit(address)).collect(),
            as_number: of_bgp("asNumber").map(as_number),
            cluster_id: cluster_id.and_then(|text| text.parse().ok()),
            labels: node.metadata.labels.clone(),
        }
    }

    /// It takes no traffic for services from outside.
    pub(super) fn is_kept_from_services(&self) -> bool {
        self.labels.get(NO_SERVICES).is_some_and(|value| value == "true")
    }

    pub(super) fn has_address(&self) -> bool {
        self.v4.is_some() || self.v6.is_some()
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.v4.into_iter().chain(self.v6)
    }

    pub(super) fn address_like(&self, other: IpAddr) -> Option<IpAddr> {
        if other.is_ipv4() { self.v4 } else { self.v6 }
    }
}

/// `BGPConfiguration`: the default one, and what concerns single nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BgpSettings {
    pub is_mesh: bool,
    pub as_number: Result<u32, String>,
    pub listen_port: u16,
    /// Of nodes that have another.
    pub listen_ports: BTreeMap<String, u16>,
    pub binds_to_node_address: bool,
    pub mesh_password: Option<SecretKey>,
    pub mesh_restart_seconds: Option<u64>,
    /// Ranges of services, which every node announces.
    pub services: Vec<IpNet>,
    pub advertisements: Vec<(IpNet, Vec<Community>)>,
    pub ignored_devices: Vec<String>,
    /// What BIRD is not told, and why.
    pub unfit: Vec<String>,
}

/// Two or three numbers.
pub(super) type Community = Vec<u32>;

impl Default for BgpSettings {
    fn default() -> BgpSettings {
        BgpSettings::read(None, [])
    }
}

impl BgpSettings {
    /// From the record named `default`, and from those of single nodes.
    pub fn read<'a>(
        default: Option<&Resource>,
        of_nodes: impl IntoIterator<Item = (&'a str, &'a Resource)>,
    ) -> BgpSettings {
        let said = |field: &str| default.and_then(|record| record.spec(field));
        let ports = of_nodes
            .into_iter()
            .filter_map(|(node, record)| Some((node.to_owned(), port(record.spec("listenPort")?)?)));
        let unfit: Vec<String> =
            default.map(unfit_for_bird).unwrap_or_default().iter().map(ToString::to_string).collect();
        BgpSettings {
            is_mesh: said("nodeToNodeMeshEnabled") != Some(&Value::Bool(false)),
            as_number: said("asNumber").map_or(Ok(AS_NUMBER), as_number),
            listen_port: said("listenPort").and_then(port).unwrap_or(PORT),
            listen_ports: ports.collect(),
            binds_to_node_address: said("bindMode").and_then(Value::as_str) == Some("NodeIP"),
            mesh_password: said("nodeMeshPassword").and_then(secret_key),
            mesh_restart_seconds: said("nodeMeshMaxRestartTime")
                .and_then(seconds)
                .filter(|_| !unfit.iter().any(|unfit| unfit.contains("nodeMeshMaxRestartTime"))),
            services: service_networks(default),
            advertisements: advertisements(said("prefixAdvertisements"), said("communities")),
            ignored_devices: texts(said("ignoredInterfaces"))
                .into_iter()
                .filter(|name| is_device_pattern(name))
                .collect(),
            unfit,
        }
    }

    pub(super) fn port_of(&self, node: &str) -> u16 {
        self.listen_ports.get(node).copied().unwrap_or(self.listen_port)
    }
}

/// Every range of services that a `BGPConfiguration` names.
pub fn service_networks(configuration: Option<&Resource>) -> Vec<IpNet> {
    ["serviceClusterIPs", "serviceExternalIPs", "serviceLoadBalancerIPs"]
        .into_iter()
        .flat_map(|field| networks(configuration.and_then(|record| record.spec(field))))
        .collect()
}

/// Name of a Secret, and the key in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretKey {
    pub name: String,
    pub key: String,
}

/// A `BGPPeer` record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BgpPeer {
    pub scope: Scope,
    /// `Err`: why it cannot be peered with.
    pub target: Result<PeerTarget, String>,
    pub local_as: Option<Result<u32, String>>,
    pub next_hop: NextHop,
    pub password: Option<SecretKey>,
    pub uses_node_address: bool,
    pub restart_seconds: Option<u64>,
    pub keepalive_seconds: Option<u64>,
    pub allowed_local_as: Option<u64>,
    pub hops: Option<u8>,
    pub reachable_by: Option<IpAddr>,
    pub filters: Vec<String>,
    pub peers_back: bool,
}

/// Which nodes have this peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Node(String),
    Selected(Selector),
    /// What stands in the place of a selector.
    Unreadable(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerTarget {
    Address { address: IpAddr, port: Option<u16>, as_number: u32 },
    Nodes(Selector),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    Auto,
    Own,
    Keep,
}

impl BgpPeer {
    pub fn read(peer: &Resource) -> BgpPeer {
        let text = |field: &str| peer.spec(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let next_hop = match text("nextHopMode") {
            Some("Self") => NextHop::Own,
            Some("Keep") => NextHop::Keep,
            _ if peer.spec("keepOriginalNextHop") == Some(&Value::Bool(true)) => NextHop::Keep,
            _ => NextHop::Auto,
        };
        let number = |field: &str| peer.spec(field).and_then(Value::as_u64).filter(|number| *number > 0);
        BgpPeer {
            scope: scope(text("node"), text("nodeSelector")),
            target: match (text("localWorkloadSelector"), unfit_for_bird(peer).first()) {
                (Some(_), _) => {
                    Err("peers inside pods (localWorkloadSelector) are not supported yet".to_owned())
                }
                // Not in part: a session with other times than were asked for is another session.
                (None, Some(unfit)) => Err(unfit.to_string()),
                (None, None) => target(peer, text("peerIP"), text("peerSelector")),
            },
            local_as: peer.spec("localASNumber").map(as_number),
            next_hop,
            password: peer.spec("password").and_then(secret_key),
            uses_node_address: text("sourceAddress") != Some("None"),
            restart_seconds: peer.spec("maxRestartTime").and_then(seconds),
            keepalive_seconds: peer.spec("keepaliveTime").and_then(seconds),
            allowed_local_as: number("numAllowedLocalASNumbers"),
            hops: number("ttlSecurity").and_then(|hops| u8::try_from(hops).ok()),
            reachable_by: text("reachableBy").and_then(|text| text.parse().ok()),
            filters: texts(peer.spec("filters")),
            peers_back: text("reversePeering") != Some("Manual"),
        }
    }
}

fn scope(node: Option<&str>, selector: Option<&str>) -> Scope {
    match (node, selector) {
        (Some(node), _) => Scope::Node(node.to_owned()),
        (None, Some(text)) => {
            text.parse().map_or_else(|_| Scope::Unreadable(text.to_owned()), Scope::Selected)
        }
        (None, None) => Scope::All,
    }
}

fn target(peer: &Resource, address: Option<&str>, selector: Option<&str>) -> Result<PeerTarget, String> {
    match (address, selector) {
        (Some(text), _) => {
            let (address, port) =
                parse_ip_with_port(text).ok_or_else(|| format!("{text:?} is no address"))?;
            let as_number = peer.spec("asNumber").map_or_else(
                || Err("it has no AS number".to_owned()),
                |value| as_number(value).map_err(|shown| format!("{shown} is no AS number")),
            )?;
            Ok(PeerTarget::Address { address, port, as_number })
        }
        (None, Some(text)) => {
            text.parse().map(PeerTarget::Nodes).map_err(|_| format!("{text:?} is no selector"))
        }
        (None, None) => Err("it names no peer".to_owned()),
    }
}

/// `Err`: what stands there.
fn as_number(value: &Value) -> Result<u32, String> {
    let number = match value {
        Value::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
        Value::String(text) => parse_as_number(text),
        _ => None,
    };
    // 0 and the last are reserved: no session would come up with them.
    number.filter(|number| !matches!(*number, 0 | u32::MAX)).ok_or_else(|| value.to_string())
}

fn port(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

fn secret_key(value: &Value) -> Option<SecretKey> {
    let reference = value.get("secretKeyRef")?;
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(SecretKey { name: text("name"), key: text("key") })
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

fn networks(value: Option<&Value>) -> Vec<IpNet> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| network(item.get("cidr")?.as_str()?)).collect()
}

pub(super) fn network(text: &str) -> Option<IpNet> {
    let cidr = Cidr::parse_masked(text).ok()?;
    cidr.to_string().parse().ok()
}

fn advertisements(value: Option<&Value>, named: Option<&Value>) -> Vec<(IpNet, Vec<Community>)> {
    let named = named.and_then(Value::as_array).into_iter().flatten();
    let named: BTreeMap<&str, Community> = named
        .filter_map(|item| Some((item.get("name")?.as_str()?, community(item.get("value")?.as_str()?)?)))
        .collect();
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items
        .filter_map(|item| {
            let net = network(item.get("cidr")?.as_str()?)?;
            let told = texts(item.get("communities"));
            let known =
                told.iter().filter_map(|text| community(text).or_else(|| named.get(text.as_str()).cloned()));
            Some((net, known.collect()))
        })
        .collect()
}

/// `65001:100`, or three numbers.
pub(super) fn community(text: &str) -> Option<Community> {
    let numbers: Option<Community> = text.split(':').map(|part| part.parse().ok()).collect();
    numbers.filter(|numbers| match numbers.len() {
        2 => numbers.iter().all(|number| *number <= u32::from(u16::MAX)),
        count => count == 3,
    })
}

/// `90s`, `2m`, `1h30m`: whole seconds, at least one.
fn seconds(value: &Value) -> Option<u64> {
    whole_seconds(value.as_str()?).map(|seconds| seconds.max(1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_and_communities_have_one_meaning() {
        for (text, expected) in [
            ("90s", Some(90)),
            ("1h30m", Some(5_400)),
            ("500ms", Some(1)),
            ("1d", None),
            ("s", None),
            ("-1s", None),
            ("1us", Some(1)),
        ] {
            assert_eq!(seconds(&json!(text)), expected, "{text}");
        }
        assert_eq!(community("65001:100"), Some(vec![65_001, 100]));
        assert_eq!(community("65536:1:2"), Some(vec![65_536, 1, 2]));
        for wrong in ["65536:1", "1", "", "a:b", "1:2:3:4"] {
            assert_eq!(community(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn as_numbers_that_cannot_be_are_kept_as_they_stand() {
        assert_eq!(as_number(&json!("1.10")), Ok(65_546));
        for (value, shown) in
            [(json!(0), "0"), (json!("x"), "\"x\""), (json!(4_294_967_295_u64), "4294967295")]
        {
            assert_eq!(as_number(&value), Err(shown.to_owned()));
        }
    }
}
