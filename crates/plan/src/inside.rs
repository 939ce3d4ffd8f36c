//! What may be done about differences inside a pod.
//!
//! A pod with the right to do so may change its own network, and what it decided is not ours to undo. Only what is
//! missing, and has nothing else in its place, is put back; everything is reported.

use ipnet::IpNet;

use crate::difference::{Difference, DifferenceKind, ObservedEnd, ObservedWiring, differences};
use crate::wiring::{PodWiring, Side};

/// The differences inside one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InsidePod {
    /// Missing, with nothing in its place. Can be put right as it stands.
    pub restore: Vec<Difference>,
    /// The pod's own doing, as far as can be told.
    pub report: Vec<Difference>,
}

/// Looks at the pod's side only.
pub fn inside_pod(wiring: &PodWiring, observed: &ObservedWiring) -> InsidePod {
    let mut inside = InsidePod::default();
    for difference in differences(wiring, observed) {
        if difference.side != Side::Pod {
            continue;
        }
        let is_lost = observed.pod.as_ref().is_some_and(|pod| difference.is_lost(pod));
        if is_lost { inside.restore.push(difference) } else { inside.report.push(difference) }
    }
    inside
}

impl Difference {
    /// Whether a pod has something else in the place of what is missing. What was changed rather than lost (settings, hardware
    /// address, MTU, state; a device that was renamed or moved away) counts as replaced.
    pub fn has_replacement(&self, pod: &ObservedEnd) -> bool {
        match &self.kind {
            DifferenceKind::AddressMissing { address } => {
                pod.addresses.iter().any(|other| replaces(other, address))
            }
            DifferenceKind::RouteMissing { route } => {
                // Those of ours through another of the pod's interfaces stand behind this one, not in its place.
                let mut others = pod.routes.iter().chain(&pod.rivals).filter(|other| !other.is_ours());
                others.any(|other| other.destination == route.destination)
            }
            DifferenceKind::NeighbourMissing { neighbour, .. } => {
                pod.neighbours.iter().any(|other| other.address == neighbour.address)
            }
            _ => true,
        }
    }

    fn is_lost(&self, pod: &ObservedEnd) -> bool {
        // No route of the pod goes through a device that is down.
        let can_be_restored =
            pod.up != Some(false) || matches!(self.kind, DifferenceKind::AddressMissing { .. });
        can_be_restored && !self.has_replacement(pod)
    }
}

/// Another address of the same family that the kernel did not give by itself.
fn replaces(other: &IpNet, address: &IpNet) -> bool {
    let is_link_local = matches!(other, IpNet::V6(other) if other.addr().is_unicast_link_local());
    other.addr().is_ipv4() == address.addr().is_ipv4() && !is_link_local
}
