//! Kernel agrees: an endpoint whose device is not there.

use super::{neighbour_subject, route_subject, settled};
use crate::checks::words::{endpoint_exhibit, endpoint_subject};
use crate::{Case, Check, Look, Need, Origin, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "endpoint-without-device",
    severity: Severity::Error,
    title: "An endpoint whose device is not there",
    explanation: "An endpoint record names a network device that its node does not have. Either the pod is \
                  gone and the record is a leftover, or the device of a running pod was removed, and the \
                  pod is cut off.",
    remedy: "plumb repair endpoints makes the network of a pod that runs anew, and removes the record of one that \
             is gone; or recreate the pod",
    needs: &[&[Need::Endpoints, Need::Links]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts().iter().filter(|host| host.has_all_links()) {
        for (endpoint, device) in settled(case, host).filter(|(_, device)| host.link(device).is_none()) {
            let subject = endpoint_subject(&endpoint.seen);
            let finding = look.found(
                subject,
                format!("endpoint {} has no device: {} has no {device}", endpoint.seen, host.name()),
            );
            finding.of_sandbox(endpoint.seen.container_id.as_deref());
            finding
                .seen(endpoint_exhibit(endpoint))
                .seen(Origin::probe(host.name(), "links").exhibit(format!("no link {device}")));
            for address in &endpoint.seen.addresses {
                finding
                    .explains("route-missing", route_subject(host, *address))
                    .explains("neighbour-missing", neighbour_subject(host, *address, device));
            }
            if let Some(pod) = endpoint.seen.pod_name() {
                finding.explains("pod-interface-missing", Subject::Pod(pod));
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
    fn fires_where_all_links_are_known() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap().remove(2);
        assert!(only(&CHECK, &evidence).summary.contains("worker-0000 has no cali"));
        let mut going = evidence.clone();
        going.pods.as_mut().unwrap()[0].seen.deleted_at = going.taken_at;
        silent(&CHECK, &going);
        evidence.node_mut("worker-0000").kernel.partial.links = true;
        silent(&CHECK, &evidence);
    }
}
