//! What a node must have to reach the pods of others, by the records, and what its kernel has instead.
//!
//! What must be there is [`plan::between`]'s to say, which the agent asks, too; here it is fed from evidence.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use ipam::Tunnel;
use ipnet::IpNet;
use model::{IpVersion, Kind, Mac, NodeName, Resource};
use plan::between::{
    Between, BetweenSettings, BlockView, Encapsulation, Extent, NodeRoute, NodeView as Presented, PoolView,
    RouteFault, Uplink, Uplinks, Via, VxlanDevice, Way, felix_variables, joined_settings,
};

use super::{Case, Host, NodeView};
use evidence::kernel::{NeighbourState, Route, RouteKind};
use evidence::{Evidence, Sighted};

const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];
/// The name of the settings that hold for all nodes.
const DEFAULT: &str = "default";

/// Everything on one node that does not lead to other nodes as it must.
#[derive(Debug, Default)]
pub struct Crossings<'e> {
    pub node: NodeName,
    /// Destinations that must be reached through a tunnel.
    pub tunnelled: BTreeSet<IpNet>,
    /// Routes of their own that single addresses of other nodes must have, and have not; with the node.
    pub missing: Vec<(IpNet, NodeName)>,
    pub wrong: Vec<WrongRoute<'e>>,
    pub diverted: Vec<Diverted<'e>>,
    pub ends: Vec<LostEnd>,
    pub tunnels: Vec<WrongTunnel>,
}

/// A route to what another node has that leads otherwise than it must.
#[derive(Debug)]
pub struct WrongRoute<'e> {
    pub found: &'e Sighted<Route>,
    pub owner: NodeName,
    pub fault: RouteFault,
    /// Where it must lead, in words. `None` where that is not the agent's to say.
    pub wanted: Option<String>,
}

/// A route to a part of another node's block that takes packets elsewhere.
#[derive(Debug)]
pub struct Diverted<'e> {
    pub found: &'e Sighted<Route>,
    pub block: IpNet,
    pub owner: NodeName,
}

/// An end of a tunnel that is not known as it must be.
#[derive(Debug)]
pub struct LostEnd {
    pub device: &'static str,
    /// Of the tunnel's far end, or of its node.
    pub address: IpAddr,
    pub mac: Mac,
    pub owner: NodeName,
    pub kind: EndKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndKind {
    /// Which hardware address the tunnel address has.
    Neighbour { found: Option<Mac> },
    /// Behind which node the hardware address is.
    Forward { found: Option<IpAddr> },
}

/// A tunnel's device that is missing, or not as it must be.
#[derive(Debug)]
pub struct WrongTunnel {
    pub device: &'static str,
    pub version: IpVersion,
    /// What is wrong, in words.
    pub faults: Vec<String>,
}

impl<'e> Case<'e> {
    /// Of every node whose routes somebody looked at.
    pub fn crossings(&self) -> &[Crossings<'e>] {
        self.made.crossings.get_or_init(|| {
            let blocks = Blocks::of(self.evidence);
            let hosts = self.hosts().iter().filter(|host| host.node.kernel.routes.is_some());
            hosts.map(|host| Look { case: self, host, blocks: &blocks }.look()).collect()
        })
    }

    pub fn crossings_of(&self, node: &NodeName) -> Option<&Crossings<'e>> {
        self.crossings().iter().find(|crossings| crossings.node == *node)
    }

    /// What the records want on a node. `None` if they do not know the node. The last one is kept: a cluster has many nodes, and who asks
    /// asks about one after the other.
    pub fn wanted_on(&self, host: &Host<'e>) -> Option<Rc<Between>> {
        if let Some((node, wanted)) = &*self.made.last_wanted.borrow()
            && *node == host.name()
        {
            return Some(Rc::clone(wanted));
        }
        let wanted = Rc::new(self.work_out(host)?);
        *self.made.last_wanted.borrow_mut() = Some((host.name(), Rc::clone(&wanted)));
        Some(wanted)
    }

    fn work_out(&self, host: &Host<'e>) -> Option<Between> {
        let own = self.node_view(host.name())?;
        let mut wanted = Between::new(own.name.as_str());
        for view in self.node_views().values() {
            wanted.set_node(view.name.as_str(), Some(presented(view)));
        }
        for pool in self.evidence.records.all(Kind::IpPool) {
            wanted.set_pool(&pool.seen.metadata.name, PoolView::read(&pool.seen));
        }
        for (cidr, stored) in self.evidence.ipam.iter().flat_map(|ipam| &ipam.books.blocks) {
            wanted.set_block(*cidr, BlockView::read(&stored.value));
        }
        wanted.set_settings(self.settings_of(host, &own.name));
        wanted.set_uplinks(uplinks(host, &presented(own)));
        wanted.settle();
        Some(wanted)
    }

    fn settings_of(&self, host: &Host<'e>, name: &NodeName) -> BetweenSettings {
        let named = |kind: Kind, name: &str| -> Option<&Resource> {
            let mut all = self.evidence.records.all(kind).iter().map(|record| &record.seen);
            all.find(|record| record.metadata.name == name)
        };
        let environment = host.node.setup.environment.as_ref();
        let variable = |name: &str| Some(environment?.get(name)?.seen.clone());
        let (fields, _) = felix_variables(&variable);
        let of_node = named(Kind::FelixConfiguration, &format!("node.{name}"));
        let of_node = joined_settings(&fields, of_node);
        let felix = named(Kind::FelixConfiguration, DEFAULT);
        BetweenSettings::read(felix, of_node.as_ref(), named(Kind::BgpConfiguration, DEFAULT))
    }
}

/// A node by its record, and by the annotations of Kubernetes where that says nothing.
fn presented(view: &NodeView<'_>) -> Presented {
    let mut presented = view.record.map(|record| Presented::read(&record.seen)).unwrap_or_default();
    let tunnel = |wanted: Tunnel| {
        let mut known = view.tunnels.iter().filter(|(tunnel, _)| *tunnel == wanted);
        known.next().map(|(_, address)| *address)
    };
    for version in VERSIONS {
        let (presence, of) = match version {
            IpVersion::V4 => (&mut presented.v4, Tunnel::Vxlan),
            IpVersion::V6 => (&mut presented.v6, Tunnel::VxlanV6),
        };
        let recorded = view.address(version == IpVersion::V4).map(|recorded| recorded.net);
        presence.address = presence.address.or(recorded);
        presence.tunnel = presence.tunnel.or(tunnel(of));
    }
    presented.ipip_tunnel = presented.ipip_tunnel.or(tunnel(Tunnel::Ipip));
    presented
}

/// The devices that have the node's addresses.
fn uplinks(host: &Host<'_>, own: &Presented) -> Uplinks {
    let addresses = || host.node.kernel.addresses.iter().flatten().map(|held| &held.seen);
    let uplink = |version: IpVersion| {
        let own = own.of(version).address?.addr();
        let device = &addresses().find(|held| held.net.addr() == own)?.device;
        let link = host.link(device).map(|link| &link.seen);
        Some(Uplink {
            device: device.clone(),
            index: link.and_then(|link| link.index).unwrap_or_default(),
            mtu: link.and_then(|link| link.mtu).unwrap_or_default(),
        })
    };
    let has_ipip = host.link(plan::between::IPIP_DEVICE).is_some();
    Uplinks { v4: uplink(IpVersion::V4), v6: uplink(IpVersion::V6), has_ipip }
}

/// Blocks of nodes, with their nodes.
struct Blocks(BTreeMap<IpNet, NodeName>);

impl Blocks {
    fn of(evidence: &Evidence) -> Blocks {
        let blocks = evidence.ipam.iter().flat_map(|ipam| &ipam.books.blocks);
        let owned = blocks.filter_map(|(cidr, stored)| {
            let owner = BlockView::read(&stored.value)?.owner?;
            Some((IpNet::new(cidr.network(), cidr.prefix_len()).ok()?, owner.into()))
        });
        Blocks(owned.collect())
    }

    /// The smallest block that a network is a part of, but not the whole.
    fn around(&self, part: IpNet) -> Option<(IpNet, &NodeName)> {
        let least = part.max_prefix_len().saturating_sub(12);
        (least..part.prefix_len()).rev().find_map(|len| {
            let net = IpNet::new(part.addr(), len).ok()?.trunc();
            self.0.get(&net).map(|owner| (net, owner))
        })
    }
}

struct Look<'c, 'e> {
    case: &'c Case<'e>,
    host: &'c Host<'e>,
    blocks: &'c Blocks,
}

impl<'e> Look<'_, 'e> {
    fn look(&self) -> Crossings<'e> {
        let mut found = Crossings { node: self.host.name().clone(), ..Crossings::default() };
        let wanted = self.case.wanted_on(self.host);
        let wanted = wanted.as_deref().filter(|wanted| is_certain(wanted, self.host));
        self.routes(wanted, &mut found);
        self.diversions(wanted, &mut found);
        if let Some(wanted) = wanted {
            VERSIONS.into_iter().for_each(|version| self.tunnel(wanted, version, &mut found));
        }
        found
    }

    fn is_here(&self, node: &NodeName) -> bool {
        node == self.host.name()
    }

    fn routes(&self, wanted: Option<&Between>, found: &mut Crossings<'e>) {
        let elsewhere = self.blocks.0.iter().filter(|(_, owner)| !self.is_here(owner));
        for (block, owner) in elsewhere {
            let wanted_route = wanted.and_then(|wanted| wanted.route_to(block));
            if wanted_route.is_some_and(|route| route.is_tunnelled()) {
                found.tunnelled.insert(*block);
            }
            found.wrong.extend(self.wrong(*block, || owner.clone(), wanted.zip(wanted_route)));
        }
        let Some(wanted) = wanted else { return };
        let is_of_block = |route: &NodeRoute| self.blocks.0.contains_key(&route.destination);
        for route in wanted.routes().filter(|route| !is_of_block(route)) {
            let Way::Via { gateway, .. } = route.way else { continue };
            let owner = || self.node_at(gateway);
            if !self.host.routes_to(route.destination).is_empty() {
                found.wrong.extend(self.wrong(route.destination, owner, Some((wanted, route))));
            } else if route.is_tunnelled() && self.host.has_all_routes() {
                found.missing.push((route.destination, owner()));
            }
        }
    }

    /// The route that is taken, if it does not lead as it must.
    fn wrong(
        &self,
        destination: IpNet,
        owner: impl FnOnce() -> NodeName,
        wanted: Option<(&Between, NodeRoute)>,
    ) -> Option<WrongRoute<'e>> {
        let seen = *self.host.routes_to(destination).first()?;
        if seen.seen.kind != RouteKind::Unicast {
            let wanted = wanted.map(|(between, route)| in_words(between, &route));
            let fault = RouteFault::LeadsNowhere;
            return Some(WrongRoute { found: seen, owner: owner(), fault, wanted });
        }
        let (between, route) =
            wanted.filter(|(between, route)| self.is_judged(between, route, &seen.seen))?;
        let fault = between.fault_of(&seen.seen, &route)?;
        let owner = owner();
        // Another node's address is a finding of its own.
        let leads_to_another = fault == RouteFault::Gateway || fault == RouteFault::Device;
        let is_another = |via: IpAddr| {
            let mut nodes = self.nodes_at(via).peekable();
            nodes.peek().is_some() && !nodes.any(|node| *node == owner)
        };
        if leads_to_another && seen.seen.via.is_some_and(is_another) {
            return None;
        }
        Some(WrongRoute { found: seen, owner, fault, wanted: Some(in_words(between, &route)) })
    }

    /// Where no tunnel is meant, BIRD or an operator may know ways that the records do not: through routers, by other cards.
    fn is_judged(&self, between: &Between, route: &NodeRoute, seen: &Route) -> bool {
        // Then it leads past the tunnel because a record or the kernel lacks something, and not because it must.
        if between.is_makeshift(route) {
            return false;
        }
        let is_plain = between.encapsulation_of(&route.destination) == Some(Encapsulation::None);
        !is_plain || (self.host.has_agent() && seen.protocol.as_deref() != Some("bird"))
    }

    fn diversions(&self, wanted: Option<&Between>, found: &mut Crossings<'e>) {
        for route in self.host.routes() {
            let Some((block, owner)) = self.blocks.around(route.seen.destination) else { continue };
            let is_wanted = wanted.is_some_and(|wanted| wanted.route_to(&route.seen.destination).is_some());
            if self.is_here(owner) || is_wanted || !self.matters(route, block) {
                continue;
            }
            found.diverted.push(Diverted { found: route, block, owner: owner.clone() });
        }
    }

    /// Whether a route to a part of another node's block takes packets of somebody elsewhere.
    fn matters(&self, route: &Sighted<Route>, block: IpNet) -> bool {
        let seen = &route.seen;
        let is_taken = self.host.routes_to(seen.destination).first().is_some_and(|first| **first == *route);
        let is_unicast = seen.kind == RouteKind::Unicast;
        let is_pods = seen.device.as_deref().is_some_and(super::is_workload_device);
        let is_birds = seen.protocol.as_deref() == Some("bird");
        let whole = self.host.routes_to(block);
        let goes_along = whole.first().is_some_and(|whole| {
            (&whole.seen.device, whole.seen.via, whole.seen.kind) == (&seen.device, seen.via, seen.kind)
        });
        if !is_taken || goes_along || (is_unicast && (is_pods || is_birds)) {
            return false;
        }
        let is_single = seen.destination.prefix_len() == seen.destination.max_prefix_len();
        let address = seen.destination.addr();
        let endpoints = self.case.endpoints_at(address);
        let has_it = |node: Option<&NodeName>| node.is_some_and(|node| self.is_here(node));
        if endpoints.iter().any(|endpoint| has_it(endpoint.seen.node.as_ref())) {
            return false;
        }
        !is_single || !endpoints.is_empty() || self.case.allocation(address).is_some()
    }

    fn tunnel(&self, wanted: &Between, version: IpVersion, found: &mut Crossings<'e>) {
        // One that has no address yet is nobody's to miss.
        let Some(device) = wanted.vxlan(version).filter(|device| device.address.is_some()) else { return };
        let faults = self.device_faults(wanted, device);
        let is_there = self.host.link(device.name()).is_some();
        if !faults.is_empty() {
            found.tunnels.push(WrongTunnel { device: device.name(), version, faults });
        }
        if is_there {
            self.neighbours(wanted, device, found);
            self.forwards(wanted, device, found);
        }
    }

    fn device_faults(&self, wanted: &Between, device: &VxlanDevice) -> Vec<String> {
        let name = device.name();
        let Some(link) = self.host.link(name).map(|link| &link.seen) else {
            return if self.host.has_all_links() { vec!["it is missing".to_owned()] } else { Vec::new() };
        };
        let mut faults = Vec::new();
        let mut compare = |what: &str, found: Option<String>, wanted: String| {
            if let Some(found) = found.filter(|found| *found != wanted) {
                faults.push(format!("its {what} is {found}, expected {wanted}"));
            }
        };
        if let Some(vxlan) = &link.vxlan {
            compare("VNI", vxlan.vni.map(|vni| vni.to_string()), device.vni.to_string());
            compare("port", vxlan.port.map(|port| port.to_string()), device.port.to_string());
            compare("local address", vxlan.local.map(|local| local.to_string()), device.local.to_string());
            if let Some(parent) = wanted.device_name(device.version, Via::Uplink) {
                compare("NIC", vxlan.parent.clone(), parent.to_owned());
            }
        }
        compare("MAC address", link.mac.map(|mac| mac.to_string()), device.mac.to_string());
        if link.is_up == Some(false) {
            faults.push("it is down".to_owned());
        }
        let kernel = &self.host.node.kernel;
        if let Some(addresses) = kernel.addresses.as_ref().filter(|_| !kernel.partial.addresses) {
            let mut held = addresses.iter().map(|held| &held.seen).filter(|held| held.device == name);
            if let Some(address) = device.address
                && !held.any(|held| held.net.addr() == address)
            {
                faults.push(format!("it lacks its address {address}"));
            }
        }
        faults
    }

    fn neighbours(&self, wanted: &Between, device: &VxlanDevice, found: &mut Crossings<'e>) {
        if !self.host.has_all_neighbours() {
            return;
        }
        let of_version = |(address, _): &(IpAddr, Mac)| IpVersion::of(*address) == device.version;
        for (address, mac) in wanted.neighbours().filter(of_version) {
            let known = self.host.neighbour(address, device.name()).map(|known| &known.seen);
            let is_kept = |state| matches!(state, NeighbourState::Permanent | NeighbourState::Known);
            if !known.is_some_and(|known| known.mac == Some(mac) && is_kept(known.state)) {
                let kind = EndKind::Neighbour { found: known.and_then(|known| known.mac) };
                let owner = self.node_at(address);
                found.ends.push(LostEnd { device: device.name(), address, mac, owner, kind });
            }
        }
    }

    fn forwards(&self, wanted: &Between, device: &VxlanDevice, found: &mut Crossings<'e>) {
        let Some(known) = &self.host.node.kernel.forwards else { return };
        let of_version = wanted.forwards().filter(|((version, _), _)| *version == device.version);
        for ((_, mac), node) in of_version {
            let at = |mac: Mac| {
                let here = known.iter().map(|known| &known.seen);
                here.filter(move |known| known.device == device.name() && known.mac == mac)
            };
            if !at(mac).any(|known| known.node == node) {
                let kind = EndKind::Forward { found: at(mac).next().map(|known| known.node) };
                let owner = self.node_at(node);
                found.ends.push(LostEnd { device: device.name(), address: node, mac, owner, kind });
            }
        }
    }

    fn nodes_at(&self, address: IpAddr) -> impl Iterator<Item = &NodeName> {
        let views = self.case.node_views().values();
        let has = move |view: &&NodeView<'e>| {
            view.addresses.iter().any(|recorded| recorded.address() == address)
                || view.internal_ips().any(|known| known == address)
                || view.tunnels.iter().any(|(_, known)| *known == address)
        };
        views.filter(has).map(|view| &view.name)
    }

    fn node_at(&self, address: IpAddr) -> NodeName {
        self.nodes_at(address).next().cloned().unwrap_or_else(|| address.to_string().into())
    }
}

/// Whether it is known which nodes are near, since CrossSubnet depends on the length of the node's network; and whether there is
/// a device for IPIP, without which nothing is sent through one.
fn is_certain(wanted: &Between, host: &Host<'_>) -> bool {
    let Some(own) = wanted.own_node() else { return false };
    if wanted.wants_ipip() && !host.has_all_links() {
        return false;
    }
    VERSIONS.into_iter().all(|version| {
        let is_single = own.of(version).address.is_some_and(|net| net.prefix_len() == net.max_prefix_len());
        !is_single || !wanted.has_extent(version, Extent::CrossSubnet)
    })
}

/// `via 10.0.1.0 dev vxlan.calico onlink`.
pub(super) fn in_words(wanted: &Between, route: &NodeRoute) -> String {
    let mut words = Vec::new();
    words.extend(route.gateway().map(|gateway| format!("via {gateway}")));
    words.extend(wanted.device_of(route).map(|device| format!("dev {device}")));
    if route.is_tunnelled() && route.is_onlink() {
        words.push("onlink".to_owned());
    }
    words.join(" ")
}
