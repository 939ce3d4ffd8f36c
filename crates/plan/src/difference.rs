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

/// One thing that is not as it should be at one end of a pod's veth. Whether it can be put right, [`Difference::can_be_mended`]
/// says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub side: Side,
    pub device: DeviceName,
    pub kind: DifferenceKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// There is no device of that name.
    Missing,
    /// There is a device of that name, and it is not this sandbox's. It must not be touched.
    Foreign {
        owner: Option<Sandbox>,
    },
    Down,
    /// Up, but no packet can pass (yet): the kernel is still starting the device, or its peer is down.
    NotRunning,
    Mac {
        wanted: Mac,
        found: Mac,
    },
    Mtu {
        wanted: u32,
        found: u32,
    },
    Sysctl {
        wanted: Sysctl,
        found: Option<String>,
    },
    AddressMissing {
        address: IpNet,
    },
    RouteMissing {
        route: Route,
    },
    /// A stranger's route to the same destination leads elsewhere, and packets take it. It must not be touched: on
    /// the node ours is put in front of it, inside a pod it is the pod's own doing. `by` is who made it, as a route
    /// protocol, and `metric` is the stranger's.
    RouteTaken {
        route: Route,
        by: u8,
        metric: u32,
    },
    /// A route of ours that nothing asks for.
    RouteStray {
        route: Route,
    },
    /// `found` is what a permanent entry says of the address instead.
    NeighbourMissing {
        neighbour: Neighbour,
        found: Option<Mac>,
    },
    /// The kernel asked for the neighbour that packets go to, and got no answer.
    NeighbourUnresolved {
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
            found.push(desired.end(side).difference(side, DifferenceKind::Missing));
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
        found.push(desired.host.difference(Side::Host, DifferenceKind::Foreign { owner }));
    }
    if let Some(pod) = &observed.pod {
        let is_peer =
            host.is_some_and(|host| host.peer_index == Some(pod.index) && pod.peer_index == Some(host.index));
        if !is_peer {
            found.push(desired.pod.difference(Side::Pod, DifferenceKind::Foreign { owner: None }));
        }
    }
    found
}

impl End {
    pub(crate) fn difference(&self, side: Side, kind: DifferenceKind) -> Difference {
        Difference { side, device: self.device.clone(), kind }
    }
}

/// What is not as it should be at one end, whoever's it is. Without a device everything is missing.
pub fn end_differences(
    side: Side,
    desired: &End,
    observed: Option<&ObservedEnd>,
    found: &mut Vec<Difference>,
) {
    let mut kinds = Vec::new();
    if let Some(observed) = observed {
        link_differences(desired, observed, &mut kinds);
    }
    for wanted in &desired.sysctls {
        let value = observed
            .and_then(|end| end.sysctls.iter().find(|sysctl| sysctl.path == wanted.path))
            .map(|sysctl| sysctl.value.clone());
        if value.as_ref() != Some(&wanted.value) {
            kinds.push(DifferenceKind::Sysctl { wanted: wanted.clone(), found: value });
        }
    }
    match observed {
        Some(end) if end.up == Some(false) => kinds.push(DifferenceKind::Down),
        Some(end) if end.running == Some(false) => kinds.push(DifferenceKind::NotRunning),
        Some(_) => {}
        None => kinds.push(DifferenceKind::Down),
    }
    content_differences(side, desired, observed, &mut kinds);
    found.extend(kinds.into_iter().map(|kind| desired.difference(side, kind)));
}

fn link_differences(desired: &End, observed: &ObservedEnd, found: &mut Vec<DifferenceKind>) {
    if let Some(mac) = observed.mac.filter(|mac| *mac != desired.mac) {
        found.push(DifferenceKind::Mac { wanted: desired.mac, found: mac });
    }
    if let Some(mtu) = observed.mtu.filter(|mtu| *mtu != desired.mtu) {
        found.push(DifferenceKind::Mtu { wanted: desired.mtu, found: mtu });
    }
}

fn content_differences(
    side: Side,
    desired: &End,
    observed: Option<&ObservedEnd>,
    found: &mut Vec<DifferenceKind>,
) {
    let partial = observed.map(|end| end.partial).unwrap_or_default();
    let addresses = observed.map_or(&[][..], |end| &end.addresses);
    let is_missing = |address: &&IpNet| !partial.addresses && !addresses.contains(address);
    let missing = desired.addresses.iter().filter(is_missing);
    found.extend(missing.map(|address| DifferenceKind::AddressMissing { address: *address }));
    let routes = observed.map_or(&[][..], |end| &end.routes);
    let is_stray =
        |route: &&Route| route.is_ours() && !desired.routes.iter().any(|wanted| route.serves(wanted));
    let strays = routes.iter().filter(is_stray);
    found.extend(strays.map(|route| DifferenceKind::RouteStray { route: *route }));
    for &route in &desired.routes {
        let is_served = routes.iter().any(|found| found.serves(&route));
        let taken = observed.and_then(|end| taken_by(side, &route, end, is_served));
        match taken.map(|rival| (rival.protocol, rival.metric)) {
            Some((by, metric)) => found.push(DifferenceKind::RouteTaken { route, by, metric }),
            None if is_served || partial.routes => {}
            None => found.push(DifferenceKind::RouteMissing { route }),
        }
    }
    neighbour_differences(desired, observed, found);
}

fn neighbour_differences(desired: &End, observed: Option<&ObservedEnd>, found: &mut Vec<DifferenceKind>) {
    let unresolved = observed.map_or(&[][..], |end| &end.unresolved);
    let leads_to = |address: &&IpAddr| {
        let next = |route: &Route| route.gateway.unwrap_or(route.destination.addr());
        desired.routes.iter().any(|route| next(route) == **address)
    };
    let asked_for = unresolved.iter().filter(leads_to);
    found.extend(asked_for.map(|address| DifferenceKind::NeighbourUnresolved { address: *address }));
    let neighbours = observed.map_or(&[][..], |end| &end.neighbours);
    for neighbour in desired.neighbours.iter().filter(|neighbour| !neighbours.contains(neighbour)) {
        let instead =
            neighbours.iter().find(|other| other.address == neighbour.address).map(|other| other.mac);
        let is_partial = instead.is_none() && observed.is_some_and(|end| end.partial.neighbours);
        if is_partial || unresolved.contains(&neighbour.address) {
            continue;
        }
        found.push(DifferenceKind::NeighbourMissing { neighbour: neighbour.clone(), found: instead });
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
        match &self.kind {
            DifferenceKind::Foreign { .. } => false,
            DifferenceKind::RouteTaken { .. } if self.side == Side::Pod => false,
            DifferenceKind::RouteTaken { route, metric, .. } => route.ahead_of(*metric).is_some(),
            _ => true,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { side, device, kind } = self;
        match kind {
            DifferenceKind::Missing => write!(f, "{side}: device {device} is missing"),
            DifferenceKind::Foreign { owner: Some(owner) } => {
                write!(f, "{side}: device {device} belongs to {owner}")
            }
            DifferenceKind::Foreign { owner: None } => {
                write!(f, "{side}: device {device} is there already and is not this sandbox's")
            }
            DifferenceKind::Down => write!(f, "{side}: device {device} is down"),
            DifferenceKind::NotRunning => write!(f, "{side}: device {device} is not running"),
            DifferenceKind::Mac { wanted, found } => {
                write!(f, "{side}: device {device} has hardware address {found} instead of {wanted}")
            }
            DifferenceKind::Mtu { wanted, found } => {
                write!(f, "{side}: device {device} has MTU {found} instead of {wanted}")
            }
            DifferenceKind::Sysctl { wanted, found } => {
                let found = found.as_deref().unwrap_or("unreadable");
                write!(f, "{side}: {} is {found} instead of {}", wanted.path, wanted.value)
            }
            DifferenceKind::AddressMissing { address } => {
                write!(f, "{side}: address {address} is missing on {device}")
            }
            DifferenceKind::RouteMissing { route } => {
                write!(f, "{side}: route {route} is missing on {device}")
            }
            DifferenceKind::RouteTaken { route, by, .. } => {
                write!(
                    f,
                    "{side}: a route to {} leads elsewhere than to {device} (protocol {by})",
                    route.destination
                )
            }
            DifferenceKind::RouteStray { route } => {
                write!(f, "{side}: route {route} on {device} leads nowhere that was asked for")
            }
            DifferenceKind::NeighbourUnresolved { address } => {
                write!(f, "{side}: {device} got no answer from {address}")
            }
            DifferenceKind::NeighbourMissing { neighbour, found: None } => {
                write!(f, "{side}: permanent neighbour {neighbour} is missing on {device}")
            }
            DifferenceKind::NeighbourMissing { neighbour, found: Some(found) } => {
                write!(
                    f,
                    "{side}: {device} has permanent neighbour {} at {found} instead of {}",
                    neighbour.address, neighbour.mac
                )
            }
        }
    }
}
