//! Kernel agrees: a pod's device is down.

use plan::DifferenceKind;

use super::{Fault, faults, neighbour_subject, route_subject};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod's device is down",
    explanation: "One end of a pod's veth pair exists but is down, on the node or in the pod. No packet \
                  passes, and the kernel removes the routes through that end.",
    remedy: "run plumb repair finding device-down --apply, or on the node: ip link set DEVICE up. If the \
             pod's end is down, run the same command for eth0 inside the pod",
    needs: &[&[Need::Endpoints, Need::Links]],
    ..Check::error(FindingCode::DeviceDown, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for Fault { host, endpoint, device, difference } in faults(case) {
        let state = match &difference.kind {
            DifferenceKind::Down => "down",
            DifferenceKind::NotRunning => "up, but its other end is down",
            _ => continue,
        };
        let summary = format!("{device} of endpoint {} on {} is {state}", endpoint.seen, host.name());
        let finding = look.found(Subject::device(host.name(), device), summary);
        finding.of_sandbox(endpoint.seen.container_id.as_deref());
        if let Some(link) = host.link(device) {
            finding.seen(link.exhibit(format!("{device} is {state}")));
        }
        finding.seen(endpoint_exhibit(endpoint));
        for address in &endpoint.seen.addresses {
            finding
                .explains(FindingCode::RouteMissing, route_subject(host, *address))
                .explains(FindingCode::NeighbourMissing, neighbour_subject(host, *address, device));
        }
        // An interface that is down has no routes, and knows nobody.
        let is_pods_end = difference.kind == DifferenceKind::NotRunning;
        if let Some(pod) = endpoint.seen.pod_name().filter(|_| is_pods_end) {
            for code in [FindingCode::PodDefaultRouteMissing, FindingCode::PodGatewayUnresolved] {
                finding.explains(code, Subject::Pod(pod.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_either_end() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let links = evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap();
        links[2].seen.is_running = Some(false);
        assert!(only(&CHECK, &evidence).summary.ends_with("is up, but its other end is down"));
        let links = evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap();
        links[2].seen.is_up = Some(false);
        assert!(only(&CHECK, &evidence).summary.ends_with("is down"));
        let links = evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap();
        (links[2].seen.is_up, links[2].seen.is_running) = (None, None);
        silent(&CHECK, &evidence);
    }
}
