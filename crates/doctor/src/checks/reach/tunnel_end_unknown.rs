//! Reachable: a node does not know where the other end of a tunnel is.

use model::NodeName;

use super::packets_lost::way;
use crate::case::{EndKind, LostEnd};
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::Origin;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Tunnel entry (FDB or neighbour) for another node is missing or wrong",
    explanation: "To send through VXLAN, a node needs two permanent entries for every other node: the MAC \
                  address of the other node's tunnel address (ip neigh), and the node behind that MAC \
                  address (bridge fdb). One of them is missing or wrong. These entries are not learned from \
                  traffic, so packets to that node's pods are lost although the routes look correct.",
    remedy: "run plumb repair finding tunnel-end-unknown --apply to write the entry that the records \
             require; an agent that is not in observe mode does so automatically",
    needs: &[&[Need::Ipam, Need::Routes, Need::Neighbours]],
    ..Check::error(FindingCode::TunnelEndUnknown, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for crossings in case.crossings() {
        let place = &crossings.node;
        for end in &crossings.ends {
            let (device, address, mac, owner) = (end.device, end.address, end.mac, &end.owner);
            let (words, origin, found) = match end.kind {
                EndKind::Neighbour { found } => (
                    format!("neighbour entry for node {owner}: expected {address} lladdr {mac}"),
                    "neighbours",
                    found.map(|found| found.to_string()),
                ),
                EndKind::Forward { found } => (
                    format!("FDB entry for node {owner}: expected {mac} dst {address}"),
                    "ends of tunnels",
                    found.map(|found| found.to_string()),
                ),
            };
            let seen = found.map_or_else(
                || format!("no permanent entry for it on {device}"),
                |found| format!("found {found} on {device}, which is wrong or not permanent"),
            );
            let finding =
                look.found(subject(place, end), format!("{device} on {place} has no correct {words}"));
            finding
                .seen(Origin::probe(place, origin).exhibit(seen))
                .explains(super::packets_lost::CHECK.code, way(place, owner));
            // Both entries of one node were made and lost together.
            let others = crossings.ends.iter().filter(|other| other.owner == *owner);
            for other in others.filter(|other| (other.address, other.device) != (address, device)) {
                finding.explains(FindingCode::TunnelEndUnknown, subject(place, other));
            }
        }
    }
}

pub(super) fn subject(node: &NodeName, end: &LostEnd) -> Subject {
    Subject::neighbour(node, end.address, end.device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent, subjects};
    use evidence::kernel::NeighbourState;
    use evidence::sample::tunnelled;

    #[test]
    fn fires_for_either_entry_missing_or_wrong() {
        let healthy = tunnelled("vxlanMode", "Always");
        silent(&CHECK, &healthy);
        let mut evidence = healthy.clone();
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        kernel.neighbours.as_mut().unwrap().retain(|known| known.seen.address.to_string() != "10.0.0.127");
        kernel.forwards.as_mut().unwrap()[1].seen.node = "172.16.0.9".parse().unwrap();
        assert_eq!(
            subjects(&CHECK, &evidence),
            [
                "neighbour 10.0.0.127 at vxlan.calico on worker-0000",
                "neighbour 172.16.0.3 at vxlan.calico on worker-0000"
            ]
        );
        let mut evidence = healthy.clone();
        let known = evidence.node_mut("worker-0000").kernel.neighbours.as_mut().unwrap();
        let end = known.iter_mut().find(|known| known.seen.address.to_string() == "10.0.0.127").unwrap();
        end.seen.state = NeighbourState::Stale;
        assert!(
            only(&CHECK, &evidence).summary.contains("for node worker-0001: expected 10.0.0.127 lladdr 66:")
        );
        evidence.node_mut("worker-0000").kernel.partial.neighbours = true;
        silent(&CHECK, &evidence);
    }
}
