//! A sandbox that the runtime runs, and whose network namespace is gone.

use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::same_id;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Running pod's network namespace is gone",
    explanation: "The runtime lists a sandbox as ready, but the sandbox's network namespace no longer \
                  exists: it was deleted (ip netns del, a cleanup of /run/netns) or unmounted. The pod's \
                  interface and the node's end of it are gone as well. Nothing can be restored in a \
                  namespace that is gone, and only the runtime can create a new one.",
    remedy: "delete the pod so that the runtime creates a new sandbox (kubectl delete pod; for a static pod: \
             crictl stopp, then crictl rmp)",
    needs: &[&[Need::Runtime, Need::PodViews]],
    ..Check::error(FindingCode::PodNamespaceGone, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.all_nodes() {
        let ready = || {
            let listed = node.sandboxes.iter().flatten();
            listed.filter(|sandbox| sandbox.seen.is_ready == Some(true))
        };
        for lost in node.lost_namespaces.iter().flatten() {
            let Some(sandbox) = ready().find(|sandbox| same_id(&sandbox.seen.id, &lost.seen)) else {
                continue;
            };
            let pod = &sandbox.seen.pod;
            let is_leaving =
                case.pods_named(pod).any(|pod| case.is_in_flux(&pod.seen) || pod.seen.is_finished());
            if is_leaving || case.is_at_work_on(&sandbox.seen.id) {
                continue;
            }
            let summary = format!("pod {pod} runs on {}, but its network namespace is gone", node.name);
            let finding = look.found(Subject::Pod(pod.clone()), summary);
            finding
                .of_sandbox(Some(&sandbox.seen.id))
                .seen(sandbox.exhibit("the runtime lists its sandbox as ready"))
                .seen(lost.exhibit("the network namespace that the runtime names for it does not exist"))
                .explains(FindingCode::PodInterfaceMissing, Subject::Pod(pod.clone()));
            for endpoint in case.endpoints_of(pod).map(|endpoint| &endpoint.seen) {
                finding.explains(FindingCode::EndpointWithoutDevice, endpoint);
                if let Some(device) = &endpoint.device {
                    finding.explains(FindingCode::DeviceDown, Subject::device(&node.name, device));
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
    use evidence::{Origin, Sighted};

    #[test]
    fn fires_while_the_runtime_calls_the_sandbox_ready() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let node = evidence.node_mut("worker-0000");
        let id = node.pod_views.as_mut().unwrap().remove(0).container_id.unwrap();
        node.lost_namespaces = Some(vec![Sighted::new(id, Origin::probe("worker-0000", "namespaces"))]);
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "pod team-0/web-0 runs on worker-0000, but its network namespace is gone"
        );
        let mut leaving = evidence.clone();
        leaving.pods.as_mut().unwrap()[0].seen.deleted_at = leaving.taken_at;
        silent(&CHECK, &leaving);
        let sandboxes = evidence.node_mut("worker-0000").sandboxes.as_mut().unwrap();
        sandboxes.iter_mut().for_each(|sandbox| sandbox.seen.is_ready = Some(false));
        silent(&CHECK, &evidence);
    }
}
