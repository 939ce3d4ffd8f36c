//! What the node must have between nodes, as checks and repairs ask for it: by names of devices, and as single changes.
//!
//! The agent compares by the kernel's numbers ([`super::kernel`]); whoever has only evidence compares by names. Both ask [`route_fault`].

use ipnet::IpNet;
use model::{Cidr, IpVersion};

use super::cluster::Between;
use super::kernel::{RouteFault, route_fault};
use super::records::{Encapsulation, Extent};
use super::tunnel::{IPIP_DEVICE, VxlanDevice};
use super::way::{NodeRoute, Via, Way};
use crate::named::NamedRoute;
use crate::task;

impl NodeRoute {
    /// Whether the kernel must take the gateway to be on the device: no other route leads to the end of a tunnel.
    pub fn is_onlink(&self) -> bool {
        self.gateway().is_some()
    }

    pub fn is_tunnelled(&self) -> bool {
        matches!(self.way, Way::Via { via: Via::Vxlan | Via::Ipip, .. })
    }
}

impl Between {
    /// The name of a device that routes of an IP version lead by.
    pub fn device_name(&self, version: IpVersion, via: Via) -> Option<&str> {
        match via {
            Via::Uplink => self.uplinks().of(version).map(|uplink| uplink.device.as_str()),
            Via::Vxlan => Some(VxlanDevice::name_of(version)),
            Via::Ipip => Some(IPIP_DEVICE),
        }
    }

    /// The device of a wanted route; none for a black hole.
    pub fn device_of(&self, route: &NodeRoute) -> Option<&str> {
        match route.way {
            Way::Blackhole => None,
            Way::Via { via, .. } => self.device_name(route.version(), via),
        }
    }

    /// What is wrong with a route that was seen in the place of a wanted one.
    pub fn fault_of(&self, seen: &NamedRoute, wanted: &NodeRoute) -> Option<RouteFault> {
        let version = wanted.version();
        let device = seen.device.as_deref();
        let is_it = |via: &Via| device.is_some() && self.device_name(version, *via) == device;
        let via = [Via::Uplink, Via::Vxlan, Via::Ipip].into_iter().find(is_it);
        let lacks_onlink = wanted.is_tunnelled() && wanted.is_onlink() && !seen.is_onlink;
        route_fault((seen.kind, via, seen.via), wanted).or(lacks_onlink.then_some(RouteFault::NotOnlink))
    }

    /// A wanted route as a repair adds it. `None` if the device that it leads by is not known.
    pub fn way_of(&self, route: &NodeRoute) -> Option<task::NextHop> {
        let metric = Some(route.metric()).filter(|metric| *metric != 0);
        match route.way {
            Way::Blackhole => Some(task::NextHop { is_blackhole: true, metric, ..task::NextHop::default() }),
            Way::Via { .. } => Some(task::NextHop {
                device: Some(self.device_of(route)?.to_owned()),
                via: route.gateway(),
                metric,
                is_onlink: route.is_onlink(),
                ..task::NextHop::default()
            }),
        }
    }

    /// The tunnel's device as a repair makes it.
    pub fn tunnel_of(&self, device: &VxlanDevice) -> Option<task::Tunnel> {
        Some(task::Tunnel {
            vni: device.vni,
            port: device.port,
            local: device.local,
            parent: self.uplinks().of(device.version)?.device.clone(),
            mac: device.mac,
            mtu: device.mtu,
            address: device.address,
            is_up: true,
        })
    }

    /// Everything that leads through the tunnel of an IP version, from nothing: entries for the tunnel's ends, then routes.
    pub fn tunnel_changes(&self, version: IpVersion) -> Vec<task::KernelChange> {
        let device = || VxlanDevice::name_of(version).to_owned();
        let forwards = self.forwards().filter(|((of, _), _)| *of == version).map(|((_, mac), node)| {
            task::KernelChange::Forward { device: device(), mac, from: None, to: Some(node) }
        });
        let neighbours = self.neighbours().filter(|(address, _)| IpVersion::of(*address) == version);
        let neighbours = neighbours.map(|(address, mac)| task::KernelChange::Neighbour {
            address,
            device: device(),
            from: None,
            to: Some(mac),
        });
        let mut routes: Vec<NodeRoute> = self
            .routes()
            .filter(|route| route.version() == version)
            .filter(|route| matches!(route.way, Way::Via { via: Via::Vxlan, .. }))
            .collect();
        // Those to gateways come before those that name them.
        routes.sort_by_key(|route| route.gateway().is_some());
        let routes = routes.into_iter().map(|route| task::KernelChange::Route {
            destination: route.destination,
            from: None,
            to: self.way_of(&route),
        });
        forwards.chain(neighbours).chain(routes).collect()
    }

    /// Whether a pool of this IP version is encapsulated to this extent.
    pub fn has_extent(&self, version: IpVersion, wanted: Extent) -> bool {
        self.encapsulations(version).any(|encapsulation| {
            matches!(encapsulation, Encapsulation::Vxlan(extent) | Encapsulation::Ipip(extent) if extent == wanted)
        })
    }

    /// Whether a route leads without a tunnel only because something for the tunnel is missing.
    pub fn is_makeshift(&self, route: &NodeRoute) -> bool {
        let extent = match self.encapsulation_of(&route.destination) {
            Some(Encapsulation::Vxlan(extent) | Encapsulation::Ipip(extent)) => extent,
            _ => return false,
        };
        extent == Extent::Always && matches!(route.way, Way::Via { via: Via::Uplink, .. })
    }

    /// How packets to a network travel, by the most special pool that it lies in. `None` if it lies in none.
    pub fn encapsulation_of(&self, network: &IpNet) -> Option<Encapsulation> {
        self.encapsulation(&Cidr::containing(network.addr(), network.prefix_len())?)
    }
}
