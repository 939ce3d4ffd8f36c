//! All pods of a node at once: what the kernel must hold on the node's side, what it holds, and the difference.
//!
//! What is ours is recognised without memory: links by the sandbox in their alias, routes by their protocol,
//! addresses, neighbours and settings by the link they are on. Nothing else is ever in a difference, except to say
//! that it is in the way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ipnet::IpNet;
use model::{DeviceName, IpVersion, Sandbox};

use crate::difference::{Difference, DifferenceKind, ObservedEnd, PartialEnd, end_differences};
use crate::objects::{Link, Neighbour, Route, Sysctl};
use crate::setting::NODE_FORWARDING;
use crate::wiring::{PodWiring, Side};

/// The wiring of every pod that must have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDesired {
    wirings: BTreeMap<Sandbox, PodWiring>,
}

/// What the kernel holds on the node's side. A look at a part of it is one, too: what was not looked for is then
/// not there, so that it is not taken for superfluous.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeObserved {
    pub links: Vec<Link>,
    /// Of the main table: at least all of ours, all through links of ours, and all to single addresses.
    pub routes: Vec<Route>,
    /// At least those on links of ours.
    pub addresses: Vec<(u32, IpNet)>,
    /// Permanent entries, at least those on links of ours.
    pub neighbours: Vec<(u32, Neighbour)>,
    /// Settings of the node as a whole, at least those of [`NODE_FORWARDING`] that can be read.
    pub sysctls: Vec<Sysctl>,
}

/// A permanent neighbour on a pod's device that nothing asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StrayNeighbour {
    /// Whose device it is.
    pub sandbox: Sandbox,
    pub device: String,
    pub neighbour: Neighbour,
}

/// One thing on the node's side that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeDifference {
    /// A setting of the node as a whole. Putting it right may change the same setting of all devices.
    Setting { wanted: Sysctl, found: String },
    /// A sandbox's link has another name than it should.
    Renamed { sandbox: Sandbox, index: u32, found: String, wanted: DeviceName },
    /// A route of ours that nothing asks for, through a device that is not a pod's.
    RouteStray { route: Route },
    /// Something is wrong with the host end of a pod. `index` is that of its link, if there is one.
    OfPod { sandbox: Sandbox, index: Option<u32>, difference: Difference },
    /// A link of a sandbox that should have none, or a second one of a sandbox that should have one.
    Unexpected { index: u32, name: String, owner: Sandbox },
    /// A link that is out of service and waits for its removal.
    Detached { index: u32, name: String, owner: Sandbox },
}

impl NodeDesired {
    pub fn insert(&mut self, wiring: PodWiring) -> Option<PodWiring> {
        self.wirings.insert(wiring.sandbox.clone(), wiring)
    }

    pub fn remove(&mut self, sandbox: &Sandbox) -> Option<PodWiring> {
        self.wirings.remove(sandbox)
    }

    pub fn get(&self, sandbox: &Sandbox) -> Option<&PodWiring> {
        self.wirings.get(sandbox)
    }

    pub fn wirings(&self) -> impl Iterator<Item = &PodWiring> {
        self.wirings.values()
    }

    /// How the node as a whole must be set for the pods that it has: it forwards in each family in which one of
    /// them has an address. Without pods, nothing is asked of it.
    pub fn sysctls(&self) -> Vec<Sysctl> {
        let routes = self.wirings().flat_map(|wiring| &wiring.host.routes);
        let versions: BTreeSet<IpVersion> =
            routes.map(|route| IpVersion::of(route.destination.addr())).collect();
        let wanted = NODE_FORWARDING.into_iter().filter(|(version, _)| versions.contains(version));
        wanted.map(|(_, path)| Sysctl::new(path, 1)).collect()
    }

    pub fn len(&self) -> usize {
        self.wirings.len()
    }

    pub fn is_empty(&self) -> bool {
        self.wirings.is_empty()
    }
}

impl FromIterator<PodWiring> for NodeDesired {
    fn from_iter<T: IntoIterator<Item = PodWiring>>(wirings: T) -> NodeDesired {
        let wirings = wirings.into_iter().map(|wiring| (wiring.sandbox.clone(), wiring)).collect();
        NodeDesired { wirings }
    }
}

impl NodeObserved {
    /// Neighbours on pods' devices whose address the pod does not have and to which no route through the device leads, whoever
    /// made it. Nothing tells who made a neighbour, and the pod may have given itself the address: a look inside comes first.
    pub fn stray_neighbours(&self, desired: &NodeDesired) -> Vec<StrayNeighbour> {
        let view = View::new(self);
        let mut strays = Vec::new();
        for wiring in desired.wirings() {
            let Some(link) = view.link_of(wiring) else { continue };
            let is_routed = |neighbour: &Neighbour| {
                let mut routes = view.routes_on.get(&link.index).into_iter().flatten();
                routes.any(|route| route.destination.contains(&neighbour.address))
            };
            let is_wanted = |neighbour: &Neighbour| {
                wiring.host.neighbours.iter().any(|wanted| wanted.address == neighbour.address)
            };
            let there = view.neighbours_on.get(&link.index).into_iter().flatten().copied();
            strays.extend(there.filter(|found| !is_wanted(found) && !is_routed(found)).map(|found| {
                let (sandbox, device) = (wiring.sandbox.clone(), link.name.clone());
                StrayNeighbour { sandbox, device, neighbour: found.clone() }
            }));
        }
        strays
    }

    /// Strangers' routes to addresses of pods, through other devices than the pod's, whether packets take them or
    /// not. Somebody else believes that the address is theirs.
    pub fn rival_routes<'a>(&'a self, desired: &'a NodeDesired) -> Vec<(&'a Sandbox, &'a Route)> {
        let of_pods: BTreeMap<IpNet, &PodWiring> = desired
            .wirings()
            .flat_map(|wiring| wiring.host.routes.iter().map(move |route| (route.destination, wiring)))
            .collect();
        let to_pods = self.routes.iter().filter(|found| !found.is_ours());
        let to_pods = to_pods.filter_map(|found| Some((*of_pods.get(&found.destination)?, found)));
        let to_pods: Vec<(&PodWiring, &Route)> = to_pods.collect();
        if to_pods.is_empty() {
            return Vec::new();
        }
        let view = View::new(self);
        let is_elsewhere = |(wiring, found): &(&PodWiring, &Route)| {
            found.device != view.link_of(wiring).map(|link| link.index)
        };
        let rivals = to_pods.into_iter().filter(is_elsewhere);
        rivals.map(|(wiring, found)| (&wiring.sandbox, found)).collect()
    }
}

/// Everything that is not as it should be, in the order in which it can be put right: the node's own settings, names,
/// then superfluous routes (which may be in the way of others), then each pod, then superfluous links.
pub fn node_differences(desired: &NodeDesired, observed: &NodeObserved) -> Vec<NodeDifference> {
    let view = View::new(observed);
    let (mut renamed, mut of_pods) = (Vec::new(), Vec::new());
    let mut used = BTreeSet::new();
    for wiring in desired.wirings() {
        let link = view.link_of(wiring);
        used.extend(link.map(|link| link.index));
        view.pod_differences(wiring, link, &mut renamed, &mut of_pods);
    }
    let is_stray =
        |found: &&Route| found.is_ours() && found.device.is_none_or(|device| !used.contains(&device));
    let mut found = setting_differences(desired, observed);
    found.extend(renamed);
    found.extend(
        observed.routes.iter().filter(is_stray).map(|stray| NodeDifference::RouteStray { route: *stray }),
    );
    found.extend(of_pods);
    for link in observed.links.iter().filter(|link| !used.contains(&link.index)) {
        let (index, name) = (link.index, link.name.clone());
        if let Some(owner) = link.owner() {
            found.push(NodeDifference::Unexpected { index, name, owner });
        } else if let Some(owner) = link.former_owner() {
            found.push(NodeDifference::Detached { index, name, owner });
        }
    }
    found
}

/// What was not read is not known to be wrong.
fn setting_differences(desired: &NodeDesired, observed: &NodeObserved) -> Vec<NodeDifference> {
    let differs = |wanted: Sysctl| {
        let found = observed.sysctls.iter().find(|sysctl| sysctl.path == wanted.path)?.value.clone();
        (found != wanted.value).then_some(NodeDifference::Setting { wanted, found })
    };
    desired.sysctls().into_iter().filter_map(differs).collect()
}

/// Of all routes to destinations that an end wants, in the kernel's order: those through other devices than `index`
/// that the kernel prefers.
pub fn preferred_elsewhere<'a>(
    wanted: &[Route],
    found: impl Iterator<Item = &'a Route> + Clone,
    index: u32,
) -> Vec<Route> {
    let winner = |wanted: &Route| {
        let there = found.clone().filter(|found| found.destination == wanted.destination);
        // The first of those with the lowest metric.
        let winner = there.min_by_key(|found| found.metric)?;
        (winner.device != Some(index)).then_some(*winner)
    };
    wanted.iter().filter_map(winner).collect()
}

/// What was observed, by what it is looked up by.
struct View<'a> {
    by_name: BTreeMap<&'a str, &'a Link>,
    by_owner: BTreeMap<Sandbox, Vec<&'a Link>>,
    routes_on: BTreeMap<u32, Vec<&'a Route>>,
    routes_to: BTreeMap<IpNet, Vec<&'a Route>>,
    addresses_on: BTreeMap<u32, Vec<IpNet>>,
    neighbours_on: BTreeMap<u32, Vec<&'a Neighbour>>,
}

impl<'a> View<'a> {
    fn new(observed: &'a NodeObserved) -> View<'a> {
        let owned = observed.links.iter().filter_map(|link| Some((link.owner()?, link)));
        let on_device = observed.routes.iter().filter_map(|found| Some((found.device?, found)));
        View {
            by_name: observed.links.iter().map(|link| (link.name.as_str(), link)).collect(),
            by_owner: group(owned),
            routes_on: group(on_device),
            routes_to: group(observed.routes.iter().map(|found| (found.destination, found))),
            addresses_on: group(observed.addresses.iter().copied()),
            neighbours_on: group(observed.neighbours.iter().map(|(index, found)| (*index, found))),
        }
    }

    /// The link that has the right name if there are several: the others are left-overs.
    fn link_of(&self, wiring: &PodWiring) -> Option<&'a Link> {
        let links = self.by_owner.get(&wiring.sandbox)?;
        let named = links.iter().find(|link| link.name == wiring.host.device.as_str());
        named.or_else(|| links.first()).copied()
    }

    fn pod_differences(
        &self,
        wiring: &PodWiring,
        link: Option<&Link>,
        renamed: &mut Vec<NodeDifference>,
        of_pods: &mut Vec<NodeDifference>,
    ) {
        let (sandbox, device) = (&wiring.sandbox, &wiring.host.device);
        let side = Side::Host;
        let of_pod =
            |index, difference| NodeDifference::OfPod { sandbox: sandbox.clone(), index, difference };
        let index = link.map(|link| link.index);
        let holder = self.by_name.get(device.as_str());
        if let Some(holder) = holder.filter(|holder| Some(holder.index) != index) {
            // Settings are written by the device's name: they would hit the stranger.
            let foreign = DifferenceKind::Foreign { owner: holder.owner() };
            of_pods.push(of_pod(index, wiring.host.difference(side, foreign)));
            return;
        }
        let Some(link) = link else {
            of_pods.push(of_pod(None, wiring.host.difference(side, DifferenceKind::Missing)));
            return;
        };
        if link.name != device.as_str() {
            let (index, found) = (link.index, link.name.clone());
            let (sandbox, wanted) = (sandbox.clone(), device.clone());
            renamed.push(NodeDifference::Renamed { sandbox, index, found, wanted });
        }
        let mut found = Vec::new();
        end_differences(side, &wiring.host, Some(&self.end(wiring, link)), &mut found);
        of_pods.extend(found.into_iter().map(|difference| of_pod(index, difference)));
    }

    fn end(&self, wiring: &PodWiring, link: &Link) -> ObservedEnd {
        let index = link.index;
        let elsewhere = |found: &&Route| found.device != Some(index);
        let wanted = &wiring.host.routes;
        let to_pod = wanted.iter().filter_map(|wanted| self.routes_to.get(&wanted.destination));
        let to_pod = to_pod.flatten().copied();
        ObservedEnd {
            index,
            peer_index: link.peer_index,
            alias: link.alias.clone(),
            mac: link.mac,
            mtu: Some(link.mtu),
            up: Some(link.up),
            running: Some(link.running),
            addresses: self.addresses_on.get(&index).cloned().unwrap_or_default(),
            routes: self.routes_on.get(&index).into_iter().flatten().copied().copied().collect(),
            rivals: to_pod.clone().filter(elsewhere).copied().collect(),
            preferred: preferred_elsewhere(wanted, to_pod, index),
            neighbours: self.neighbours_on.get(&index).into_iter().flatten().copied().cloned().collect(),
            unresolved: Vec::new(),
            partial: PartialEnd::default(),
            // Under the paths that they have once it is called as it should be.
            sysctls: link.settings.all(wiring.host.device.as_str()),
        }
    }
}

fn group<K: Ord, V>(pairs: impl Iterator<Item = (K, V)>) -> BTreeMap<K, Vec<V>> {
    let mut groups: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for (key, value) in pairs {
        groups.entry(key).or_default().push(value);
    }
    groups
}

impl fmt::Display for NodeDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeDifference::Setting { wanted, found } => {
                write!(f, "node: {} is {found} instead of {}", wanted.path, wanted.value)
            }
            NodeDifference::Renamed { found, wanted, .. } => {
                write!(f, "node: device {wanted} is called {found}")
            }
            NodeDifference::RouteStray { route, .. } => {
                write!(f, "node: route {route} leads nowhere that was asked for")
            }
            NodeDifference::OfPod { difference, .. } => difference.fmt(f),
            NodeDifference::Unexpected { name, owner, .. } => {
                write!(f, "node: device {name} belongs to {owner}, which should have none of that name")
            }
            NodeDifference::Detached { name, owner, .. } => {
                write!(f, "node: device {name}, formerly of {owner}, waits for its removal")
            }
        }
    }
}
