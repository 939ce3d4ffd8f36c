//! What the kernel holds of routes and tunnels between nodes, and what stands between that and what is wanted.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use model::{IpVersion, Mac};

use super::cluster::{Between, Changed};
use super::tunnel::BetweenDevices;
use super::way::{NodeRoute, Via, Way};
use crate::named::RouteKind;
use crate::objects::Route;

/// All of ours, recognised without memory: routes by their protocol, the rest by the device it is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BetweenObserved {
    /// What the devices are for that routes lead by.
    pub devices: BetweenDevices,
    pub routes: Vec<Route>,
    /// Permanent entries on the VXLAN devices.
    pub neighbours: Vec<(IpAddr, Mac)>,
    /// Permanent entries of the VXLAN devices: behind which node a hardware address is.
    pub forwards: Vec<(IpVersion, Mac, IpAddr)>,
}

/// One thing to do, in an order in which there is no gap: what is new comes before what goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    PutRoute {
        route: NodeRoute,
        /// What it takes the place of, with the same metric.
        instead_of: Option<Route>,
    },
    PutNeighbour {
        address: IpAddr,
        mac: Mac,
    },
    PutForward {
        version: IpVersion,
        mac: Mac,
        node: IpAddr,
    },
    DropRoute {
        route: Route,
    },
    DropNeighbour {
        address: IpAddr,
    },
    DropForward {
        version: IpVersion,
        mac: Mac,
        node: IpAddr,
    },
}

impl Step {
    /// It only takes something away.
    pub fn is_removal(&self) -> bool {
        matches!(self, Step::DropRoute { .. } | Step::DropNeighbour { .. } | Step::DropForward { .. })
    }
}

/// Why a route is not the one that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteFault {
    /// It is a black hole or of that sort and must lead somewhere, or the other way round.
    LeadsNowhere,
    /// It leads by another device: past the tunnel, or into one that is not wanted.
    Device,
    Gateway,
    /// The kernel looks for a way to the gateway instead of taking it to be on the device.
    NotOnlink,
}

/// What is wrong with where a route leads: the one rule for the agent's looks, for checks and for repairs. `via` is what its
/// device is for, if it is one of those that routes of ours lead by.
pub(super) fn route_fault(
    (kind, via, gateway): (RouteKind, Option<Via>, Option<IpAddr>),
    wanted: &NodeRoute,
) -> Option<RouteFault> {
    match (kind, wanted.way) {
        (RouteKind::Blackhole, Way::Blackhole) => None,
        (RouteKind::Unicast, Way::Via { via: wanted, .. }) if via != Some(wanted) => Some(RouteFault::Device),
        (RouteKind::Unicast, Way::Via { .. }) => (gateway != wanted.gateway()).then_some(RouteFault::Gateway),
        _ => Some(RouteFault::LeadsNowhere),
    }
}

/// Whether a route that was found is the one that is wanted.
fn is_as_wanted(found: &Route, wanted: &NodeRoute, devices: &BetweenDevices) -> bool {
    let is_in_place = (found.destination, found.metric) == (wanted.destination, wanted.metric());
    let via = found.device.and_then(|index| devices.via(wanted.version(), index));
    is_in_place && route_fault((found.kind, via, found.gateway), wanted).is_none()
}

/// What a look at everything shows.
pub fn differences(wanted: &Between, observed: &BetweenObserved) -> Vec<Step> {
    let (mut puts, mut drops) = (Vec::new(), Vec::new());
    route_differences(wanted, observed, &mut puts, &mut drops);
    let there: BTreeMap<IpAddr, Mac> = observed.neighbours.iter().copied().collect();
    for (address, mac) in wanted.neighbours().filter(|(address, mac)| there.get(address) != Some(mac)) {
        puts.push(Step::PutNeighbour { address, mac });
    }
    for address in there.keys().filter(|address| wanted.neighbour(address).is_none()) {
        drops.push(Step::DropNeighbour { address: *address });
    }
    let there: BTreeMap<(IpVersion, Mac), Vec<IpAddr>> =
        observed.forwards.iter().fold(BTreeMap::new(), |mut all, (version, mac, node)| {
            all.entry((*version, *mac)).or_insert_with(Vec::new).push(*node);
            all
        });
    for ((version, mac), node) in wanted.forwards() {
        if !there.get(&(version, mac)).is_some_and(|nodes| nodes.contains(&node)) {
            puts.push(Step::PutForward { version, mac, node });
        }
    }
    for ((version, mac), nodes) in there {
        let superfluous = nodes.into_iter().filter(|node| wanted.forward(version, mac) != Some(*node));
        drops.extend(superfluous.map(|node| Step::DropForward { version, mac, node }));
    }
    in_order(puts, drops)
}

fn route_differences(
    wanted: &Between,
    observed: &BetweenObserved,
    puts: &mut Vec<Step>,
    drops: &mut Vec<Step>,
) {
    let mut there: BTreeMap<IpNet, Vec<Route>> = BTreeMap::new();
    for found in &observed.routes {
        there.entry(found.destination).or_default().push(*found);
    }
    for route in wanted.routes() {
        let found = there.remove(&route.destination).unwrap_or_default();
        let right = found.iter().position(|found| is_as_wanted(found, &route, &observed.devices));
        let replaced = match right {
            Some(right) => right,
            None => {
                let replaced = found.iter().position(|found| found.metric == route.metric());
                puts.push(Step::PutRoute { route, instead_of: replaced.map(|place| found[place]) });
                replaced.unwrap_or(usize::MAX)
            }
        };
        let others = found.iter().enumerate().filter(|(place, _)| *place != replaced);
        drops.extend(others.map(|(_, route)| Step::DropRoute { route: *route }));
    }
    drops.extend(there.into_values().flatten().map(|route| Step::DropRoute { route }));
}

/// What a change of what is wanted asks for, if the kernel held what was wanted before.
pub fn changes_of(wanted: &Between, changed: &Changed, devices: &BetweenDevices) -> Vec<Step> {
    let (mut puts, mut drops) = (Vec::new(), Vec::new());
    for (destination, before) in &changed.routes {
        let before = before.and_then(|way| {
            let route = NodeRoute { destination: *destination, way };
            devices.kernel_route(&route)
        });
        let route = wanted.route_to(destination);
        // The kernel keeps one for each metric: only one with the same is in the place of the new one.
        let is_in_place = |before: &Route| route.is_some_and(|route| route.metric() == before.metric);
        let instead_of = before.filter(is_in_place);
        puts.extend(route.map(|route| Step::PutRoute { route, instead_of }));
        drops.extend(before.filter(|_| instead_of.is_none()).map(|route| Step::DropRoute { route }));
    }
    for (&address, before) in &changed.neighbours {
        match (wanted.neighbour(&address), before) {
            (Some(mac), _) => puts.push(Step::PutNeighbour { address, mac }),
            (None, Some(_)) => drops.push(Step::DropNeighbour { address }),
            (None, None) => {}
        }
    }
    for (&(version, mac), before) in &changed.forwards {
        if let Some(node) = wanted.forward(version, mac) {
            puts.push(Step::PutForward { version, mac, node });
        }
        if let Some(node) = *before {
            drops.push(Step::DropForward { version, mac, node });
        }
    }
    in_order(puts, drops)
}

/// Tunnels' ends before the routes that lead there, routes to gateways before those that name them, and everything new before
/// anything goes.
fn in_order(mut puts: Vec<Step>, mut drops: Vec<Step>) -> Vec<Step> {
    let is_route = |step: &Step| matches!(step, Step::PutRoute { .. } | Step::DropRoute { .. });
    let names_gateway =
        |step: &Step| matches!(step, Step::PutRoute { route, .. } if route.gateway().is_some());
    puts.sort_by_key(|step| (is_route(step), names_gateway(step)));
    drops.sort_by_key(|step| !is_route(step));
    puts.append(&mut drops);
    puts
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::PutRoute { route, instead_of: None } => write!(f, "route {route} is missing"),
            Step::PutRoute { route, .. } => write!(f, "route {route} leads elsewhere"),
            Step::PutNeighbour { address, mac } => write!(f, "tunnel end {address} is not known to be {mac}"),
            Step::PutForward { mac, node, .. } => write!(f, "tunnel end {mac} is not known to be at {node}"),
            Step::DropRoute { route } => write!(f, "route to {} is superfluous", route.destination),
            Step::DropNeighbour { address } => write!(f, "tunnel end {address} is superfluous"),
            Step::DropForward { mac, node, .. } => write!(f, "tunnel end {mac} at {node} is superfluous"),
        }
    }
}
