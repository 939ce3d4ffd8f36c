//! The addresses that a node needs for its own tunnel devices.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::ipam::BlockAttribute;
use model::{HandleId, IpVersion};

use crate::{NODE_ATTRIBUTE, Owner, Pool, PoolUse, TYPE_ATTRIBUTE};

/// A tunnel device that has an address out of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tunnel {
    Ipip,
    Vxlan,
    VxlanV6,
    Wireguard,
    WireguardV6,
}

impl Tunnel {
    pub const ALL: [Tunnel; 5] =
        [Tunnel::Ipip, Tunnel::Vxlan, Tunnel::VxlanV6, Tunnel::Wireguard, Tunnel::WireguardV6];

    /// The handle under which a node holds the address.
    pub fn handle(self, node: &str) -> HandleId {
        let [ipip, vxlan, vxlan_v6, wireguard, wireguard_v6] = HandleId::TUNNEL_DEVICES;
        let device = match self {
            Tunnel::Ipip => ipip,
            Tunnel::Vxlan => vxlan,
            Tunnel::VxlanV6 => vxlan_v6,
            Tunnel::Wireguard => wireguard,
            Tunnel::WireguardV6 => wireguard_v6,
        };
        HandleId::of_tunnel(device, node)
    }

    /// The `type` attribute of the address.
    pub fn type_word(self) -> &'static str {
        match self {
            Tunnel::Ipip => "ipipTunnelAddress",
            Tunnel::Vxlan => "vxlanTunnelAddress",
            Tunnel::VxlanV6 => "vxlanV6TunnelAddress",
            Tunnel::Wireguard => "wireguardTunnelAddress",
            Tunnel::WireguardV6 => "wireguardV6TunnelAddress",
        }
    }

    pub fn version(self) -> IpVersion {
        match self {
            Tunnel::Ipip | Tunnel::Vxlan | Tunnel::Wireguard => IpVersion::V4,
            Tunnel::VxlanV6 | Tunnel::WireguardV6 => IpVersion::V6,
        }
    }

    pub fn owner(self, node: &str) -> Owner {
        Owner { handle: self.handle(node), attributes: BTreeMap::new() }
            .with(NODE_ATTRIBUTE, node)
            .with(TYPE_ATTRIBUTE, self.type_word())
    }

    /// WireGuard runs over any pool, the others over those that ask for them.
    fn is_for(self, pool: &Pool) -> bool {
        match self {
            Tunnel::Ipip => pool.has_ipip(),
            Tunnel::Vxlan | Tunnel::VxlanV6 => pool.has_vxlan(),
            Tunnel::Wireguard | Tunnel::WireguardV6 => true,
        }
    }
}

/// The node as the records show it.
#[derive(Clone, Debug)]
pub struct TunnelNode<'a> {
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    /// The tunnel's address in the Node record.
    pub address: Option<IpAddr>,
    /// What the blocks know about that address; see [`crate::AddressLookup`].
    pub allocation: Option<&'a BlockAttribute>,
    /// WireGuard needs a public key first.
    pub has_wireguard_key: bool,
}

/// What to do about one tunnel's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunnelAddress {
    /// It has the right one, or needs none and has none.
    Keep,
    /// Take one from these pools and note it in the Node record; release what `release` says first, if anything.
    Assign { pools: Vec<String>, release: Option<TunnelRelease> },
    /// Remove it from the Node record and release it.
    Clear { release: TunnelRelease },
}

/// How to give back what the tunnel had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelRelease {
    /// Everything under this handle.
    pub handle: HandleId,
    /// And this address, which is in no handle: data of old. Only while it has neither handle nor attributes.
    pub address: Option<IpAddr>,
}

/// Decides about one tunnel of one node, given all pools.
pub fn tunnel_address(tunnel: Tunnel, node: &TunnelNode<'_>, pools: &[Pool]) -> TunnelAddress {
    let is_right = |pool: &&Pool| {
        pool.is_enabled()
            && pool.version() == tunnel.version()
            && pool.allows(PoolUse::Tunnel)
            && pool.selects_node(node.labels)
            && tunnel.is_for(pool)
    };
    let needs_key = matches!(tunnel, Tunnel::Wireguard | Tunnel::WireguardV6);
    let right: Vec<&Pool> =
        pools.iter().filter(is_right).filter(|_| !needs_key || node.has_wireguard_key).collect();
    let release = TunnelRelease { handle: tunnel.handle(node.name), address: unowned_address(node) };
    let Some(address) = node.address else {
        return match right[..] {
            [] => TunnelAddress::Keep,
            // Something may be left of a start that did not come to its end.
            _ => TunnelAddress::Assign { pools: names(&right), release: Some(release) },
        };
    };
    if right.is_empty() {
        return TunnelAddress::Clear { release };
    }
    let is_in_right_pool = right.iter().any(|pool| pool.cidr.contains(address));
    if is_in_right_pool && node.allocation.is_some_and(|known| is_of(tunnel, node.name, known)) {
        return TunnelAddress::Keep;
    }
    TunnelAddress::Assign { pools: names(&right), release: Some(release) }
}

/// The address in the record, if the blocks know it but nobody's name is on it.
fn unowned_address(node: &TunnelNode<'_>) -> Option<IpAddr> {
    let known = node.allocation?;
    let is_unowned = known.handle().is_none() && known.secondary.is_empty() && known.released_at.is_none();
    node.address.filter(|_| is_unowned)
}

fn is_of(tunnel: Tunnel, node: &str, known: &BlockAttribute) -> bool {
    let says =
        |attribute: &str, value: &str| known.secondary.get(attribute).is_some_and(|found| found == value);
    known.handle() == Some(&tunnel.handle(node))
        && says(NODE_ATTRIBUTE, node)
        && says(TYPE_ATTRIBUTE, tunnel.type_word())
}

fn names(pools: &[&Pool]) -> Vec<String> {
    pools.iter().map(|pool| pool.cidr.to_string()).collect()
}
