//! What a kernel holds, in a node's own namespace or inside a pod: links, addresses, routes, neighbours, settings.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use model::Mac;
pub use plan::{NamedRoute as Route, RouteKind};
use serde::{Deserialize, Serialize};

use super::{PodName, Sighted};

/// One network namespace. `None` means that nobody looked, which is not the same as an empty list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kernel {
    pub links: Option<Vec<Sighted<Link>>>,
    pub addresses: Option<Vec<Sighted<Address>>>,
    pub routes: Option<Vec<Sighted<Route>>>,
    pub neighbours: Option<Vec<Sighted<Neighbour>>>,
    /// Permanent entries of VXLAN devices.
    pub forwards: Option<Vec<Sighted<Forward>>>,
    /// By path below `/proc/sys`: `net/ipv4/ip_forward`.
    pub sysctls: Option<BTreeMap<String, Sighted<String>>>,
    /// `ip rule`, in its order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<Sighted<PolicyRule>>>,
    /// Routes of tables other than main, each with its table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_routes: Option<Vec<Sighted<Route>>>,
    /// Which lists are only a part of what there is (the output of a `grep`, or cut): their silence says nothing.
    pub partial: PartialKernel,
}

/// A rule that sends packets to a table of routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyRule {
    pub priority: u32,
    pub table: String,
    /// It has no condition: every packet that comes so far looks into the table.
    pub is_for_all: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartialKernel {
    pub links: bool,
    pub addresses: bool,
    pub routes: bool,
    pub neighbours: bool,
}

/// What is seen from inside a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodView {
    /// `None`: the text does not say whose it is.
    pub pod: Option<PodName>,
    pub container_id: Option<String>,
    pub kernel: Kernel,
    /// What there is more of than anybody reads, in words: `more than 2048 routes`. These lists are partial.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub too_many: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    pub name: String,
    pub index: Option<u32>,
    /// `veth`, `bridge`, `vxlan`, `ipip` …, where it is said.
    pub kind: Option<String>,
    pub peer_index: Option<u32>,
    /// The other end lies in another network namespace.
    pub has_peer_elsewhere: Option<bool>,
    pub alias: Option<String>,
    pub mac: Option<Mac>,
    pub mtu: Option<u32>,
    /// Set up by an administrator. `None`: not said.
    pub is_up: Option<bool>,
    /// Up, and the other end too.
    pub is_running: Option<bool>,
    /// A bridge or bond it is part of.
    pub master: Option<String>,
    pub vxlan: Option<Vxlan>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Vxlan {
    pub vni: Option<u32>,
    pub port: Option<u16>,
    pub local: Option<IpAddr>,
    pub parent: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub device: String,
    pub net: IpNet,
    /// `global`, `link`, `host`.
    #[serde(default)]
    pub scope: String,
    #[serde(default)]
    pub is_secondary: bool,
    /// In use elsewhere, as the kernel noticed itself (IPv6).
    #[serde(default)]
    pub is_duplicate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    pub address: IpAddr,
    pub device: String,
    #[serde(default)]
    pub mac: Option<Mac>,
    pub state: NeighbourState,
    /// The node answers for this address.
    #[serde(default)]
    pub is_proxy: bool,
}

/// Behind which node a VXLAN device has a hardware address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    pub device: String,
    pub mac: Mac,
    pub node: IpAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NeighbourState {
    Permanent,
    Reachable,
    /// Known, not confirmed of late: stale, delay, probe.
    Stale,
    /// Asked for, no answer: incomplete, failed.
    Missing,
    NoArp,
    /// Complete, and no more is said (`arp` without flags).
    Known,
}

impl Kernel {
    pub fn link(&self, name: &str) -> Option<&Sighted<Link>> {
        self.links.as_deref().unwrap_or_default().iter().find(|link| link.seen.name == name)
    }

    pub fn sysctl(&self, path: &str) -> Option<&Sighted<String>> {
        self.sysctls.as_ref()?.get(path)
    }

    /// Routes of the main table to exactly this destination.
    pub fn routes_to(&self, destination: IpNet) -> impl Iterator<Item = &Sighted<Route>> {
        let routes = self.routes.as_deref().unwrap_or_default().iter();
        routes.filter(move |route| route.seen.destination == destination && route.seen.is_in_main_table())
    }

    /// The route of the main table that a packet to `address` takes: the longest prefix, then the lowest metric.
    pub fn route_for(&self, address: IpAddr) -> Option<&Sighted<Route>> {
        let routes = self.routes.as_deref().unwrap_or_default().iter();
        routes
            .filter(|route| route.seen.is_in_main_table())
            .filter(|route| route.seen.destination.contains(&address))
            .max_by_key(|route| {
                (route.seen.destination.prefix_len(), std::cmp::Reverse(route.seen.metric.unwrap_or(0)))
            })
    }

    /// Takes in what somebody else saw of the same namespace.
    pub fn absorb(&mut self, other: Kernel) {
        super::join(&mut self.links, other.links);
        super::join(&mut self.addresses, other.addresses);
        super::join(&mut self.routes, other.routes);
        super::join(&mut self.neighbours, other.neighbours);
        super::join(&mut self.forwards, other.forwards);
        super::join(&mut self.sysctls, other.sysctls);
        super::join(&mut self.rules, other.rules);
        super::join(&mut self.other_routes, other.other_routes);
        self.partial.links |= other.partial.links;
        self.partial.addresses |= other.partial.addresses;
        self.partial.routes |= other.partial.routes;
        self.partial.neighbours |= other.partial.neighbours;
    }

    pub fn is_empty(&self) -> bool {
        self.links.is_none()
            && self.addresses.is_none()
            && self.routes.is_none()
            && self.neighbours.is_none()
            && self.forwards.is_none()
            && self.sysctls.is_none()
            && self.rules.is_none()
            && self.other_routes.is_none()
    }
}

impl Link {
    /// Calico's name for the node's end of a pod.
    pub fn is_workload(&self) -> bool {
        self.name.starts_with(model::DeviceName::CALICO_PREFIX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    fn route(destination: &str, device: &str, metric: Option<u32>, table: Option<&str>) -> Sighted<Route> {
        let route = Route {
            device: Some(device.to_owned()),
            metric,
            table: table.map(str::to_owned),
            ..Route::to(destination.parse().unwrap())
        };
        Sighted::new(route, Origin::file("r"))
    }

    #[test]
    fn packets_take_the_longest_prefix_and_the_lowest_metric() {
        let kernel = Kernel {
            routes: Some(vec![
                route("0.0.0.0/0", "eth0", None, None),
                route("10.0.0.0/8", "slow", Some(100), None),
                route("10.0.0.0/8", "fast", Some(10), None),
                route("10.1.0.0/16", "other", None, Some("100")),
            ]),
            ..Kernel::default()
        };
        let device = |address: &str| {
            kernel.route_for(address.parse().unwrap()).and_then(|route| route.seen.device.as_deref())
        };
        assert_eq!(device("10.1.2.3"), Some("fast"));
        assert_eq!(device("192.0.2.1"), Some("eth0"));
        assert_eq!(device("fd00::1"), None);
        assert_eq!(kernel.routes_to("10.0.0.0/8".parse().unwrap()).count(), 2);
        assert_eq!(kernel.routes_to("10.1.0.0/16".parse().unwrap()).count(), 0);
    }

    #[test]
    fn looks_at_one_namespace_are_joined() {
        let mut kernel = Kernel { routes: Some(vec![]), ..Kernel::default() };
        kernel
            .absorb(Kernel { routes: Some(vec![route("10.0.0.0/8", "a", None, None)]), ..Kernel::default() });
        let partial = PartialKernel { links: true, ..PartialKernel::default() };
        kernel.absorb(Kernel { links: Some(vec![]), partial, ..Kernel::default() });
        assert_eq!(kernel.routes.as_ref().map(Vec::len), Some(1));
        assert_eq!(kernel.links.as_ref().map(Vec::len), Some(0));
        assert!(kernel.neighbours.is_none() && kernel.partial.links && !kernel.partial.routes);
    }
}
