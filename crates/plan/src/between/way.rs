//! One route, and the decision which way it leads.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use model::{Cidr, IpVersion};

use super::records::{Encapsulation, Extent, NodeView};
use super::trouble::Trouble;
use super::tunnel::Uplinks;
use crate::named::RouteKind;
use crate::objects::{Route, usual_metric};

/// Marks every route of ours that leads to another node, or away from one of our blocks. Another number than that of routes to
/// pods, so that either can be listed without the other.
pub const BETWEEN_PROTOCOL: u8 = 113;

const BLACKHOLE_METRIC: u32 = 1 << 20;

/// A route that the node shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeRoute {
    pub destination: IpNet,
    pub way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Packets are thrown away.
    Blackhole,
    /// By a device, to this gateway, which is taken to be right there.
    Via { via: Via, gateway: IpAddr },
}

/// A device, by what it is for: which one that is only the node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// The network card with the node's address of the route's IP version.
    Uplink,
    /// The VXLAN device of the route's IP version.
    Vxlan,
    Ipip,
}

impl NodeRoute {
    pub fn version(&self) -> IpVersion {
        IpVersion::of(self.destination.addr())
    }

    /// The lowest wins. Routes to single addresses stand behind those of pods that are here: whoever has just got an address
    /// is right, and the record that says so may not have arrived yet. A black hole gives way to whatever leads somewhere,
    /// such as the network of another plugin that has its addresses from our book.
    pub fn metric(&self) -> u32 {
        let is_single = self.destination.prefix_len() == self.destination.max_prefix_len();
        match self.way {
            Way::Blackhole => BLACKHOLE_METRIC,
            Way::Via { .. } => usual_metric(self.destination.addr()) + u32::from(is_single),
        }
    }

    /// The gateway to name. An address at the end of a tunnel is its own gateway: then none is named.
    pub fn gateway(&self) -> Option<IpAddr> {
        match self.way {
            Way::Blackhole => None,
            Way::Via { gateway, .. } => (IpNet::from(gateway) != self.destination).then_some(gateway),
        }
    }

    /// As the kernel holds it, by the device that has this number.
    pub fn by_device(&self, device: Option<u32>) -> Route {
        let gateway = self.gateway();
        let is_direct = self.version() == IpVersion::V4 && gateway.is_none() && self.way != Way::Blackhole;
        Route {
            kind: if self.way == Way::Blackhole { RouteKind::Blackhole } else { RouteKind::Unicast },
            gateway,
            device,
            protocol: BETWEEN_PROTOCOL,
            scope: if is_direct { Route::LINK } else { Route::UNIVERSE },
            metric: self.metric(),
            // The kernel is not to look for a route to the gateway: it is on that device.
            is_onlink: gateway.is_some(),
            ..Route::to(self.destination)
        }
    }
}

impl fmt::Display for NodeRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.way {
            Way::Blackhole => write!(f, "blackhole {}", self.destination),
            Way::Via { via, gateway } => {
                let through = match via {
                    Via::Uplink => "",
                    Via::Vxlan => " through VXLAN",
                    Via::Ipip => " through IPIP",
                };
                write!(f, "{} via {gateway}{through}", self.destination)
            }
        }
    }
}

/// What every decision starts from. While it stays the same, so do the decisions about blocks and nodes that stay the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ground {
    pub(super) own: NodeView,
    pub(super) has_uplink: [bool; 2],
    pub(super) has_vxlan: [bool; 2],
    pub(super) has_ipip: bool,
    pub(super) writes_direct: bool,
    /// The most special first.
    pub(super) pools: Vec<PoolGround>,
    pub(super) services: Vec<IpNet>,
}

/// What decides about the blocks of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolGround {
    pub(super) cidr: Cidr,
    pub(super) encapsulation: Encapsulation,
    pub(super) block_size: u8,
}

pub(super) fn slot(version: IpVersion) -> usize {
    match version {
        IpVersion::V4 => 0,
        IpVersion::V6 => 1,
    }
}

impl Ground {
    pub(super) fn set_uplinks(&mut self, uplinks: &Uplinks) {
        self.has_uplink = [uplinks.v4.is_some(), uplinks.v6.is_some()];
        self.has_ipip = uplinks.has_ipip;
    }

    pub(super) fn pool_of(&self, block: &Cidr) -> Option<&PoolGround> {
        self.pools.iter().find(|pool| pool.cidr.contains_cidr(block))
    }

    fn tunnel_to(&self, node: Option<&NodeView>, version: IpVersion) -> Result<IpAddr, Trouble> {
        let gateway = node.and_then(|node| node.of(version).tunnel).ok_or(Trouble::NoTunnel)?;
        if self.has_vxlan[slot(version)] { Ok(gateway) } else { Err(Trouble::NoOwnTunnel { version }) }
    }

    /// Which way packets to what a node has go, if that is for us to say, and what is wrong with it.
    pub(super) fn way_to(
        &self,
        node: Option<&NodeView>,
        version: IpVersion,
        encapsulation: Encapsulation,
    ) -> (Option<Way>, Option<Trouble>) {
        let address = match self.address_of(node, version) {
            Ok(address) => address,
            Err(trouble) => return (None, Some(trouble)),
        };
        let is_near = self.own.of(version).address.is_some_and(|own| own.contains(&address));
        let direct = Way::Via { via: Via::Uplink, gateway: address };
        // Rather without a tunnel than not at all, where that may work.
        let fallback = is_near.then_some(direct);
        match encapsulation {
            Encapsulation::None if !self.writes_direct => (None, None),
            Encapsulation::None if is_near => (Some(direct), None),
            Encapsulation::None => (None, Some(Trouble::Apart)),
            Encapsulation::Vxlan(Extent::CrossSubnet) | Encapsulation::Ipip(Extent::CrossSubnet)
                if is_near =>
            {
                (Some(direct), None)
            }
            Encapsulation::Vxlan(_) => match self.tunnel_to(node, version) {
                Ok(gateway) => (Some(Way::Via { via: Via::Vxlan, gateway }), None),
                Err(trouble) => (fallback, Some(trouble)),
            },
            Encapsulation::Ipip(_) if self.has_ipip => {
                (Some(Way::Via { via: Via::Ipip, gateway: address }), None)
            }
            Encapsulation::Ipip(_) => (fallback, Some(Trouble::NoIpip)),
        }
    }

    /// The address of a node, if this node can send anything there.
    fn address_of(&self, node: Option<&NodeView>, version: IpVersion) -> Result<IpAddr, Trouble> {
        let address = node.and_then(|node| node.of(version).address).ok_or(Trouble::NoAddress)?;
        let own = self.own.of(version).address.ok_or(Trouble::NoOwnAddress { version })?;
        if own.addr() == address.addr() {
            return Err(Trouble::OurAddress);
        }
        if !self.has_uplink[slot(version)] {
            return Err(Trouble::NoUplink { version });
        }
        Ok(address.addr())
    }
}
