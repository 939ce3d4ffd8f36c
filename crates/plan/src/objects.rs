//! What the kernel holds: links, routes, neighbours, settings. The same types say what it must hold.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use model::{Mac, Sandbox};

use crate::named::RouteKind;
use crate::setting::DeviceSettings;

/// Marks every route of ours (`ip route` prints the number). Not one of the kernel's or iproute2's list, and not
/// one that is known to be claimed elsewhere: 80 (Felix), 84 (OVN), 186 to 196 (FRR).
pub const ROUTE_PROTOCOL: u8 = 112;

/// A device of a network namespace, as the kernel holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// `veth`, `bridge`, `vxlan` …; `None` for hardware.
    pub kind: Option<String>,
    pub peer_index: Option<u32>,
    /// The other end lies in another namespace than this one.
    pub peer_is_elsewhere: bool,
    pub alias: Option<String>,
    pub mac: Option<Mac>,
    pub mtu: u32,
    pub group: u32,
    pub up: bool,
    pub running: bool,
    /// The bridge or bond it is part of.
    pub master: Option<u32>,
    pub vxlan: Option<Vxlan>,
    pub settings: DeviceSettings,
}

/// What makes a device a VXLAN device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vxlan {
    pub vni: Option<u32>,
    pub port: Option<u16>,
    pub local: Option<IpAddr>,
    pub parent: Option<u32>,
    /// The device remembers where packets came from.
    pub learns: bool,
}

/// A route of the main table: as the kernel holds it, or as it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub destination: IpNet,
    pub kind: RouteKind,
    pub gateway: Option<IpAddr>,
    /// Of an observed route, `None` if there are several devices or none; of one that an end must have, that end's own.
    pub device: Option<u32>,
    pub protocol: u8,
    pub scope: u8,
    pub source: Option<IpAddr>,
    /// The lowest wins. The kernel keeps one route for each destination and metric.
    pub metric: u32,
    /// The gateway is taken to be on the device.
    pub is_onlink: bool,
    /// The kernel says that its device or gateway does not work.
    pub is_dead: bool,
    /// More makes it up than is said here: several next hops, encapsulation, metrics of its own.
    pub has_more: bool,
}

/// A permanent neighbour entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    pub address: IpAddr,
    pub mac: Mac,
}

/// A kernel setting, by its path below `/proc/sys`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sysctl {
    pub path: String,
    pub value: String,
}

impl Link {
    /// The sandbox that this link is in service for.
    pub fn owner(&self) -> Option<Sandbox> {
        Sandbox::from_alias(self.alias.as_deref()?)
    }

    /// The sandbox whose link this was, until it was taken out of service.
    pub fn former_owner(&self) -> Option<Sandbox> {
        Sandbox::from_detached_alias(self.alias.as_deref()?)
    }
}

impl Route {
    /// The kernel's numbers. It knows no scopes for IPv6 and calls all of them universal.
    pub const UNIVERSE: u8 = 0;
    pub const LINK: u8 = 253;

    /// To a destination, with nothing else said.
    pub fn to(destination: IpNet) -> Route {
        Route {
            destination,
            kind: RouteKind::Unicast,
            gateway: None,
            device: None,
            protocol: ROUTE_PROTOCOL,
            scope: Route::UNIVERSE,
            source: None,
            metric: usual_metric(destination.addr()),
            is_onlink: false,
            is_dead: false,
            has_more: false,
        }
    }

    /// Made by us.
    pub fn is_ours(&self) -> bool {
        self.protocol == ROUTE_PROTOCOL
    }

    /// Whether packets that `wanted` would take go the same way: on the same device, whoever made the route.
    pub fn serves(&self, wanted: &Route) -> bool {
        (self.destination, self.gateway) == (wanted.destination, wanted.gateway)
    }

    /// The same route in a place that the kernel asks before that of a rival with this metric; `None` if there is
    /// no such place. Among IPv4 routes of one metric the first wins, so that one in front of the rival will do.
    pub fn ahead_of(&self, rival_metric: u32) -> Option<Route> {
        let metric = match self.destination {
            IpNet::V4(_) => self.metric.min(rival_metric),
            IpNet::V6(_) if self.metric < rival_metric => self.metric,
            // The kernel takes 0 for "the usual one".
            IpNet::V6(_) => rival_metric.checked_sub(1).filter(|metric| *metric > 0)?,
        };
        Some(Route { metric, ..*self })
    }

    /// To an address right at the other end.
    pub fn to_neighbour(address: IpAddr) -> Route {
        let scope = if address.is_ipv4() { Route::LINK } else { Route::UNIVERSE };
        Route { scope, ..Route::to(IpNet::from(address)) }
    }

    pub(crate) fn default_via(gateway: IpAddr) -> Route {
        let everything: IpAddr = match gateway {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let destination = IpNet::new(everything, 0).expect("0 is a prefix length");
        Route { gateway: Some(gateway), ..Route::to(destination) }
    }
}

/// What the kernel takes where none is given.
pub(crate) fn usual_metric(address: IpAddr) -> u32 {
    if address.is_ipv4() { 0 } else { 1024 }
}

impl Sysctl {
    pub fn new(path: impl Into<String>, value: u8) -> Sysctl {
        Sysctl { path: path.into(), value: value.to_string() }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        match self.gateway {
            Some(gateway) => write!(f, " via {gateway}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.address, self.mac)
    }
}
