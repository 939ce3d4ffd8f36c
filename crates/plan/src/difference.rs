//! What stands between the wiring a pod should have and the wiring it has.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use model::{DeviceName, Mac, Sandbox};

use crate::objects::{Neighbour, Route, Sysctl};
use crate::wiring::{End, PodWiring, Side};

/// What the kernel holds under the two names of a wiring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedWiring {
    pub host: Option<ObservedEnd>,
    pub pod: Option<ObservedEnd>,
}

/// One device as it is. Routes, neighbours and addresses are those on this device alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedEnd {
    pub index: u32,
    /// The index of the device at the other end, in whatever namespace that is.
    pub peer_index: Option<u32>,
    pub alias: Option<String>,
    /// `None` here and below: not observed, so that it makes no difference.
    pub mac: Option<Mac>,
    pub mtu: Option<u32>,
    /// Set up by an administrator.
    pub up: Option<bool>,
    /// Up, and the other end too.
    pub running: Option<bool>,
    pub addresses: Vec<IpNet>,
    pub routes: Vec<Route>,
    /// Routes to destinations that this end wants, through other devices.
    pub rivals: Vec<Route>,
    /// Those of them that the kernel prefers to whatever leads through this device.
    pub preferred: Vec<Route>,
    /// Entries that stay: permanent ones, where that is known.
    pub neighbours: Vec<Neighbour>,
    /// Addresses whose neighbour the kernel asked for and got no answer.
    pub unresolved: Vec<IpAddr>,
    pub sysctls: Vec<Sysctl>,
    pub partial: PartialEnd,
}

/// Lists of which only a part was observed: what they lack may be there, and makes no difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialEnd {
    pub addresses: bool,
    pub routes: bool,
    pub neighbours: bool,
}

/// One thing that is not as it should be. Whether it can be put right, [`Difference::can_be_mended`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// There is no device of that name.
    Missing {
        side: Side,
        device: DeviceName,
    },
    /// There is a device of that name, and it is not this sandbox's. It must not be touched.
    Foreign {
        side: Side,
        device: DeviceName,
        owner: Option<Sandbox>,
    },
    Down {
        side: Side,
        device: DeviceName,
    },
    /// Up, but no packet can pass (yet): the kernel is still starting the device, or its peer is down.
    NotRunning {
        side: Side,
        device: DeviceName,
    },
    Mac {
        side: Side,
        device: DeviceName,
        wanted: Mac,
        found: Mac,
    },
    Mtu {
        side: Side,
        device: DeviceName,
        wanted: u32,
        found: u32,
    },
    Sysctl {
        side: Side,
        device: DeviceName,
        wanted: Sysctl,
        found: Option<String>,
    },
    AddressMissing {
        side: Side,
        device: DeviceName,
        address: IpNet,
    },
    RouteMissing {
        side: Side,
        device: DeviceName,
        route: Route,
    },
    /// A stranger's route to the same destination leads elsewhere, and packets take it. It must not be touched: on
    /// the node ours is put in front of it, inside a pod it is the pod's own doing.
    RouteTaken {
        side: Side,
        device: DeviceName,
        route: Route,
        /// Who made it, as a route protocol.
        by: u8,
        /// The stranger's.
        metric: u32,
    },
    /// A route of ours that nothing asks for.
    RouteStray {
        side: Side,
        device: DeviceName,
        route: Route,
    },
    NeighbourMissing {
        side: Side,
        device: DeviceName,
        neighbour: Neighbour,
        /// What a permanent entry says of the address instead.
        found: Option<Mac>,
    },
    /// The kernel asked for the neighbour that packets go to, and got no answer.
    NeighbourUnresolved {
        side: Side,
        device: DeviceName,
        address: IpAddr,
    },
}

/// Everything that is not as it should be, in the order in which it can be put right: devices first, then
/// settings, addresses, routes, neighbours.
pub fn differences(desired: &PodWiring, observed: &ObservedWiring) -> Vec<Difference> {
    let mut found = foreign_devices(desired, observed);
    if !found.is_empty() {
        return found;
    }
    for (side, end) in [(Side::Host, &observed.host), (Side::Pod, &observed.pod)] {
        if end.is_none() {
            found.push(Difference::Missing { side, device: desired.end(side).device.clone() });
        }
    }
    end_differences(Side::Host, &desired.host, observed.host.as_ref(), &mut found);
    end_differences(Side::Pod, &desired.pod, observed.pod.as_ref(), &mut found);
    found
}

/// A host end is ours if its alias says so; a pod end is ours if it is the other end of ours.
fn foreign_devices(desired: &PodWiring, observed: &ObservedWiring) -> Vec<Difference> {
    let mut found = Vec::new();
    let ours = desired.sandbox.alias();
    let host = observed.host.as_ref();
    if let Some(host) = host.filter(|host| host.alias.as_deref() != Some(&ours)) {
        let owner = host.alias.as_deref().and_then(Sandbox::from_alias);
        found.push(Difference::Foreign { side: Side::Host, device: desired.host.device.clone(), owner });
    }
    if let Some(pod) = &observed.pod {
        let is_peer =
            host.is_some_and(|host| host.peer_index == Some(pod.index) && pod.peer_index == Some(host.index));
        if !is_peer {
            let device = desired.pod.device.clone();
            found.push(Difference::Foreign { side: Side::Pod, device, owner: None });
        }
    }
    found
}

/// What is not as it should be at one end, whoever's it is. Without a device everything is missing.
pub fn end_differences(
    side: Side,
    desired: &End,
    observed: Option<&ObservedEnd>,
    found: &mut Vec<Difference>,
) {
    let device = &desired.device;
    if let Some(observed) = observed {
        link_differences(side, desired, observed, found);
    }
    for wanted in &desired.sysctls {
        let value = observed
            .and_then(|end| end.sysctls.iter().find(|sysctl| sysctl.path == wanted.path))
            .map(|sysctl| sysctl.value.clone());
        if value.as_ref() != Some(&wanted.value) {
            let (device, wanted) = (device.clone(), wanted.clone());
            found.push(Difference::Sysctl { side, device, wanted, found: value });
        }
    }
    match observed {
        Some(end) if end.up == Some(false) => found.push(Difference::Down { side, device: device.clone() }),
        Some(end) if end.running == Some(false) => {
            found.push(Difference::NotRunning { side, device: device.clone() });
        }
        Some(_) => {}
        None => found.push(Difference::Down { side, device: device.clone() }),
    }
    content_differences(side, desired, observed, found);
}

fn link_differences(side: Side, desired: &End, observed: &ObservedEnd, found: &mut Vec<Difference>) {
    let device = &desired.device;
    if let Some(mac) = observed.mac.filter(|mac| *mac != desired.mac) {
        let (device, wanted) = (device.clone(), desired.mac);
        found.push(Difference::Mac { side, device, wanted, found: mac });
    }
    if let Some(mtu) = observed.mtu.filter(|mtu| *mtu != desired.mtu) {
        let (device, wanted) = (device.clone(), desired.mtu);
        found.push(Difference::Mtu { side, device, wanted, found: mtu });
    }
}

fn content_differences(
    side: Side,
    desired: &End,
    observed: Option<&ObservedEnd>,
    found: &mut Vec<Difference>,
) {
    let device = &desired.device;
    let partial = observed.map(|end| end.partial).unwrap_or_default();
    let addresses = observed.map_or(&[][..], |end| &end.addresses);
    let is_missing = |address: &&IpNet| !partial.addresses && !addresses.contains(address);
    for &address in desired.addresses.iter().filter(is_missing) {
        found.push(Difference::AddressMissing { side, device: device.clone(), address });
    }
    let routes = observed.map_or(&[][..], |end| &end.routes);
    let is_stray =
        |route: &&Route| route.is_ours() && !desired.routes.iter().any(|wanted| route.serves(wanted));
    for route in routes.iter().filter(is_stray) {
        found.push(Difference::RouteStray { side, device: device.clone(), route: *route });
    }
    for route in &desired.routes {
        let is_served = routes.iter().any(|found| found.serves(route));
        let taken = observed.and_then(|end| taken_by(side, route, end, is_served));
        let (device, route) = (device.clone(), *route);
        match taken.map(|rival| (rival.protocol, rival.metric)) {
            Some((by, metric)) => found.push(Difference::RouteTaken { side, device, route, by, metric }),
            None if is_served || partial.routes => {}
            None => found.push(Difference::RouteMissing { side, device, route }),
        }
    }
    neighbour_differences(side, desired, observed, found);
}

fn neighbour_differences(
    side: Side,
    desired: &End,
    observed: Option<&ObservedEnd>,
    found: &mut Vec<Difference>,
) {
    let unresolved = observed.map_or(&[][..], |end| &end.unresolved);
    let leads_to = |address: &&IpAddr| {
        let next = |route: &Route| route.gateway.unwrap_or(route.destination.addr());
        desired.routes.iter().any(|route| next(route) == **address)
    };
    for &address in unresolved.iter().filter(leads_to) {
        let device = desired.device.clone();
        found.push(Difference::NeighbourUnresolved { side, device, address });
    }
    let neighbours = observed.map_or(&[][..], |end| &end.neighbours);
    for neighbour in desired.neighbours.iter().filter(|neighbour| !neighbours.contains(neighbour)) {
        let instead =
            neighbours.iter().find(|other| other.address == neighbour.address).map(|other| other.mac);
        let is_partial = instead.is_none() && observed.is_some_and(|end| end.partial.neighbours);
        if is_partial || unresolved.contains(&neighbour.address) {
            continue;
        }
        let (device, neighbour) = (desired.device.clone(), neighbour.clone());
        found.push(Difference::NeighbourMissing { side, device, neighbour, found: instead });
    }
}

/// The stranger's route that packets take instead. A pod may prefer another of its devices; only a route in the very
/// place of ours is then in the way.
fn taken_by<'a>(side: Side, wanted: &Route, end: &'a ObservedEnd, is_served: bool) -> Option<&'a Route> {
    let is_rival = |rival: &&Route| rival.destination == wanted.destination && !rival.is_ours();
    match side {
        Side::Host => {
            let mut preferred = end.preferred.iter().filter(is_rival);
            preferred.find(|rival| is_served || rival.metric <= wanted.metric)
        }
        Side::Pod if is_served => None,
        Side::Pod => end.rivals.iter().filter(is_rival).find(|rival| rival.metric == wanted.metric),
    }
}

impl Difference {
    /// Whether it can be put right without touching what is a stranger's. The others are for people.
    pub fn can_be_mended(&self) -> bool {
        match self {
            Difference::Foreign { .. } | Difference::RouteTaken { side: Side::Pod, .. } => false,
            Difference::RouteTaken { route, metric, .. } => route.ahead_of(*metric).is_some(),
            _ => true,
        }
    }

    pub fn side(&self) -> Side {
        match self {
            Difference::Missing { side, .. }
            | Difference::Foreign { side, .. }
            | Difference::Down { side, .. }
            | Difference::NotRunning { side, .. }
            | Difference::Mac { side, .. }
            | Difference::Mtu { side, .. }
            | Difference::Sysctl { side, .. }
            | Difference::AddressMissing { side, .. }
            | Difference::RouteMissing { side, .. }
            | Difference::RouteTaken { side, .. }
            | Difference::RouteStray { side, .. }
            | Difference::NeighbourMissing { side, .. }
            | Difference::NeighbourUnresolved { side, .. } => *side,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = self.side();
        match self {
            Difference::Missing { device, .. } => write!(f, "{side}: device {device} is missing"),
            Difference::Foreign { device, owner: Some(owner), .. } => {
                write!(f, "{side}: device {device} belongs to {owner}")
            }
            Difference::Foreign { device, owner: None, .. } => {
                write!(f, "{side}: device {device} is there already and is not this sandbox's")
            }
            Difference::Down { device, .. } => write!(f, "{side}: device {device} is down"),
            Difference::NotRunning { device, .. } => write!(f, "{side}: device {device} is not running"),
            Difference::Mac { device, wanted, found, .. } => {
                write!(f, "{side}: device {device} has hardware address {found} instead of {wanted}")
            }
            Difference::Mtu { device, wanted, found, .. } => {
                write!(f, "{side}: device {device} has MTU {found} instead of {wanted}")
            }
            Difference::Sysctl { wanted, found, .. } => {
                let found = found.as_deref().unwrap_or("unreadable");
                write!(f, "{side}: {} is {found} instead of {}", wanted.path, wanted.value)
            }
            Difference::AddressMissing { device, address, .. } => {
                write!(f, "{side}: address {address} is missing on {device}")
            }
            Difference::RouteMissing { device, route, .. } => {
                write!(f, "{side}: route {route} is missing on {device}")
            }
            Difference::RouteTaken { device, route, by, .. } => {
                write!(
                    f,
                    "{side}: a route to {} leads elsewhere than to {device} (protocol {by})",
                    route.destination
                )
            }
            Difference::RouteStray { device, route, .. } => {
                write!(f, "{side}: route {route} on {device} leads nowhere that was asked for")
            }
            Difference::NeighbourUnresolved { device, address, .. } => {
                write!(f, "{side}: {device} got no answer from {address}")
            }
            Difference::NeighbourMissing { device, neighbour, found: None, .. } => {
                write!(f, "{side}: permanent neighbour {neighbour} is missing on {device}")
            }
            Difference::NeighbourMissing { device, neighbour, found: Some(found), .. } => {
                write!(
                    f,
                    "{side}: {device} has permanent neighbour {} at {found} instead of {}",
                    neighbour.address, neighbour.mac
                )
            }
        }
    }
}
