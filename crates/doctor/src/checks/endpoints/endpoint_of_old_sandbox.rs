//! Identity is the sandbox: an endpoint names another sandbox than the one that runs.

use super::{Sandboxes, is_of_pod, not_inside};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::kubernetes::age;
use evidence::same_id;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Endpoint refers to a sandbox that is not running",
    explanation: "The runtime has a ready sandbox for a pod, but the pod's endpoint record refers to a \
                  different one. The record was left by a sandbox that is gone, or was overwritten by a late \
                  ADD. Its addresses and device may not be those of the running pod.",
    remedy: "run plumb repair endpoints --apply to write the running sandbox into the record, or recreate \
             the pod",
    needs: &[&[Need::Endpoints, Need::Runtime]],
    ..Check::error(FindingCode::EndpointOfOldSandbox, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        let Some(sandboxes) = Sandboxes::of(node) else { continue };
        for endpoint in case.endpoints_on(&node.name).filter(|endpoint| is_of_pod(&endpoint.seen)) {
            let (Some(name), Some(recorded)) =
                (endpoint.seen.pod_name(), endpoint.seen.container_id.as_deref())
            else {
                continue;
            };
            let ready = sandboxes.ready(&name);
            let is_young = ready
                .iter()
                .any(|sandbox| case.is_young(age(sandbox.seen.created_at, sandbox.seen.age, case.taken_at)));
            if is_young
                || ready.is_empty()
                || ready.iter().any(|sandbox| same_id(&sandbox.seen.id, recorded))
                || case.is_endpoint_in_flux(&endpoint.seen)
            {
                continue;
            }
            let short = |id: &str| id.get(..12).unwrap_or(id).to_owned();
            let running = &ready[0].seen.id;
            let summary = format!(
                "endpoint {} refers to sandbox {}, but {} is running",
                endpoint.seen,
                short(recorded),
                short(running)
            );
            let finding = look.found(&endpoint.seen, summary);
            finding
                .of_sandbox(endpoint.seen.container_id.as_deref())
                .seen(endpoint_exhibit(endpoint))
                .seen(ready[0].exhibit(format!("sandbox {running} of pod {name} is ready")))
                .explains(FindingCode::EndpointWithoutSandbox, &endpoint.seen);
            // What the record has and the sandbox that runs does not: the kernel has nothing for it, and rightly so.
            for address in not_inside(case, &endpoint.seen.addresses, running) {
                finding.explains(FindingCode::RouteMissing, Subject::route(&node.name, address));
                if let Some(device) = &endpoint.seen.device {
                    let neighbour = Subject::neighbour(&node.name, address, device);
                    finding.explains(FindingCode::NeighbourMissing, neighbour);
                }
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
    fn fires_for_a_record_of_the_former_sandbox() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.endpoints.as_mut().unwrap()[0].seen.container_id = Some("ab".repeat(32));
        let finding = only(&CHECK, &evidence);
        assert!(
            finding.summary.ends_with("refers to sandbox abababababab, but 000000010000 is running"),
            "{}",
            finding.summary
        );
    }

    /// As after a backup was put back: the record is that of a sandbox of yesterday, with its address.
    #[test]
    fn swallows_what_the_kernel_lacks_for_the_former_address() {
        let mut evidence = small();
        let endpoint = &mut evidence.endpoints.as_mut().unwrap()[0].seen;
        endpoint.container_id = Some("ab".repeat(32));
        endpoint.addresses = vec!["10.0.0.40".parse().unwrap()];
        let findings = crate::diagnose(&evidence).findings;
        let root = findings.iter().find(|finding| finding.code == CHECK.code).unwrap();
        let symptoms: Vec<FindingCode> = root.symptoms.iter().map(|symptom| symptom.code).collect();
        assert!(
            symptoms.contains(&FindingCode::RouteMissing)
                && symptoms.contains(&FindingCode::NeighbourMissing),
            "{symptoms:?}"
        );
        assert!(!findings.iter().any(|finding| finding.code == FindingCode::RouteMissing), "{findings:?}");
    }

    #[test]
    fn is_silent_for_a_sandbox_that_was_just_made() {
        let mut evidence = small();
        evidence.endpoints.as_mut().unwrap()[0].seen.container_id = Some("ab".repeat(32));
        let taken_at = evidence.taken_at;
        evidence.node_mut("worker-0000").sandboxes.as_mut().unwrap()[0].seen.created_at = taken_at;
        silent(&CHECK, &evidence);
    }
}
