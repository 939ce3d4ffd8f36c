//! Endpoint records against pods, sandboxes and each other: who holds what, and whether both exist.

pub(super) mod address_shared;
pub(super) mod device_shared;
pub(super) mod endpoint_address_differs;
pub(super) mod endpoint_misplaced;
pub(super) mod endpoint_of_old_sandbox;
pub(super) mod endpoint_on_two_nodes;
pub(super) mod endpoint_without_container_id;
pub(super) mod endpoint_without_pod;
pub(super) mod endpoint_without_sandbox;
mod owners;
pub(super) mod pod_without_endpoint;

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::{Case, Finding, FindingCode, Subject};
use evidence::node::RuntimeSandbox;
use evidence::{Endpoint, NodeEvidence, Origin, PodName, Sighted, same_id};

/// A runtime's sandboxes, by the pod's bare name.
struct Sandboxes<'e>(BTreeMap<&'e str, Vec<&'e Sighted<RuntimeSandbox>>>);

impl<'e> Sandboxes<'e> {
    fn of(node: &'e NodeEvidence) -> Option<Sandboxes<'e>> {
        let mut by_name: BTreeMap<&str, Vec<&Sighted<RuntimeSandbox>>> = BTreeMap::new();
        for sandbox in node.sandboxes.as_ref()? {
            by_name.entry(&sandbox.seen.pod.name).or_default().push(sandbox);
        }
        Some(Sandboxes(by_name))
    }

    /// Those of a pod that the runtime calls ready.
    fn ready(&self, pod: &PodName) -> Vec<&'e Sighted<RuntimeSandbox>> {
        let named = self.0.get(pod.name.as_str()).into_iter().flatten().copied();
        named.filter(|sandbox| sandbox.seen.is_ready == Some(true) && sandbox.seen.pod.may_be(pod)).collect()
    }
}

/// Whether a list was asked from the thing itself. A text may be a part of it, so what it lacks is not gone.
fn is_asked(list: &[Sighted<RuntimeSandbox>]) -> bool {
    list.iter().all(|sandbox| !matches!(sandbox.origin, Origin::File { .. }))
}

/// Whether the runtime of its node lists an endpoint's own sandbox as ready.
fn is_running(case: &Case<'_>, endpoint: &Endpoint) -> bool {
    let node = endpoint.node.as_ref().and_then(|node| case.node(node));
    let sandboxes = node.and_then(|node| node.sandboxes.as_deref()).unwrap_or_default();
    let Some(id) = endpoint.container_id.as_deref() else { return false };
    sandboxes.iter().any(|sandbox| sandbox.seen.is_ready == Some(true) && same_id(&sandbox.seen.id, id))
}

/// Of these addresses those that a sandbox does not have, if it was observed from inside.
fn not_inside(case: &Case<'_>, addresses: &[IpAddr], container_id: &str) -> Vec<IpAddr> {
    let inside = case.view_of(container_id).and_then(|(_, view)| view.kernel.addresses.as_deref());
    let Some(inside) = inside else { return Vec::new() };
    let is_inside = |address: &IpAddr| inside.iter().any(|held| held.seen.net.addr() == *address);
    addresses.iter().copied().filter(|address| !is_inside(address)).collect()
}

/// What follows where a record has one of these addresses and its sandbox does not: nothing in the kernel leads to it. Gives those addresses.
fn explain_not_inside(
    case: &Case<'_>,
    finding: &mut Finding,
    endpoint: &Endpoint,
    addresses: &[IpAddr],
) -> Vec<IpAddr> {
    let (Some(id), Some(node)) = (&endpoint.container_id, &endpoint.node) else { return Vec::new() };
    let absent = not_inside(case, addresses, id);
    for address in &absent {
        finding.explains(FindingCode::RouteMissing, Subject::route(node, *address));
        if let Some(pod) = endpoint.pod_name() {
            finding.explains(FindingCode::PodAddressMissing, pod);
        }
        if let Some(device) = &endpoint.device {
            finding.explains(FindingCode::NeighbourMissing, Subject::neighbour(node, *address, device));
        }
    }
    absent
}

fn is_of_pod(endpoint: &Endpoint) -> bool {
    endpoint.pod.is_some() && matches!(endpoint.orchestrator.as_str(), "k8s" | "")
}
