//! Kernel agrees: the node does not know the pod's hardware address.

use plan::DifferenceKind;

use super::{Fault, faults, neighbour_subject};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need};
use evidence::Origin;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node cannot resolve a pod's MAC address",
    explanation: "A node sends packets to a pod's MAC address, which it keeps in a neighbour entry. Either \
                  the permanent entry is missing, or the node's ARP or NDP request went unanswered. In the \
                  second case the pod's end of the veth pair is gone, is down or lacks the address.",
    remedy: "wait for the agent to restore the entry, run plumb repair finding neighbour-missing --apply, or \
             on the node: ip neigh replace ADDRESS lladdr MAC dev DEVICE nud permanent. If the request went \
             unanswered, check the interface inside the pod",
    needs: &[&[Need::Endpoints, Need::Neighbours]],
    ..Check::error(FindingCode::NeighbourMissing, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for Fault { host, endpoint, device, difference } in faults(case) {
        let (address, state) = match &difference.kind {
            DifferenceKind::NeighbourUnresolved { address } => (*address, "got no answer"),
            DifferenceKind::NeighbourMissing { neighbour, found: None } => {
                (neighbour.address, "has no neighbour entry")
            }
            _ => continue,
        };
        let place = host.name();
        let exhibit = match host.neighbour(address, device) {
            Some(found) => found.exhibit(format!("{address} on {device} has no MAC address")),
            None => Origin::probe(place, "neighbours").exhibit(format!("none for {address} on {device}")),
        };
        let summary = format!("{place} {state} for {address} of endpoint {} on {device}", endpoint.seen);
        look.found(neighbour_subject(host, address, device), summary)
            .of_sandbox(endpoint.seen.container_id.as_deref())
            .seen(exhibit)
            .seen(endpoint_exhibit(endpoint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::kernel::NeighbourState;
    use evidence::sample::small;

    #[test]
    fn fires_for_an_entry_that_is_gone_or_failed() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        kernel.neighbours.as_mut().unwrap()[0].seen.state = NeighbourState::Missing;
        assert!(only(&CHECK, &evidence).summary.contains("got no answer for 10.0.0.0"));
        evidence.node_mut("worker-0000").kernel.neighbours.as_mut().unwrap().remove(0);
        assert!(only(&CHECK, &evidence).subject.to_string().starts_with("neighbour 10.0.0.0 at cali"));
    }

    #[test]
    fn is_silent_where_entries_come_with_traffic() {
        let mut evidence = small();
        evidence.node_mut("worker-0000").kernel.neighbours.as_mut().unwrap().remove(0);
        evidence.endpoints.as_mut().unwrap()[0].seen.mac = None;
        silent(&CHECK, &evidence);
    }
}
