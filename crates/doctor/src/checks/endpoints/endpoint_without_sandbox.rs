//! No orphans: an endpoint whose sandbox the runtime does not have.

use super::{Sandboxes, is_asked, is_of_pod};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need};
use evidence::{Origin, same_id};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Endpoint's sandbox is not running",
    explanation: "An endpoint record names a sandbox that the runtime on its node does not list as ready, \
                  and no other sandbox of that pod is ready either. The pod was stopped, but its DEL did not \
                  reach the store.",
    remedy: "run plumb repair endpoints --apply, which deletes the record once a second witness confirms \
             that the sandbox is gone",
    needs: &[&[Need::Endpoints, Need::Runtime]],
    ..Check::warning(FindingCode::EndpointWithoutSandbox, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        let Some(sandboxes) = Sandboxes::of(node) else { continue };
        let list = node.sandboxes.as_deref().unwrap_or_default();
        if !is_asked(list) {
            continue;
        }
        for endpoint in case.endpoints_on(&node.name).filter(|endpoint| is_of_pod(&endpoint.seen)) {
            let (Some(name), Some(recorded)) =
                (endpoint.seen.pod_name(), endpoint.seen.container_id.as_deref())
            else {
                continue;
            };
            let is_ready = |id: &str| {
                list.iter()
                    .any(|sandbox| sandbox.seen.is_ready != Some(false) && same_id(&sandbox.seen.id, id))
            };
            let is_finished = case.pods_named(&name).any(|pod| pod.seen.is_finished());
            if !sandboxes.ready(&name).is_empty()
                || is_ready(recorded)
                || is_finished
                || case.is_endpoint_in_flux(&endpoint.seen)
            {
                continue;
            }
            let short = recorded.get(..12).unwrap_or(recorded);
            let summary = format!(
                "endpoint {} refers to sandbox {short}, which is not running on {}",
                endpoint.seen, node.name
            );
            look.found(&endpoint.seen, summary)
                .of_sandbox(endpoint.seen.container_id.as_deref())
                .seen(endpoint_exhibit(endpoint))
                .seen(
                    Origin::probe(&node.name, "sandboxes").exhibit(format!("no ready sandbox of pod {name}")),
                )
                .explains(FindingCode::EndpointWithoutDevice, &endpoint.seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_when_the_runtime_does_not_list_it() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").sandboxes.as_mut().unwrap()[0].seen.is_ready = Some(false);
        assert!(
            only(&CHECK, &evidence)
                .summary
                .ends_with("refers to sandbox 000000010000, which is not running on worker-0000")
        );
    }

    #[test]
    fn is_silent_for_pasted_lists_and_finished_pods() {
        let mut evidence = small();
        let sandboxes = evidence.node_mut("worker-0000").sandboxes.as_mut().unwrap();
        sandboxes.remove(0);
        sandboxes[0].origin = Origin::line("crictl.txt", 1, "…");
        silent(&CHECK, &evidence);
        let mut evidence = small();
        evidence.node_mut("worker-0000").sandboxes.as_mut().unwrap().remove(0);
        evidence.pods.as_mut().unwrap()[0].seen.status = "Completed".to_owned();
        silent(&CHECK, &evidence);
    }
}
