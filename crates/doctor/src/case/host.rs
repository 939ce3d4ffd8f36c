//! The kernel of one node beside the endpoints that are recorded for it, with indexes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use model::NodeName;

use evidence::kernel::{Link, Neighbour, Route};
use evidence::node::Attachment;
use evidence::{Endpoint, NodeEvidence, Sighted};

/// One node that was looked at.
#[derive(Debug)]
pub struct Host<'e> {
    pub node: &'e NodeEvidence,
    pub endpoints: Vec<&'e Sighted<Endpoint>>,
    links: BTreeMap<&'e str, &'e Sighted<Link>>,
    routes: BTreeMap<IpNet, Vec<&'e Sighted<Route>>>,
    neighbours: BTreeMap<(IpAddr, &'e str), &'e Sighted<Neighbour>>,
    endpoints_by_device: BTreeMap<&'e str, Vec<&'e Sighted<Endpoint>>>,
    attachments: BTreeMap<&'e str, &'e Attachment>,
}

impl<'e> Host<'e> {
    pub(super) fn new(node: &'e NodeEvidence, endpoints: Vec<&'e Sighted<Endpoint>>) -> Host<'e> {
        let kernel = &node.kernel;
        let links = kernel.links.iter().flatten().map(|link| (link.seen.name.as_str(), link)).collect();
        let mut routes: BTreeMap<IpNet, Vec<&Sighted<Route>>> = BTreeMap::new();
        for route in kernel.routes.iter().flatten().filter(|route| route.seen.is_in_main_table()) {
            routes.entry(route.seen.destination).or_default().push(route);
        }
        let neighbours = kernel.neighbours.iter().flatten().filter(|neighbour| !neighbour.seen.is_proxy);
        let neighbours = neighbours
            .map(|neighbour| ((neighbour.seen.address, neighbour.seen.device.as_str()), neighbour))
            .collect();
        let mut endpoints_by_device: BTreeMap<&str, Vec<&Sighted<Endpoint>>> = BTreeMap::new();
        for endpoint in &endpoints {
            if let Some(device) = &endpoint.seen.device {
                endpoints_by_device.entry(device).or_default().push(endpoint);
            }
        }
        let attachments = node.attachments.iter().flatten();
        Host {
            node,
            endpoints,
            links,
            routes,
            neighbours,
            endpoints_by_device,
            attachments: attachments.map(|held| (held.seen.device.as_str(), &held.seen)).collect(),
        }
    }

    pub fn name(&self) -> &'e NodeName {
        &self.node.name
    }

    /// Its links are known, all of them.
    pub fn has_all_links(&self) -> bool {
        self.node.kernel.links.is_some() && !self.node.kernel.partial.links
    }

    pub fn has_all_routes(&self) -> bool {
        self.node.kernel.routes.is_some() && !self.node.kernel.partial.routes
    }

    pub fn has_all_neighbours(&self) -> bool {
        self.node.kernel.neighbours.is_some() && !self.node.kernel.partial.neighbours
    }

    pub fn link(&self, name: &str) -> Option<&'e Sighted<Link>> {
        self.links.get(name).copied()
    }

    pub fn links(&self) -> impl Iterator<Item = &'e Sighted<Link>> {
        self.links.values().copied()
    }

    /// Routes of the main table to exactly this destination, the one that is taken first.
    pub fn routes_to(&self, destination: IpNet) -> Vec<&'e Sighted<Route>> {
        let mut routes = self.routes.get(&destination).cloned().unwrap_or_default();
        routes.sort_by_key(|route| route.seen.metric.unwrap_or(0));
        routes
    }

    pub fn routes(&self) -> impl Iterator<Item = &'e Sighted<Route>> {
        self.routes.values().flatten().copied()
    }

    pub fn neighbour(&self, address: IpAddr, device: &str) -> Option<&'e Sighted<Neighbour>> {
        self.neighbours.get(&(address, device)).copied()
    }

    pub fn neighbours(&self) -> impl Iterator<Item = &'e Sighted<Neighbour>> {
        self.neighbours.values().copied()
    }

    pub fn endpoints_at_device(&self, device: &str) -> &[&'e Sighted<Endpoint>] {
        self.endpoints_by_device.get(device).map(Vec::as_slice).unwrap_or_default()
    }

    /// The agent's own note of what a device is for.
    pub fn attachment(&self, device: &str) -> Option<&'e Attachment> {
        self.attachments.get(device).copied()
    }

    /// Whether our agent runs here: it keeps more in the kernel than Calico's does.
    pub fn has_agent(&self) -> bool {
        self.node.attachments.is_some()
    }

    /// The route a packet to `address` takes: the longest prefix first, each length one look.
    pub fn route_for(&self, address: IpAddr) -> Option<&'e Sighted<Route>> {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (0..=longest).rev().find_map(|len| {
            let net = IpNet::new(address, len).ok()?.trunc();
            self.routes_to(net).first().copied()
        })
    }
}
