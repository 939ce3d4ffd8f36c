//! What pods' wiring lacks: evidence as `plan`'s observed state, held against `plan`'s rules.
//!
//! Computed once for all checks; only ends with a difference are kept. What nobody observed makes no difference.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{DeviceName, Mac};
use plan::{
    Difference, DifferenceKind, End, Maker, Neighbour, NodeFacts, ObservedEnd, PartialEnd, Side, Sysctl,
    USUAL_INTERFACE, V4_GATEWAY, end_differences, needed_at,
};

use super::{Case, Host};
use evidence::kernel::{Kernel, Link, NeighbourState, PodView, Route};
use evidence::node::Attachment;
use evidence::{Endpoint, NodeEvidence, Sighted, same_id};

/// The node's end of an endpoint's veth, and what is wrong with it.
#[derive(Debug)]
pub struct NodeEnd<'e> {
    /// Its place among [`Case::hosts`].
    host: usize,
    pub endpoint: &'e Sighted<Endpoint>,
    pub device: &'e str,
    pub differences: Vec<Difference>,
}

/// The pod's end, as it was seen from inside, and what is wrong with it.
#[derive(Debug)]
pub struct PodEnd<'e> {
    pub node: &'e NodeEvidence,
    pub view: &'e PodView,
    pub differences: Vec<Difference>,
}

impl<'e> Case<'e> {
    /// Node ends with a difference, of all endpoints.
    pub fn node_ends(&self) -> impl Iterator<Item = (&Host<'e>, &NodeEnd<'e>)> {
        let ends = self.made.node_ends.get_or_init(|| {
            let hosts = self.hosts().iter().enumerate();
            hosts
                .flat_map(|(place, host)| {
                    host.endpoints.iter().filter_map(move |endpoint| self.node_end(place, host, endpoint))
                })
                .collect()
        });
        ends.iter().filter_map(|end| Some((self.hosts().get(end.host)?, end)))
    }

    fn node_end(
        &self,
        place: usize,
        host: &Host<'e>,
        endpoint: &'e Sighted<Endpoint>,
    ) -> Option<NodeEnd<'e>> {
        let name = endpoint.seen.device.as_deref()?;
        let link = host.link(name).map(|link| &link.seen);
        // The two ends must have the same; which one that is, the pod was told when it was created.
        let inner = self.interface_of(host, &endpoint.seen).and_then(|inner| inner.seen.mtu);
        let mtu = inner.or(link.and_then(|link| link.mtu)).unwrap_or_default();
        let mut desired = desired_on_node(host, &endpoint.seen, DeviceName::new(name).ok()?, mtu);
        let observed = observed_on_node(host, &desired, link);
        let is_seen = |wanted: &Sysctl| observed.sysctls.iter().any(|seen| seen.path == wanted.path);
        desired.sysctls.retain(is_seen);
        let mut differences = Vec::new();
        end_differences(Side::Host, &desired, Some(&observed), &mut differences);
        (!differences.is_empty()).then_some(NodeEnd { host: place, endpoint, device: name, differences })
    }

    /// The endpoint's interface, as it was seen from inside.
    pub fn interface_of(&self, host: &Host<'e>, endpoint: &Endpoint) -> Option<&'e Sighted<Link>> {
        let views = host.node.pod_views.as_deref().unwrap_or_default();
        if views.is_empty() {
            return None;
        }
        let by_id = endpoint.container_id.as_deref().and_then(|id| self.view_of(id)).map(|(_, view)| view);
        let by_name = || {
            let pod = endpoint.pod_name()?;
            let is_unnamed = |view: &&PodView| view.container_id.is_none() || endpoint.container_id.is_none();
            let is_its = |view: &&PodView| view.pod.as_ref().is_some_and(|name| name.may_be(&pod));
            views.iter().filter(is_unnamed).find(is_its)
        };
        let interface = endpoint.interface.as_deref().unwrap_or(USUAL_INTERFACE);
        by_id.or_else(by_name)?.kernel.link(interface)
    }

    /// Pod ends with a difference, of all pods that were looked into.
    pub fn pod_ends(&self) -> &[PodEnd<'e>] {
        self.made.pod_ends.get_or_init(|| {
            let views = self.all_nodes();
            let views = views.flat_map(|node| node.pod_views.iter().flatten().map(move |view| (node, view)));
            let ends = views.map(|(node, view)| {
                let differences = self.differences_inside(node, view);
                PodEnd { node, view, differences }
            });
            ends.filter(|end| !end.differences.is_empty()).collect()
        })
    }

    /// What is wrong inside a pod. A route or neighbour that the pod has put in the place of ours is its own business.
    pub fn differences_inside(&self, node: &NodeEvidence, view: &PodView) -> Vec<Difference> {
        let Some(mut desired) = self.desired_inside(node, view) else { return Vec::new() };
        let observed = observed_inside(&view.kernel, desired.device.as_str());
        drop_unlisted_version(&mut desired, &observed);
        let mut found = Vec::new();
        end_differences(Side::Pod, &desired, Some(&observed), &mut found);
        found.retain(|difference| match difference.kind {
            DifferenceKind::RouteMissing { .. } | DifferenceKind::NeighbourMissing { .. } => {
                !difference.has_replacement(&observed)
            }
            _ => true,
        });
        found
    }

    fn desired_inside(&self, node: &NodeEvidence, view: &PodView) -> Option<End> {
        let recorded: Vec<&Endpoint> =
            view.pod.iter().flat_map(|pod| self.endpoints_of(pod)).map(|endpoint| &endpoint.seen).collect();
        let is_its = |endpoint: &&&Endpoint| {
            let is_of_view = match (&endpoint.container_id, &view.container_id) {
                (Some(one), Some(other)) => same_id(one, other),
                _ => true,
            };
            let is_here = endpoint.node.as_ref().is_none_or(|name| *name == node.name);
            is_of_view && is_here
        };
        let interface = recorded.iter().find_map(|endpoint| endpoint.interface.as_deref());
        let device = DeviceName::new(interface.unwrap_or(USUAL_INTERFACE)).ok()?;
        let end = |addresses: &[IpAddr]| End::in_pod(device.clone(), Mac::HOST_END, 0, addresses, false);
        let mut addresses: Vec<IpAddr> =
            recorded.iter().flat_map(|endpoint| endpoint.addresses.clone()).collect();
        if addresses.is_empty() {
            // Nobody tells: every pod has IPv4 unless its record says otherwise.
            addresses.push(V4_GATEWAY.into());
        }
        let kept = attachment_of(node, view).map(|held| end(&held.addresses).neighbours);
        let own = recorded.iter().filter(is_its).flat_map(|endpoint| &endpoint.addresses);
        Some(End {
            addresses: own.copied().map(IpNet::from).collect(),
            neighbours: kept.unwrap_or_default(),
            sysctls: Vec::new(),
            ..end(&addresses)
        })
    }
}

/// The agent's own note of the sandbox that a view is of.
pub(crate) fn attachment_of<'e>(node: &'e NodeEvidence, view: &PodView) -> Option<&'e Attachment> {
    let mut held = node.attachments.iter().flatten().map(|held| &held.seen);
    held.find(|held| view.container_id.as_deref() == Some(&held.container_id))
}

fn desired_on_node(host: &Host<'_>, endpoint: &Endpoint, device: DeviceName, mtu: u32) -> End {
    let facts = NodeFacts { rp_filter: 0, has_ipv6: true };
    let mac = endpoint.mac.unwrap_or(Mac::HOST_END);
    let mut end = End::on_node(device, mac, mtu, &endpoint.addresses, &facts);
    let maker = if host.has_agent() { Maker::Ours } else { Maker::Calico };
    let is_kept =
        |wanted: &Neighbour| endpoint.mac.is_some() && maker.keeps_neighbour(Side::Host, wanted.address);
    end.neighbours.retain(is_kept);
    end.sysctls.retain(|wanted| needed_at(&wanted.path, &endpoint.addresses).is_some());
    end
}

fn observed_on_node(host: &Host<'_>, desired: &End, link: Option<&Link>) -> ObservedEnd {
    let device = desired.device.as_str();
    let (mut routes, mut rivals, mut preferred) = (Vec::new(), Vec::new(), Vec::new());
    let (mut neighbours, mut unresolved) = (Vec::new(), Vec::new());
    for wanted in &desired.routes {
        for (place, found) in host.routes_to(wanted.destination).into_iter().enumerate() {
            if found.seen.device.as_deref() == Some(device) {
                routes.push(observed_route(&found.seen));
                continue;
            }
            let rival = observed_route(&found.seen);
            preferred.extend((place == 0).then_some(rival));
            rivals.push(rival);
        }
        match host.neighbour(wanted.destination.addr(), device).map(|found| &found.seen) {
            Some(found) if found.state == NeighbourState::Missing => unresolved.push(found.address),
            Some(found) => neighbours.extend(neighbour(found)),
            None => {}
        }
    }
    let sysctl = |wanted: &Sysctl| {
        let found = host.node.kernel.sysctl(&wanted.path)?;
        Some(Sysctl { path: wanted.path.clone(), value: found.seen.trim().to_owned() })
    };
    ObservedEnd {
        mtu: link.and_then(|link| link.mtu),
        up: link.and_then(|link| link.is_up),
        running: link.and_then(|link| link.is_running),
        routes,
        rivals,
        preferred,
        neighbours,
        unresolved,
        sysctls: desired.sysctls.iter().filter_map(sysctl).collect(),
        partial: PartialEnd {
            // Calico leaves it to the kernel which link-local address the node's end has.
            addresses: true,
            routes: !host.has_all_routes(),
            neighbours: !host.has_all_neighbours(),
        },
        ..ObservedEnd::default()
    }
}

fn observed_inside(kernel: &Kernel, device: &str) -> ObservedEnd {
    let seen = kernel.routes.iter().flatten().map(|route| &route.seen);
    let (own, others): (Vec<&Route>, Vec<&Route>) = seen
        .filter(|route| route.is_in_main_table())
        .partition(|route| route.device.as_deref().is_none_or(|name| name == device));
    let (mut neighbours, mut unresolved) = (Vec::new(), Vec::new());
    for found in kernel.neighbours.iter().flatten().map(|found| &found.seen) {
        match found.state {
            NeighbourState::Missing => unresolved.push(found.address),
            _ => neighbours.extend(neighbour(found)),
        }
    }
    let partial = PartialEnd {
        addresses: kernel.partial.addresses || kernel.addresses.is_none(),
        routes: kernel.partial.routes || kernel.routes.is_none(),
        neighbours: kernel.partial.neighbours || kernel.neighbours.is_none(),
    };
    ObservedEnd {
        addresses: kernel.addresses.iter().flatten().map(|held| held.seen.net).collect(),
        routes: own.into_iter().map(observed_route).collect(),
        rivals: others.into_iter().map(observed_route).collect(),
        neighbours,
        unresolved,
        partial,
        ..ObservedEnd::default()
    }
}

/// `ip route` and `ifconfig` print one IP version: where nothing of IPv6 is listed, nobody asked for it.
fn drop_unlisted_version(desired: &mut End, observed: &ObservedEnd) {
    let is_v6 = |net: &IpNet| net.addr().is_ipv6();
    let has_addresses = observed.addresses.iter().any(is_v6);
    desired.addresses.retain(|net| has_addresses || !is_v6(net));
    let mut routes = observed.routes.iter().chain(&observed.rivals);
    let has_routes = routes.any(|route| is_v6(&route.destination));
    desired.routes.retain(|route| has_routes || !is_v6(&route.destination));
}

/// Whose a route is, nobody asks here: one of ours elsewhere is in the way like any other.
fn observed_route(route: &Route) -> plan::Route {
    plan::Route {
        gateway: route.via,
        protocol: 0,
        metric: route.metric.unwrap_or(0),
        ..plan::Route::to(route.destination)
    }
}

fn neighbour(found: &evidence::kernel::Neighbour) -> Option<Neighbour> {
    Some(Neighbour { address: found.address, mac: found.mac? })
}
