//! Kernel agrees: a pod's device is down.

use super::{neighbour_subject, route_subject, settled};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "device-down",
    severity: Severity::Error,
    title: "A pod's device is down",
    explanation: "The node's end of a pod's veth is there and is not up, or the pod's end is not. No packet \
                  passes, and the kernel removes the routes that lead there.",
    remedy: "set it up again: ip link set DEVICE up; if the pod's end is down, do the same for eth0 inside \
             the pod",
    needs: &[&[Need::Endpoints, Need::Links]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts() {
        for (endpoint, device) in settled(case, host) {
            let Some(link) = host.link(device) else { continue };
            let state = match (link.seen.is_up, link.seen.is_running) {
                (Some(false), _) => "down",
                (_, Some(false)) => "up, but its other end is not",
                _ => continue,
            };
            let finding = look.found(
                Subject::device(host.name(), device),
                format!("{device} of endpoint {} on {} is {state}", endpoint.seen, host.name()),
            );
            finding.of_sandbox(endpoint.seen.container_id.as_deref());
            finding.seen(link.exhibit(format!("{device} is {state}"))).seen(endpoint_exhibit(endpoint));
            for address in &endpoint.seen.addresses {
                finding
                    .explains("route-missing", route_subject(host, *address))
                    .explains("neighbour-missing", neighbour_subject(host, *address, device));
            }
            // An interface that is down has no routes, and knows nobody.
            let is_pods_end = link.seen.is_up != Some(false);
            if let Some(pod) = endpoint.seen.pod_name().filter(|_| is_pods_end) {
                for code in ["pod-default-route-missing", "pod-gateway-unresolved"] {
                    finding.explains(code, Subject::Pod(pod.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_either_end() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let links = evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap();
        links[2].seen.is_running = Some(false);
        assert!(only(&CHECK, &evidence).summary.ends_with("is up, but its other end is not"));
        let links = evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap();
        links[2].seen.is_up = Some(false);
        assert!(only(&CHECK, &evidence).summary.ends_with("is down"));
        let links = evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap();
        (links[2].seen.is_up, links[2].seen.is_running) = (None, None);
        silent(&CHECK, &evidence);
    }
}
