//! The VXLAN devices: this node's own, and where the others' are.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{IpVersion, Mac};

use super::mtu::{VXLAN_V4_OVERHEAD, VXLAN_V6_OVERHEAD};
use super::records::NodeView;
use super::settings::BetweenSettings;
use super::way::{NodeRoute, Via, Way, slot};
use crate::objects::Route;

/// The names of the devices for IPv4 and IPv6, Calico's.
pub const VXLAN_DEVICES: [&str; 2] = ["vxlan.calico", "vxlan-v6.calico"];

/// The kernel's own name for the device for IPIP.
pub const IPIP_DEVICE: &str = "tunl0";

/// What this node offers for its own routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uplinks {
    pub v4: Option<Uplink>,
    pub v6: Option<Uplink>,
    /// The kernel has IPIP tunnels.
    pub has_ipip: bool,
}

/// The device that has the node's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    pub device: String,
    pub index: u32,
    pub mtu: u32,
}

impl Uplinks {
    pub fn of(&self, version: IpVersion) -> Option<&Uplink> {
        match version {
            IpVersion::V4 => self.v4.as_ref(),
            IpVersion::V6 => self.v6.as_ref(),
        }
    }
}

/// The devices that routes between nodes lead by, as they were last seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BetweenDevices {
    /// By IP version.
    pub uplinks: [Option<u32>; 2],
    pub vxlan: [Option<u32>; 2],
    pub ipip: Option<u32>,
}

impl BetweenDevices {
    pub fn index_of(&self, version: IpVersion, via: Via) -> Option<u32> {
        match via {
            Via::Uplink => self.uplinks[slot(version)],
            Via::Vxlan => self.vxlan[slot(version)],
            Via::Ipip => self.ipip,
        }
    }

    /// A wanted route as the kernel holds it; `None` if the device that it leads by is not there.
    pub fn kernel_route(&self, route: &NodeRoute) -> Option<Route> {
        Some(route.by_device(match route.way {
            Way::Blackhole => None,
            Way::Via { via, .. } => Some(self.index_of(route.version(), via)?),
        }))
    }

    /// What the device with this index is for, to routes of this IP version.
    pub fn via(&self, version: IpVersion, index: u32) -> Option<Via> {
        let is_it = |via: &Via| self.index_of(version, *via) == Some(index);
        [Via::Uplink, Via::Vxlan, Via::Ipip].into_iter().find(is_it)
    }

    /// The IP version of the VXLAN device with this index.
    pub fn vxlan_version(&self, index: u32) -> Option<IpVersion> {
        [IpVersion::V4, IpVersion::V6].into_iter().find(|version| self.vxlan[slot(*version)] == Some(index))
    }

    pub(super) fn is_known(&self, index: u32) -> bool {
        self.uplinks.contains(&Some(index)) || self.vxlan.contains(&Some(index)) || self.ipip == Some(index)
    }
}

/// A VXLAN device as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VxlanDevice {
    pub version: IpVersion,
    pub vni: u32,
    pub port: u16,
    pub mac: Mac,
    /// The node's address: packets come from there.
    pub local: IpAddr,
    /// The index of the device that packets leave by.
    pub parent: u32,
    /// Its own address, alone, once there is one. The device comes before that: whoever reads the address in the node's record may
    /// send through the tunnel at once.
    pub address: Option<IpAddr>,
    pub mtu: u32,
}

impl VxlanDevice {
    /// Carried by a device that is ours to remove.
    pub const ALIAS: &str = "plumb:vxlan";

    pub fn name(&self) -> &'static str {
        VxlanDevice::name_of(self.version)
    }

    pub fn name_of(version: IpVersion) -> &'static str {
        VXLAN_DEVICES[slot(version)]
    }

    /// This node's, unless something that it needs is missing.
    pub(super) fn of(
        name: &str,
        own: &NodeView,
        version: IpVersion,
        settings: &BetweenSettings,
        uplinks: &Uplinks,
    ) -> Option<VxlanDevice> {
        let (presence, uplink) = (own.of(version), uplinks.of(version)?);
        let (said, overhead) = match version {
            IpVersion::V4 => (settings.vxlan_mtu, VXLAN_V4_OVERHEAD),
            IpVersion::V6 => (settings.vxlan_mtu_v6, VXLAN_V6_OVERHEAD),
        };
        Some(VxlanDevice {
            version,
            vni: settings.vxlan_vni,
            port: settings.vxlan_port,
            mac: presence.mac.unwrap_or_else(|| Mac::of_vxlan(name, version)),
            local: presence.address?.addr(),
            parent: uplink.index,
            address: presence.tunnel,
            mtu: said.unwrap_or_else(|| uplink.mtu.saturating_sub(overhead)),
        })
    }
}

/// The device for IPIP as it must be. The kernel makes it itself, one for all tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpipDevice {
    /// Its own address, alone, once there is one.
    pub address: Option<IpAddr>,
    pub mtu: u32,
}

/// The far end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vtep {
    /// The device's own address.
    pub address: IpAddr,
    pub mac: Mac,
    /// The node's.
    pub node: IpAddr,
}

impl Vtep {
    pub(super) fn of(name: &str, node: &NodeView, version: IpVersion, own: IpAddr) -> Option<Vtep> {
        let presence = node.of(version);
        let address = presence.address?.addr();
        let mac = presence.mac.unwrap_or_else(|| Mac::of_vxlan(name, version));
        (address != own).then_some(Vtep { address: presence.tunnel?, mac, node: address })
    }

    /// The kernel takes no IPv6 gateway, even one that is said to be right there, that it would reach by another device. A block
    /// that was reached directly until now may hold it: so it has a route of its own.
    pub(super) fn route(&self) -> Option<NodeRoute> {
        let way = Way::Via { via: Via::Vxlan, gateway: self.address };
        self.address.is_ipv6().then(|| NodeRoute { destination: IpNet::from(self.address), way })
    }
}
