//! Who holds an address: endpoints, pods and neighbours, each owner once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ::ipam::{NAMESPACE_ATTRIBUTE, POD_ATTRIBUTE};
use model::{HandleId, NodeName};

use crate::checks::words::counted;
use crate::{Allocation, Case};
use evidence::kernel::{Neighbour, NeighbourState};
use evidence::{Endpoint, NodeEvidence, Pod, Sighted, same_id};

/// Everyone who holds an address, each once.
pub(super) struct Owners<'e> {
    pub(super) endpoints: Vec<&'e Sighted<Endpoint>>,
    /// Pods that show it and have no endpoint with it.
    pub(super) pods: Vec<&'e Sighted<Pod>>,
    /// Devices where a neighbour has it, and neither of the above is known to be behind.
    pub(super) neighbours: Vec<&'e Sighted<Neighbour>>,
}

impl<'e> Owners<'e> {
    pub(super) fn of(case: &Case<'e>, address: IpAddr) -> Owners<'e> {
        let sandboxes: BTreeMap<Sandbox<'_>, &Sighted<Endpoint>> = case
            .endpoints_at(address)
            .iter()
            .rev()
            .map(|endpoint| (Sandbox::of(&endpoint.seen), *endpoint))
            .collect();
        let mut endpoints: Vec<_> = sandboxes.into_values().collect();
        endpoints.sort_by(|a, b| a.origin.cmp(&b.origin));
        let has_endpoint = |pod: &Pod| {
            endpoints
                .iter()
                .filter_map(|endpoint| endpoint.seen.pod_name())
                .any(|name| name.may_be(&pod.name))
        };
        let mut pods: Vec<_> = case.pods_at(address).to_vec();
        pods.retain(|pod| {
            let is_owner = !pod.seen.is_finished() && !case.is_in_flux(&pod.seen);
            is_owner && !case.is_on_host_network(&pod.seen) && !has_endpoint(&pod.seen)
        });
        pods.dedup_by(|a, b| a.seen.name == b.seen.name);
        let mut neighbours = Vec::new();
        if endpoints.is_empty() && pods.is_empty() {
            neighbours.extend(case.all_nodes().flat_map(|node| workload_neighbours(node, address)));
        }
        Owners { endpoints, pods, neighbours }
    }

    pub(super) fn count(&self) -> usize {
        self.endpoints.len() + self.pods.len() + self.neighbours.len()
    }

    pub(super) fn nodes(&self) -> BTreeSet<&'e NodeName> {
        let endpoints = self.endpoints.iter().filter_map(|endpoint| endpoint.seen.node.as_ref());
        endpoints.chain(self.pods.iter().filter_map(|pod| pod.seen.node.as_ref())).collect()
    }

    /// Nodes where they are, and what was seen on no node in particular; all nodes where nobody says.
    pub(super) fn seen_on(&self, case: &Case<'e>) -> Vec<&'e NodeEvidence> {
        let nodes = self.nodes();
        if nodes.is_empty() {
            return case.all_nodes().collect();
        }
        let here = nodes.into_iter().filter_map(|node| case.evidence.node(node));
        here.chain(&case.evidence.unplaced).collect()
    }

    /// Those whom an allocation means: by the sandbox in its handle, else by the pod's name.
    pub(super) fn entitled(&self, allocation: &Allocation<'_>) -> Vec<&'e Endpoint> {
        let (handle, secondary) = (allocation.attribute.handle(), &allocation.attribute.secondary);
        let id = handle.and_then(HandleId::container);
        let by_sandbox = |endpoint: &&Endpoint| {
            endpoint.container_id.as_deref().zip(id).is_some_and(|(container, id)| same_id(container, id))
        };
        let of = |name: &str| secondary.get(name).map(String::as_str);
        let by_pod = |endpoint: &&Endpoint| {
            of(POD_ATTRIBUTE).is_some()
                && of(POD_ATTRIBUTE) == endpoint.pod.as_deref()
                && of(NAMESPACE_ATTRIBUTE) == endpoint.namespace.as_deref()
        };
        let endpoints = || self.endpoints.iter().map(|endpoint| &endpoint.seen);
        match endpoints().find(by_sandbox) {
            Some(endpoint) => vec![endpoint],
            None => endpoints().filter(by_pod).collect(),
        }
    }

    pub(super) fn words(&self) -> String {
        let mut parts = Vec::new();
        for (count, word) in [
            (self.endpoints.len(), "endpoint"),
            (self.pods.len(), "pod"),
            (self.neighbours.len(), "neighbour"),
        ] {
            if count > 0 {
                parts.push(if count == self.count() {
                    format!("{count} {word}s")
                } else {
                    counted(count, word)
                });
            }
        }
        parts.join(" and ")
    }
}

/// Who an endpoint record speaks of: the sandbox and its interface, or, where an old record does not name the
/// sandbox, the record itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sandbox<'a> {
    Named { container: &'a str, interface: Option<&'a str> },
    Unnamed { node: Option<&'a NodeName>, namespace: Option<&'a str>, record: &'a str },
}

impl<'a> Sandbox<'a> {
    fn of(endpoint: &'a Endpoint) -> Sandbox<'a> {
        match &endpoint.container_id {
            Some(container) => Sandbox::Named { container, interface: endpoint.interface.as_deref() },
            None => Sandbox::Unnamed {
                node: endpoint.node.as_ref(),
                namespace: endpoint.namespace.as_deref(),
                record: &endpoint.name,
            },
        }
    }
}

pub(super) fn workload_neighbours(
    node: &NodeEvidence,
    address: IpAddr,
) -> impl Iterator<Item = &Sighted<Neighbour>> {
    let neighbours = node.kernel.neighbours.as_deref().unwrap_or_default().iter();
    neighbours.filter(move |neighbour| neighbour.seen.address == address && is_workload(&neighbour.seen))
}

fn is_workload(neighbour: &Neighbour) -> bool {
    neighbour.device.starts_with(model::DeviceName::CALICO_PREFIX)
        && neighbour.state != NeighbourState::Missing
        && !neighbour.is_proxy
}

/// Addresses that neighbours at more than one pod's device have.
pub(super) fn neighbours_at_several_devices(node: &NodeEvidence) -> Vec<IpAddr> {
    let mut devices: BTreeMap<IpAddr, BTreeSet<&str>> = BTreeMap::new();
    for neighbour in node.kernel.neighbours.iter().flatten().filter(|neighbour| is_workload(&neighbour.seen))
    {
        devices.entry(neighbour.seen.address).or_default().insert(&neighbour.seen.device);
    }
    devices.into_iter().filter(|(_, devices)| devices.len() > 1).map(|(address, _)| address).collect()
}
