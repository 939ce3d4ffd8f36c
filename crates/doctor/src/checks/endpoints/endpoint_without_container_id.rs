//! Identity is the sandbox: an endpoint that does not say whose it is.

use super::{Sandboxes, is_of_pod};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need};
use evidence::endpoint::EndpointApi;
use evidence::{Endpoint, Origin, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Endpoint does not name its sandbox",
    explanation: "An endpoint record has no containerID. Calico's plugin uses it to check which sandbox a \
                  DEL is for. Without it there is no check, so a late DEL of an earlier sandbox deletes the \
                  record of the running pod. Records of old releases and records written by hand often lack \
                  it.",
    remedy: "run plumb repair endpoints --apply to write the running sandbox into the record, or recreate \
             the pod",
    needs: &[&[Need::Endpoints]],
    ..Check::warning(FindingCode::EndpointWithoutContainerId, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for endpoint in case.all_endpoints().iter().filter(|endpoint| lacks_id(endpoint)) {
        if case.is_endpoint_in_flux(&endpoint.seen) {
            continue;
        }
        let finding =
            look.found(&endpoint.seen, format!("endpoint {} does not name its sandbox", endpoint.seen));
        finding.seen(endpoint_exhibit(endpoint));
        let node = endpoint.seen.node.as_ref().and_then(|node| case.node(node));
        let (Some(sandboxes), Some(pod)) = (node.and_then(Sandboxes::of), endpoint.seen.pod_name()) else {
            continue;
        };
        for sandbox in sandboxes.ready(&pod) {
            finding.seen(sandbox.exhibit(format!("sandbox {} of pod {pod} is ready", sandbox.seen.id)));
        }
    }
}

/// Whether a whole record says nothing of a sandbox. A table does not show it, and records of 2017 had no place for it.
fn lacks_id(endpoint: &Sighted<Endpoint>) -> bool {
    let seen = &endpoint.seen;
    let is_record = matches!(endpoint.origin, Origin::Store(_)) || seen.created_at.is_some();
    // In a Kubernetes store a pod is an endpoint before anything is made for it.
    let is_made = !seen.addresses.is_empty();
    is_record && is_made && seen.api == EndpointApi::V3 && seen.container_id.is_none() && is_of_pod(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_record_without_a_sandbox() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.endpoints.as_mut().unwrap()[0].seen.container_id = None;
        let finding = only(&CHECK, &evidence);
        assert!(finding.summary.ends_with(" does not name its sandbox"), "{}", finding.summary);
        assert_eq!(finding.evidence.len(), 2, "the record, and what the runtime has");
    }

    #[test]
    fn stays_silent_where_it_is_not_told_and_where_it_never_was() {
        let with = |change: fn(&mut Sighted<Endpoint>)| {
            let mut evidence = small();
            let endpoint = &mut evidence.endpoints.as_mut().unwrap()[0];
            endpoint.seen.container_id = None;
            change(endpoint);
            evidence
        };
        silent(&CHECK, &with(|endpoint| endpoint.seen.api = EndpointApi::V1));
        silent(&CHECK, &with(|endpoint| endpoint.seen.addresses.clear()));
        silent(&CHECK, &with(|endpoint| endpoint.seen.orchestrator = "cni".to_owned()));
        silent(
            &CHECK,
            &with(|endpoint| {
                endpoint.seen.created_at = None;
                endpoint.origin = Origin::line("wep.txt", 3, "a row of a table");
            }),
        );
    }
}
