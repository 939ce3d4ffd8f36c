//! Kernel agrees: an endpoint whose device is not there.

use super::{neighbour_subject, route_subject, settled};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::Origin;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Endpoint's device is missing",
    explanation: "An endpoint record names a network device that does not exist on its node. Either the pod \
                  is gone and the record is left over, or the device of a running pod was deleted and the \
                  pod is cut off.",
    remedy: "run plumb repair endpoints --apply, which rebuilds the network of a running pod and deletes the \
             record of a pod that is gone; or recreate the pod",
    needs: &[&[Need::Endpoints, Need::Links]],
    ..Check::error(FindingCode::EndpointWithoutDevice, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts().iter().filter(|host| host.has_all_links()) {
        for (endpoint, device) in settled(case, host).filter(|(_, device)| host.link(device).is_none()) {
            let subject = &endpoint.seen;
            let summary = format!(
                "endpoint {} has no device: {device} does not exist on {}",
                endpoint.seen,
                host.name()
            );
            let finding = look.found(subject, summary);
            finding.of_sandbox(endpoint.seen.container_id.as_deref());
            finding
                .seen(endpoint_exhibit(endpoint))
                .seen(Origin::probe(host.name(), "links").exhibit(format!("no link {device}")));
            for address in &endpoint.seen.addresses {
                finding
                    .explains(FindingCode::RouteMissing, route_subject(host, *address))
                    .explains(FindingCode::NeighbourMissing, neighbour_subject(host, *address, device));
            }
            if let Some(pod) = endpoint.seen.pod_name() {
                finding.explains(FindingCode::PodInterfaceMissing, Subject::Pod(pod));
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
    fn fires_where_all_links_are_known() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap().remove(2);
        assert!(only(&CHECK, &evidence).summary.ends_with("does not exist on worker-0000"));
        let mut going = evidence.clone();
        going.pods.as_mut().unwrap()[0].seen.deleted_at = going.taken_at;
        silent(&CHECK, &going);
        evidence.node_mut("worker-0000").kernel.partial.links = true;
        silent(&CHECK, &evidence);
    }
}
