//! Node set-up: kube-proxy does not run, so services do not work.

use super::{is_broken, spelled};
use crate::checks::words::{counted, listed};
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::Pod;

pub(in crate::checks) const CHECK: Check = Check {
    title: "kube-proxy does not run",
    explanation: "kube-proxy does not run on a node, so nothing keeps its service rules up to date. Pods there reach \
                  other pods by address, but no service, and no DNS. calico-node itself needs the service address of \
                  the API server, and is not ready if that fails.",
    remedy: "read the log of the kube-proxy pod; wrong settings in its ConfigMap, missing kernel modules (ip_vs, \
             nf_conntrack) and exhausted inotify watches are the usual causes",
    needs: &[&[Need::Pods]],
    ..Check::error(FindingCode::KubeProxyNotReady, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let is_proxy = |pod: &Pod| {
        pod.name.name.starts_with("kube-proxy-")
            && pod.name.namespace.as_deref().is_none_or(|space| space == "kube-system")
    };
    let broken = case.all_pods().iter().filter(|pod| is_proxy(&pod.seen) && is_broken(case, &pod.seen));
    // What a node that is away shows is its last known state.
    let broken: Vec<_> = broken
        .filter(|pod| {
            let node = pod.seen.node.as_ref().and_then(|node| case.kube_node(node));
            node.is_none_or(|node| node.seen.is_ready() != Some(false))
        })
        .collect();
    let Some(first) = broken.first() else { return };
    let places: Vec<String> = broken
        .iter()
        .map(|pod| {
            let node = pod
                .seen
                .node
                .as_ref()
                .map_or_else(|| pod.seen.name.to_string(), |node| spelled(case, node).to_string());
            format!("{node} ({})", super::shown(&pod.seen))
        })
        .collect();
    let subject = match (&first.seen.node, broken.len()) {
        (Some(node), 1) => Subject::node(spelled(case, node)),
        _ => Subject::Cluster,
    };
    let summary =
        format!("kube-proxy does not run on {}: {}", counted(broken.len(), "node"), listed(&places));
    let finding = look.found(subject, summary);
    finding.explains(FindingCode::NetworkComponentNotReady, Subject::Cluster);
    for pod in &broken {
        if let Some(node) = &pod.seen.node {
            finding.explains(FindingCode::NetworkComponentNotReady, &spelled(case, node));
        }
    }
    finding.known_by("not ready").seen_all(
        broken.iter().map(|pod| pod.exhibit(format!("{} {}", pod.seen.name, super::shown(&pod.seen)))),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::PodName;
    use evidence::sample::small;

    #[test]
    fn fires_for_a_proxy_that_does_not_stay_up() {
        let evidence = small();
        let mut pod = evidence.pods.as_ref().unwrap().last().unwrap().clone();
        pod.seen.name = PodName::new("kube-system", "kube-proxy-x2x7q");
        let with = |status: &str, ready: (u32, u32)| {
            let mut pod = pod.clone();
            (pod.seen.status, pod.seen.ready) = (status.to_owned(), Some(ready));
            let mut evidence = evidence.clone();
            evidence.pods.as_mut().unwrap().push(pod);
            evidence
        };
        silent(&CHECK, &with("Running", (1, 1)));
        silent(&CHECK, &with("Completed", (0, 1)));
        let finding = only(&CHECK, &with("CrashLoopBackOff", (0, 1)));
        assert!(finding.summary.contains("CrashLoopBackOff"), "{}", finding.summary);
        only(&CHECK, &with("Running", (0, 1)));
    }
}
