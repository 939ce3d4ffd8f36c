//! Ready means ready: the network's own pod runs and is not ready.

use super::{is_broken, is_network_pod, shown};
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "calico-node does not run or is not ready",
    explanation: "The pod that provides a node's network (calico-node or plumbd) fails, or is Running while \
                  not all of its containers are ready. The readiness of calico-node depends on Felix and on established \
                  BGP sessions. Running alone proves nothing: routes may be outdated or missing.",
    remedy: "check its readiness events (kubectl describe pod) and its BGP sessions (plumb node status)",
    needs: &[&[Need::Pods]],
    ..Check::error(FindingCode::CalicoNodeNotReady, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for pod in case.all_pods().iter().filter(|pod| is_network_pod(&pod.seen)) {
        let Some(node) = pod.seen.node.as_ref().filter(|_| is_broken(case, &pod.seen)) else { continue };
        let (name, (ready, all)) = (&pod.seen.name, pod.seen.ready.unwrap_or_default());
        let summary = match pod.seen.status.as_str() {
            "Running" => format!("{name} on {node} is running but not ready ({ready}/{all})"),
            status => format!("{name} on {node} does not run: {status}"),
        };
        look.found(node, summary)
            .known_by("not ready")
            .explains(FindingCode::NodeNetworkUnavailable, node)
            .seen(pod.exhibit(format!("{name} {}", shown(&pod.seen))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_one_that_fails_or_starts_for_ever() {
        let with = |status: &str| {
            let mut evidence = small();
            let pods = evidence.pods.as_mut().unwrap();
            let pod = pods.iter_mut().find(|pod| pod.seen.name.name == "calico-node-00001").unwrap();
            (pod.seen.status, pod.seen.ready) = (status.to_owned(), Some((0, 1)));
            evidence
        };
        let summary = "kube-system/calico-node-00001 on worker-0001 does not run: Init:CrashLoopBackOff";
        assert_eq!(only(&CHECK, &with("Init:CrashLoopBackOff")).summary, summary);
        only(&CHECK, &with("Init:0/3"));
        silent(&CHECK, &with("Terminating"));
    }

    #[test]
    fn fires_for_calico_node_and_not_for_others() {
        let mut evidence = small();
        evidence.pods.as_mut().unwrap()[0].seen.ready = Some((0, 1));
        silent(&CHECK, &evidence);
        let pods = evidence.pods.as_mut().unwrap();
        let pod = pods.iter_mut().find(|pod| pod.seen.name.name == "calico-node-00001").unwrap();
        pod.seen.ready = Some((0, 1));
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "kube-system/calico-node-00001 on worker-0001 is running but not ready (0/1)"
        );
        let taken_at = evidence.taken_at;
        let pods = evidence.pods.as_mut().unwrap();
        pods.iter_mut().for_each(|pod| pod.seen.created_at = taken_at);
        silent(&CHECK, &evidence);
    }
}
