//! Identity is the sandbox: an endpoint that does not say whose it is.

use super::{Sandboxes, is_of_pod};
use crate::checks::words::{endpoint_exhibit, endpoint_subject};
use crate::evidence::Endpoint;
use crate::evidence::endpoint::EndpointApi;
use crate::{Case, Check, Look, Need, Origin, Settles, Severity, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    code: "endpoint-without-container-id",
    severity: Severity::Warning,
    title: "An endpoint that does not name its sandbox",
    explanation: "The record of an endpoint has no containerID. Calico's plugin compares that with the sandbox \
                  a DEL is for, and where there is none it compares nothing: a DEL of an earlier sandbox, \
                  however late, deletes the record of the pod that runs now. Records of old releases look \
                  like this, and those that were written by hand.",
    remedy: "write the running sandbox into the record (plumb repair endpoints), or recreate the pod",
    needs: &[&[Need::Endpoints]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for endpoint in case.all_endpoints().iter().filter(|endpoint| lacks_id(endpoint)) {
        if case.is_endpoint_in_flux(&endpoint.seen) {
            continue;
        }
        let finding = look.found(
            endpoint_subject(&endpoint.seen),
            format!("endpoint {} does not name its sandbox", endpoint.seen),
        );
        finding.seen(endpoint_exhibit(endpoint));
        let node = endpoint.seen.node.as_deref().and_then(|node| case.node(node));
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
    use crate::sample::small;

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
