//! A sandbox that the runtime runs, and whose network namespace is gone.

use crate::checks::words::endpoint_subject;
use crate::evidence::same_id;
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "pod-namespace-gone",
    severity: Severity::Error,
    title: "A running pod whose network namespace is gone",
    explanation: "The runtime lists a sandbox as ready, and the network namespace that it names for it is not there any more: somebody \
                  deleted it (ip netns del, a clean-up of /run/netns), or unmounted it. With it went the pod's interface and the \
                  node's end of it. Nothing can be put back into a namespace that is gone, and only the runtime makes one.",
    remedy: "delete the pod, so that its sandbox is made anew (kubectl delete pod; a static pod: crictl stopp, then crictl rmp)",
    needs: &[&[Need::Runtime, Need::PodViews]],
    settles: Settles::InTwoLooks,
    look,
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
            let finding = look.found(
                Subject::Pod(pod.clone()),
                format!("pod {pod} runs on {} without a network namespace", node.name),
            );
            finding
                .of_sandbox(Some(&sandbox.seen.id))
                .seen(sandbox.exhibit("the runtime lists its sandbox as ready"))
                .seen(lost.exhibit("the namespace that the runtime names for it is not there"))
                .explains("pod-interface-missing", Subject::Pod(pod.clone()));
            for endpoint in case.endpoints_of(pod).map(|endpoint| &endpoint.seen) {
                finding.explains("endpoint-without-device", endpoint_subject(endpoint));
                if let Some(device) = &endpoint.device {
                    finding.explains("device-down", Subject::device(&node.name, device));
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
    use crate::{Origin, Sighted};

    #[test]
    fn fires_while_the_runtime_calls_the_sandbox_ready() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let node = evidence.node_mut("worker-0000");
        let id = node.pod_views.as_mut().unwrap().remove(0).container_id.unwrap();
        node.lost_namespaces = Some(vec![Sighted::new(id, Origin::probe("worker-0000", "namespaces"))]);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "pod team-0/web-0 runs on worker-0000 without a network namespace");
        let mut leaving = evidence.clone();
        leaving.pods.as_mut().unwrap()[0].seen.deleted_at = leaving.taken_at;
        silent(&CHECK, &leaving);
        let sandboxes = evidence.node_mut("worker-0000").sandboxes.as_mut().unwrap();
        sandboxes.iter_mut().for_each(|sandbox| sandbox.seen.is_ready = Some(false));
        silent(&CHECK, &evidence);
    }
}
