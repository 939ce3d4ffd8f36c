//! What the kernel holds on a device: routes, neighbours, settings.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use model::{DeviceName, Mac};

/// Marks every route of ours (`ip route` prints the number). Not one of the kernel's or iproute2's list, and not
/// one that is known to be claimed elsewhere: 80 (Felix), 84 (OVN), 186 to 196 (FRR).
pub const ROUTE_PROTOCOL: u8 = 112;

/// A unicast route in the main table through the end's own device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub destination: IpNet,
    pub gateway: Option<IpAddr>,
    pub scope: RouteScope,
    pub protocol: u8,
    /// The lowest wins. The kernel keeps one route for each destination and metric.
    pub metric: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteScope {
    Universe,
    Link,
    Other(u8),
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

impl Route {
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
        Some(Route { metric, ..self.clone() })
    }

    /// To an address right at the other end.
    pub fn to_neighbour(address: IpAddr) -> Route {
        Route {
            destination: IpNet::from(address),
            gateway: None,
            // The kernel knows no scopes for IPv6 and calls all of them universal.
            scope: if address.is_ipv4() { RouteScope::Link } else { RouteScope::Universe },
            protocol: ROUTE_PROTOCOL,
            metric: usual_metric(address),
        }
    }

    pub(crate) fn default_via(gateway: IpAddr) -> Route {
        let everything: IpAddr = match gateway {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Route {
            destination: IpNet::new(everything, 0).expect("0 is a prefix length"),
            gateway: Some(gateway),
            scope: RouteScope::Universe,
            protocol: ROUTE_PROTOCOL,
            metric: usual_metric(gateway),
        }
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

    /// The same setting of a device that gets another name.
    pub fn under(&self, name: &str, other: &DeviceName) -> Sysctl {
        let path = match self.path.split_once(&format!("/{name}/")) {
            Some((before, after)) => format!("{before}/{other}/{after}"),
            None => self.path.clone(),
        };
        Sysctl { path, value: self.value.clone() }
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
