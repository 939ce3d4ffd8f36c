//! Kernel agrees: the node knows a wrong hardware address for a pod.

use plan::DifferenceKind;

use super::{Fault, faults, neighbour_subject};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node has a wrong MAC address for a pod",
    explanation: "A node's neighbour entry for a pod has a different MAC address from the pod's endpoint \
                  record. Packets reach the pod's device but are dropped there, because they are addressed \
                  to another MAC address. Usually the entry is from an earlier sandbox.",
    remedy: "wait for the agent to fix the entry, run plumb repair finding neighbour-wrong --apply, or on \
             the node: ip neigh replace ADDRESS lladdr MAC dev DEVICE nud permanent",
    needs: &[&[Need::Endpoints, Need::Neighbours]],
    ..Check::error(FindingCode::NeighbourWrong, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for fault in faults(case) {
        let DifferenceKind::NeighbourMissing { neighbour, found: Some(known) } = &fault.difference.kind
        else {
            continue;
        };
        let Fault { host, endpoint, device, .. } = fault;
        let (place, address, mac) = (host.name(), neighbour.address, neighbour.mac);
        let summary = format!(
            "{place} has MAC address {known} for {address} of endpoint {}, expected {mac}",
            endpoint.seen
        );
        let finding = look.found(neighbour_subject(host, address, device), summary);
        finding
            .of_sandbox(endpoint.seen.container_id.as_deref())
            .remedy(format!("wait for the agent to fix it, or run on {place}"))
            .command(fault.command());
        if let Some(entry) = host.neighbour(address, device) {
            finding.seen(entry.exhibit(format!("{address} on {device} is {known}")));
        }
        finding.seen(endpoint_exhibit(endpoint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_another_address() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        kernel.neighbours.as_mut().unwrap()[0].seen.mac = Some("02:00:00:ff:ff:ff".parse().unwrap());
        assert!(only(&CHECK, &evidence).summary.ends_with("expected 02:00:00:00:00:00"));
    }
}
