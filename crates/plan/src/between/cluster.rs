//! The cluster as this node needs to know it, and what follows from it, kept up to date change by change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use model::{Cidr, IpVersion, Mac};

use super::blocks::Blocks;
use super::claims::Claims;
use super::guard::Guard;
use super::held::Held;
use super::lawful::Law;
use super::mtu::{IPIP_OVERHEAD, Overhead, VXLAN_V4_OVERHEAD, VXLAN_V6_OVERHEAD, pod_mtu};
use super::nat;
use super::pods::{AllowedSource, PodGuard};
use super::records::{BlockView, Encapsulation, NodeView, PoolView};
use super::settings::{BetweenSettings, Writer};
use super::trouble::Trouble;
use super::troubles::Troubles;
use super::tunnel::{IpipDevice, Uplinks, Vtep, VxlanDevice};
use super::way::{Ground, NodeRoute, PoolGround, Way, slot};

const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

/// Take in what has changed with the `set_…` verbs, in any order, then [`Between::settle`], and then ask for what is wanted.
#[derive(Clone, Debug)]
pub struct Between {
    pub(super) own: String,
    pub(super) nodes: BTreeMap<String, NodeView>,
    pub(super) pools: BTreeMap<String, PoolView>,
    pub(super) blocks: Blocks,
    settings: BetweenSettings,
    uplinks: Uplinks,
    allowed_sources: BTreeSet<AllowedSource>,
    // What follows.
    pub(super) ground: Ground,
    /// The blocks whose routes depend on a node.
    blocks_of: BTreeMap<String, Vec<Cidr>>,
    /// Sorted.
    pub(super) names_at: BTreeMap<IpAddr, Vec<String>>,
    shared: BTreeSet<IpAddr>,
    routes: Claims<IpNet, Claimant, Way>,
    pub(super) routes_of: BTreeMap<Cidr, Box<[IpNet]>>,
    neighbours: Claims<IpAddr, String, Mac>,
    forwards: Claims<(IpVersion, Mac), String, IpAddr>,
    vteps: BTreeMap<(String, IpVersion), Vtep>,
    devices: [Option<VxlanDevice>; 2],
    pub(super) troubles: Troubles,
    /// Blocks that stay routed although nobody would route them anew.
    pub(super) held: BTreeMap<Cidr, Held>,
    nat: Option<String>,
    thought_over: u64,
    pub(super) protected_version: u64,
    // What waits for the next settling.
    pub(super) touched_blocks: BTreeSet<Cidr>,
    /// Those of them that lead to nodes to which they did not lead before, and where they led.
    pub(super) new_blocks: BTreeMap<Cidr, BTreeSet<String>>,
    touched_nodes: BTreeSet<String>,
    pub(super) is_ground_touched: bool,
    pub(super) is_nat_touched: bool,
}

/// Who wants a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claimant {
    Block(Cidr),
    /// The tunnel's end at a node.
    Vtep(String),
}

/// What is wanted otherwise than before, and how it was before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub routes: BTreeMap<IpNet, Option<Way>>,
    pub neighbours: BTreeMap<IpAddr, Option<Mac>>,
    pub forwards: BTreeMap<(IpVersion, Mac), Option<IpAddr>>,
    /// One of the VXLAN devices.
    pub devices: bool,
    /// The rules for packets that leave the cluster, for those that come out of tunnels, and for those that pods send.
    pub nat: bool,
}

impl Changed {
    pub fn is_empty(&self) -> bool {
        *self == Changed::default()
    }
}

impl Between {
    /// Of the node with this name, in a cluster of which nothing is known yet.
    pub fn new(own: &str) -> Between {
        Between {
            own: own.to_owned(),
            nodes: BTreeMap::new(),
            pools: BTreeMap::new(),
            blocks: Blocks::default(),
            settings: BetweenSettings::default(),
            uplinks: Uplinks::default(),
            allowed_sources: BTreeSet::new(),
            ground: Ground::default(),
            blocks_of: BTreeMap::new(),
            names_at: BTreeMap::new(),
            shared: BTreeSet::new(),
            routes: Claims::default(),
            routes_of: BTreeMap::new(),
            neighbours: Claims::default(),
            forwards: Claims::default(),
            vteps: BTreeMap::new(),
            devices: [None, None],
            troubles: Troubles::default(),
            held: BTreeMap::new(),
            nat: None,
            thought_over: 0,
            protected_version: 0,
            touched_blocks: BTreeSet::new(),
            new_blocks: BTreeMap::new(),
            touched_nodes: BTreeSet::new(),
            is_ground_touched: true,
            is_nat_touched: true,
        }
    }

    /// A node's record, or that there is none any more.
    pub fn set_node(&mut self, name: &str, node: Option<NodeView>) {
        if self.nodes.get(name) == node.as_ref() {
            return;
        }
        let before = self.nodes.remove(name);
        self.protected_version += 1;
        for address in before.iter().flat_map(addresses) {
            self.leave_address(address, name);
        }
        for address in node.iter().flat_map(addresses) {
            self.take_address(address, name);
        }
        for address in before.iter().chain(&node).flat_map(addresses) {
            // A block that holds a node's address is not routed.
            self.touched_blocks.extend(self.blocks.around(address).map(|(cidr, _)| cidr));
        }
        if let Some(node) = node {
            self.nodes.insert(name.to_owned(), node);
        }
        self.touched_nodes.insert(name.to_owned());
        self.is_ground_touched |= name == self.own;
        self.is_nat_touched |= self.settings.nat.excludes_nodes || self.has_tunnels();
    }

    pub fn set_pool(&mut self, name: &str, pool: Option<PoolView>) {
        self.protected_version += 1;
        let cidr = pool.as_ref().map(|pool| pool.cidr);
        let before = match pool {
            Some(pool) => self.pools.insert(name.to_owned(), pool),
            None => self.pools.remove(name),
        };
        if let Some(before) = before.filter(|before| Some(before.cidr) != cidr) {
            self.hold_blocks_of(&before);
        }
        self.is_ground_touched = true;
        self.is_nat_touched = true;
    }

    pub fn set_block(&mut self, cidr: Cidr, block: Option<BlockView>) {
        let before = self.blocks.get(&cidr);
        if before == block.as_ref() {
            return;
        }
        let nodes: BTreeSet<String> =
            before.into_iter().flat_map(BlockView::nodes).map(str::to_owned).collect();
        let is_new = block.iter().flat_map(BlockView::nodes).any(|node| !nodes.contains(node));
        let is_other = before.map(|view| &view.owner) != block.as_ref().map(|view| &view.owner);
        for node in before.into_iter().flat_map(BlockView::nodes) {
            if let Some(blocks) = self.blocks_of.get_mut(node) {
                blocks.retain(|known| *known != cidr);
                if blocks.is_empty() {
                    self.blocks_of.remove(node);
                }
            }
        }
        for node in block.iter().flat_map(BlockView::nodes) {
            let blocks = self.blocks_of.entry(node.to_owned()).or_insert_with(|| Vec::with_capacity(1));
            if !blocks.contains(&cidr) {
                blocks.push(cidr);
            }
        }
        let is_gone = block.is_none();
        self.blocks.set(cidr, block);
        self.touched_blocks.insert(cidr);
        if is_new {
            self.new_blocks.entry(cidr).or_insert(nodes);
        }
        if is_other {
            self.touched_blocks.extend(self.blocks.overlapping(cidr));
        }
        if is_gone {
            self.new_blocks.remove(&cidr);
            // Whether a tunnel is wanted may depend on it.
            let was_held = self.held.remove(&cidr).is_some();
            self.is_ground_touched |= was_held;
            self.is_nat_touched |= was_held;
        }
    }

    pub fn set_settings(&mut self, settings: BetweenSettings) {
        self.protected_version += 1;
        self.settings = settings;
        self.is_ground_touched = true;
        self.is_nat_touched = true;
    }

    /// What the node's own devices offer.
    pub fn set_uplinks(&mut self, uplinks: Uplinks) {
        self.is_nat_touched |= self.uplinks.has_ipip != uplinks.has_ipip;
        self.uplinks = uplinks;
        self.is_ground_touched = true;
    }

    /// What pods of this node may send from besides their own addresses. Whether that is news.
    pub fn set_allowed_sources(&mut self, allowed: BTreeSet<AllowedSource>) -> bool {
        let is_new = self.allowed_sources != allowed;
        self.is_nat_touched |= is_new;
        self.allowed_sources = allowed;
        is_new
    }

    /// Thinks over what was touched. Says what is wanted otherwise now.
    pub fn settle(&mut self) -> Changed {
        let mut changed = Changed::default();
        let mut blocks = std::mem::take(&mut self.touched_blocks);
        let mut nodes = std::mem::take(&mut self.touched_nodes);
        if std::mem::take(&mut self.is_ground_touched) {
            let devices = VERSIONS.map(|version| self.device(version));
            changed.devices = devices != self.devices;
            self.is_nat_touched |= changed.devices;
            self.devices = devices;
            let ground = self.lay_ground();
            if ground != self.ground {
                self.ground = ground;
                blocks.extend(self.blocks.cidrs().copied());
                nodes.extend(self.nodes.keys().cloned());
            }
        }
        for name in &nodes {
            blocks.extend(self.blocks_of.get(name).into_iter().flatten().copied());
            VERSIONS.into_iter().for_each(|version| self.settle_vtep(name, version, &mut changed));
        }
        self.thought_over += u64::try_from(nodes.len() + blocks.len()).unwrap_or_default();
        self.hold_disputed(&blocks);
        blocks.into_iter().for_each(|cidr| self.settle_block(cidr, &mut changed));
        self.new_blocks.clear();
        if std::mem::take(&mut self.is_nat_touched) {
            let nat = Some(self.rules());
            changed.nat = nat != self.nat;
            self.nat = nat;
        }
        // What came back to how it was is no change.
        changed.routes.retain(|destination, before| self.routes.get(destination) != *before);
        changed.neighbours.retain(|address, before| self.neighbours.get(address) != *before);
        changed.forwards.retain(|key, before| self.forwards.get(key) != *before);
        changed
    }

    fn has_tunnels(&self) -> bool {
        self.devices.iter().any(Option::is_some) || (self.uplinks.has_ipip && self.wants_ipip())
    }

    fn rules(&self) -> String {
        let mut guards = PodGuard::new(&self.settings).text(&self.allowed_sources);
        guards.extend(self.guard().map(|guard| guard.text()));
        nat::rules(self.pools.values(), &self.settings.nat, || self.node_addresses(), &guards)
    }

    /// Who may send into this node's tunnels.
    fn guard(&self) -> Option<Guard<'_>> {
        self.has_tunnels().then(|| Guard {
            vxlan: VERSIONS.into_iter().filter(|version| self.devices[slot(*version)].is_some()).collect(),
            vxlan_port: self.settings.vxlan_port,
            has_ipip: self.uplinks.has_ipip && self.wants_ipip(),
            nodes: self.node_addresses(),
            settings: &self.settings.tunnels,
        })
    }

    fn lay_ground(&self) -> Ground {
        let of_pool = |pool: &PoolView| PoolGround {
            cidr: pool.cidr,
            encapsulation: pool.encapsulation,
            block_size: pool.block_size,
        };
        let mut pools: Vec<PoolGround> = self.pools.values().map(of_pool).collect();
        pools.sort_by_key(|pool| (std::cmp::Reverse(pool.cidr.prefix_len()), pool.cidr));
        // Of two pools of one network, the first by name.
        pools.dedup_by_key(|pool| pool.cidr);
        let mut ground = Ground {
            own: self.nodes.get(&self.own).cloned().unwrap_or_default(),
            has_vxlan: VERSIONS.map(|version| self.has_tunnel_address(version)),
            writes_direct: self.settings.writer() == Writer::Agent,
            pools,
            services: self.settings.services.clone(),
            ..Ground::default()
        };
        ground.set_uplinks(&self.uplinks);
        ground
    }

    /// The tunnel's device has its address: packets can be sent through it.
    fn has_tunnel_address(&self, version: IpVersion) -> bool {
        self.devices[slot(version)].as_ref().is_some_and(|device| device.address.is_some())
    }

    fn device(&self, version: IpVersion) -> Option<VxlanDevice> {
        let is_wanted = self.settings.vxlan_enabled && self.wants_vxlan(version);
        let own = self.nodes.get(&self.own).filter(|_| is_wanted)?;
        VxlanDevice::of(&self.own, own, version, &self.settings, &self.uplinks)
    }

    /// Whether a pool is reached through IPIP.
    pub fn wants_ipip(&self) -> bool {
        self.encapsulations(IpVersion::V4)
            .any(|encapsulation| matches!(encapsulation, Encapsulation::Ipip(_)))
    }

    /// The device for it, unless something that it needs is missing.
    pub fn ipip(&self, uplinks: &Uplinks) -> Option<IpipDevice> {
        let uplink = uplinks.v4.as_ref().filter(|_| self.wants_ipip())?;
        let mtu = self.settings.ipip_mtu.unwrap_or(uplink.mtu.saturating_sub(IPIP_OVERHEAD));
        Some(IpipDevice { address: self.own_node()?.ipip_tunnel, mtu })
    }

    /// Whether a pool of this IP version is reached through VXLAN.
    pub fn wants_vxlan(&self, version: IpVersion) -> bool {
        self.encapsulations(version).any(|encapsulation| matches!(encapsulation, Encapsulation::Vxlan(_)))
    }

    /// Whether a tunnel address of this IP version can be had anew.
    pub fn offers_vxlan(&self, version: IpVersion) -> bool {
        let offers =
            |pool: &PoolView| pool.is_enabled && matches!(pool.encapsulation, Encapsulation::Vxlan(_));
        self.pools.values().any(|pool| pool.cidr.version() == version && offers(pool))
    }

    fn settle_vtep(&mut self, name: &str, version: IpVersion, changed: &mut Changed) {
        let key = (name.to_owned(), version);
        let own = self.ground.own.of(version).address.filter(|_| self.ground.has_vxlan[slot(version)]);
        let node = self.nodes.get(name).filter(|_| name != self.own);
        let vtep = node.zip(own).and_then(|(node, own)| Vtep::of(name, node, version, own.addr()));
        if self.vteps.get(&key).copied() == vtep {
            return;
        }
        for vtep in self.vteps.get(&key).copied().into_iter().chain(vtep) {
            let before = self.neighbours.get(&vtep.address);
            changed.neighbours.entry(vtep.address).or_insert(before);
            let before = self.forwards.get(&(version, vtep.mac));
            changed.forwards.entry((version, vtep.mac)).or_insert(before);
            if let Some(route) = vtep.route() {
                changed.routes.entry(route.destination).or_insert(self.routes.get(&route.destination));
            }
        }
        if let Some(before) = self.vteps.remove(&key) {
            self.neighbours.remove(&before.address, &key.0);
            self.forwards.remove(&(version, before.mac), &key.0);
            if let Some(route) = before.route() {
                self.routes.remove(&route.destination, &Claimant::Vtep(key.0.clone()));
            }
        }
        if let Some(vtep) = vtep {
            if let Some(route) = vtep.route() {
                self.routes.insert(route.destination, Claimant::Vtep(key.0.clone()), route.way);
            }
            self.neighbours.insert(vtep.address, key.0.clone(), vtep.mac);
            self.forwards.insert((version, vtep.mac), key.0.clone(), vtep.node);
            self.vteps.insert(key, vtep);
        }
    }

    fn settle_block(&mut self, cidr: Cidr, changed: &mut Changed) {
        let (routes, troubles) = self.decide_block(&cidr);
        let before = self.routes_of.remove(&cidr).unwrap_or_default();
        for destination in before.iter().copied().chain(routes.iter().map(|route| route.destination)) {
            changed.routes.entry(destination).or_insert_with(|| self.routes.get(&destination));
        }
        for destination in &before {
            self.routes.remove(destination, &Claimant::Block(cidr));
        }
        for route in &routes {
            self.routes.insert(route.destination, Claimant::Block(cidr), route.way);
        }
        if !routes.is_empty() {
            self.routes_of.insert(cidr, routes.iter().map(|route| route.destination).collect());
        }
        self.troubles.set(cidr, troubles);
        if !self.troubles.is_of_record(&cidr) {
            self.held.remove(&cidr);
        }
    }

    pub(super) fn law(&self) -> Law<'_> {
        Law { ground: &self.ground, blocks: &self.blocks, nodes: &self.names_at }
    }

    fn decide_block(&self, cidr: &Cidr) -> (Vec<NodeRoute>, Vec<(String, Trouble)>) {
        let (mut routes, mut troubles) = (Vec::new(), Vec::new());
        let Some(block) = self.blocks.get(cidr) else { return (routes, troubles) };
        let version = cidr.version();
        let (pool, held) = (self.ground.pool_of(cidr), self.held.get(cidr));
        if pool.is_none() {
            let owner = block.owner.as_ref();
            let is_held = held.is_some_and(|held| owner.is_none_or(|owner| held.nodes.contains(owner)));
            let trouble = if is_held { Trouble::PoolGone } else { Trouble::NoPool };
            troubles.push((block.owner.clone().unwrap_or_default(), trouble));
        }
        let encapsulation = pool.map(|pool| pool.encapsulation).or(held.map(|held| held.encapsulation));
        let law = self.law();
        let mut lead = |destination: IpNet, node: &str| {
            let objection = law.objection(destination, node, cidr);
            troubles.extend(objection.map(|trouble| (node.to_owned(), trouble)));
            let is_held = held.is_some_and(|held| held.nodes.contains(node));
            let may_lead = match objection {
                None => pool.is_some() || is_held,
                Some(_) => pool.is_some() && is_held,
            };
            let Some(encapsulation) = encapsulation.filter(|_| may_lead) else {
                return;
            };
            if node == self.own {
                let is_network = destination.prefix_len() < version.bits();
                routes.extend(is_network.then_some(NodeRoute { destination, way: Way::Blackhole }));
                return;
            }
            let (way, trouble) = self.ground.way_to(self.nodes.get(node), version, encapsulation);
            routes.extend(way.map(|way| NodeRoute { destination, way }));
            troubles.extend(trouble.map(|trouble| (node.to_owned(), trouble)));
        };
        if let Some(owner) = block.owner.as_deref() {
            lead(network(cidr), owner);
        }
        for (address, node) in block.lent.iter().filter(|(_, node)| *node != self.own) {
            lead(IpNet::from(*address), node);
        }
        (routes, troubles)
    }

    fn take_address(&mut self, address: IpAddr, name: &str) {
        let names = self.names_at.entry(address).or_insert_with(|| Vec::with_capacity(1));
        if let Err(place) = names.binary_search_by(|known| known.as_str().cmp(name)) {
            names.insert(place, name.to_owned());
        }
        if names.len() > 1 {
            self.shared.insert(address);
        }
    }

    fn leave_address(&mut self, address: IpAddr, name: &str) {
        let Some(names) = self.names_at.get_mut(&address) else { return };
        names.retain(|known| known != name);
        if names.len() < 2 {
            self.shared.remove(&address);
        }
        if names.is_empty() {
            self.names_at.remove(&address);
        }
    }

    fn node_addresses(&self) -> BTreeSet<IpAddr> {
        self.names_at.keys().copied().collect()
    }
}

/// What is wanted, since the last settling.
impl Between {
    pub fn own_name(&self) -> &str {
        &self.own
    }

    pub fn own_node(&self) -> Option<&NodeView> {
        self.nodes.get(&self.own)
    }

    pub fn nodes(&self) -> impl Iterator<Item = (&str, &NodeView)> {
        self.nodes.iter().map(|(name, node)| (name.as_str(), node))
    }

    pub fn pool_names(&self) -> impl Iterator<Item = &str> {
        self.pools.keys().map(String::as_str)
    }

    /// Of pools, and of what is left of pools that are gone.
    pub(super) fn encapsulations(&self, version: IpVersion) -> impl Iterator<Item = Encapsulation> {
        let of_pools = self.pools.values().map(|pool| (pool.cidr.version(), pool.encapsulation));
        let of_held = self.held().map(|(cidr, encapsulation)| (cidr.version(), encapsulation));
        of_pools.chain(of_held).filter(move |(of, _)| *of == version).map(|(_, encapsulation)| encapsulation)
    }

    pub(super) fn encapsulation(&self, block: &Cidr) -> Option<Encapsulation> {
        let pool = self.ground.pool_of(block).map(|pool| pool.encapsulation);
        pool.or_else(|| self.held.get(block).map(|held| held.encapsulation))
    }

    pub fn block_cidrs(&self) -> impl Iterator<Item = &Cidr> {
        self.blocks.cidrs()
    }

    pub fn settings(&self) -> &BetweenSettings {
        &self.settings
    }

    pub fn uplinks(&self) -> &Uplinks {
        &self.uplinks
    }

    pub fn route_to(&self, destination: &IpNet) -> Option<NodeRoute> {
        self.routes.get(destination).map(|way| NodeRoute { destination: *destination, way })
    }

    pub fn routes(&self) -> impl Iterator<Item = NodeRoute> {
        self.routes.iter().map(|(destination, way)| NodeRoute { destination, way })
    }

    pub fn route_count(&self) -> usize {
        self.routes.len()
    }

    /// The hardware address of a tunnel address.
    pub fn neighbour(&self, address: &IpAddr) -> Option<Mac> {
        self.neighbours.get(address)
    }

    pub fn neighbours(&self) -> impl Iterator<Item = (IpAddr, Mac)> {
        self.neighbours.iter()
    }

    /// The node at which a hardware address is.
    pub fn forward(&self, version: IpVersion, mac: Mac) -> Option<IpAddr> {
        self.forwards.get(&(version, mac))
    }

    pub fn forwards(&self) -> impl Iterator<Item = ((IpVersion, Mac), IpAddr)> {
        self.forwards.iter()
    }

    pub fn vxlan(&self, version: IpVersion) -> Option<&VxlanDevice> {
        self.devices[slot(version)].as_ref()
    }

    /// A ruleset for `nft -f`; `None` before the first settling.
    pub fn nat(&self) -> Option<&str> {
        self.nat.as_deref()
    }

    /// How large packets of pods may be. `cards`: devices that are up, with their MTU.
    pub fn pod_mtu<'a>(&self, cards: impl Iterator<Item = (&'a str, u32)>) -> u32 {
        let settings = &self.settings;
        let vxlan = |version| settings.vxlan_enabled && self.wants_vxlan(version);
        let tunnels = [
            (vxlan(IpVersion::V4), Overhead { bytes: VXLAN_V4_OVERHEAD, said: settings.vxlan_mtu }),
            (vxlan(IpVersion::V6), Overhead { bytes: VXLAN_V6_OVERHEAD, said: settings.vxlan_mtu_v6 }),
            (self.wants_ipip(), Overhead { bytes: IPIP_OVERHEAD, said: settings.ipip_mtu }),
        ];
        let tunnels: Vec<Overhead> =
            tunnels.into_iter().filter(|(is_there, _)| *is_there).map(|(_, overhead)| overhead).collect();
        pod_mtu(cards, settings.mtu_pattern.as_deref(), &tunnels)
    }

    /// What cannot be reached as the records want it: the block, the node it is at, and why.
    pub fn troubles(&self) -> impl Iterator<Item = (&Cidr, &str, Trouble)> {
        self.troubles.iter()
    }

    /// The same by reason: of how many blocks and nodes each holds. Costs as much as there are reasons.
    pub fn trouble_counts(&self) -> impl Iterator<Item = (Trouble, usize)> {
        self.troubles.counts()
    }

    /// How many blocks and nodes were thought over so far: what all settling has cost, but for the machine it runs on.
    pub fn thought_over(&self) -> u64 {
        self.thought_over
    }

    /// Addresses that several nodes claim. At most one of them is reached.
    pub fn shared_addresses(&self) -> impl Iterator<Item = (&IpAddr, &[String])> {
        self.shared.iter().filter_map(|address| Some((address, self.names_at.get(address)?.as_slice())))
    }
}

fn addresses(node: &NodeView) -> impl Iterator<Item = IpAddr> + use<> {
    [node.v4.address, node.v6.address].into_iter().flatten().map(|network| network.addr())
}

pub(super) fn network(cidr: &Cidr) -> IpNet {
    IpNet::new(cidr.network(), cidr.prefix_len()).expect("a network has a valid length")
}
