//! What stands between the wiring a pod should have and the wiring it has.

use std::fmt;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedEnd {
    pub index: u32,
    /// The index of the device at the other end, in whatever namespace that is.
    pub peer_index: Option<u32>,
    pub alias: Option<String>,
    pub mac: Option<Mac>,
    pub mtu: u32,
    /// Set up by an administrator.
    pub up: bool,
    /// Up, and the other end too.
    pub running: bool,
    pub addresses: Vec<IpNet>,
    pub routes: Vec<Route>,
    /// Routes to destinations that this end wants, through other devices.
    pub rivals: Vec<Route>,
    /// Permanent entries only.
    pub neighbours: Vec<Neighbour>,
    pub sysctls: Vec<Sysctl>,
}

/// One thing that is not as it should be. All but `Foreign` and `RouteTaken` can be put right by doing what they name.
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
        found: Option<Mac>,
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
    /// A stranger's route to the same destination leads elsewhere. It must not be touched.
    RouteTaken {
        side: Side,
        device: DeviceName,
        route: Route,
        /// Who made it, as a route protocol.
        by: u8,
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

pub(crate) fn end_differences(
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
        Some(end) if !end.up => found.push(Difference::Down { side, device: device.clone() }),
        Some(end) if !end.running => found.push(Difference::NotRunning { side, device: device.clone() }),
        Some(_) => {}
        None => found.push(Difference::Down { side, device: device.clone() }),
    }
    content_differences(side, desired, observed, found);
}

fn link_differences(side: Side, desired: &End, observed: &ObservedEnd, found: &mut Vec<Difference>) {
    let device = &desired.device;
    if observed.mac != Some(desired.mac) {
        let (device, wanted) = (device.clone(), desired.mac);
        found.push(Difference::Mac { side, device, wanted, found: observed.mac });
    }
    if observed.mtu != desired.mtu {
        let (device, wanted) = (device.clone(), desired.mtu);
        found.push(Difference::Mtu { side, device, wanted, found: observed.mtu });
    }
}

fn content_differences(
    side: Side,
    desired: &End,
    observed: Option<&ObservedEnd>,
    found: &mut Vec<Difference>,
) {
    let device = &desired.device;
    let addresses = observed.map_or(&[][..], |end| &end.addresses);
    for &address in desired.addresses.iter().filter(|address| !addresses.contains(address)) {
        found.push(Difference::AddressMissing { side, device: device.clone(), address });
    }
    let routes = observed.map_or(&[][..], |end| &end.routes);
    let is_stray =
        |route: &&Route| route.is_ours() && !desired.routes.iter().any(|wanted| route.serves(wanted));
    for route in routes.iter().filter(is_stray) {
        found.push(Difference::RouteStray { side, device: device.clone(), route: route.clone() });
    }
    let rivals = observed.map_or(&[][..], |end| &end.rivals);
    for route in desired.routes.iter().filter(|wanted| !routes.iter().any(|route| route.serves(wanted))) {
        let (device, route) = (device.clone(), route.clone());
        let place = |route: &Route| (route.destination, route.metric);
        let taken = |rival: &&Route| place(rival) == place(&route) && !rival.is_ours();
        found.push(match rivals.iter().find(taken).map(|rival| rival.protocol) {
            Some(by) => Difference::RouteTaken { side, device, route, by },
            None => Difference::RouteMissing { side, device, route },
        });
    }
    let neighbours = observed.map_or(&[][..], |end| &end.neighbours);
    for neighbour in desired.neighbours.iter().filter(|neighbour| !neighbours.contains(neighbour)) {
        let (device, neighbour) = (device.clone(), neighbour.clone());
        found.push(Difference::NeighbourMissing { side, device, neighbour });
    }
}

impl Difference {
    /// Whether doing what it names puts it right. The others are for people.
    pub fn can_be_mended(&self) -> bool {
        !matches!(self, Difference::Foreign { .. } | Difference::RouteTaken { .. })
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
            | Difference::NeighbourMissing { side, .. } => *side,
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
                let found = found.map_or_else(|| "none".to_owned(), |mac| mac.to_string());
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
            Difference::NeighbourMissing { device, neighbour, .. } => {
                write!(f, "{side}: permanent neighbour {neighbour} is missing on {device}")
            }
        }
    }
}
