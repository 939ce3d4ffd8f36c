//! Nodes that Kubernetes calls not ready, and what their pods are shown as all the same.

use crate::checks::words::{counted, listed};
use crate::{Case, Check, FindingCode, Look, Need, NodeView, Subject};
use evidence::{Pod, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node is not ready",
    explanation: "Kubernetes has lost contact with a node, or the node reports NotReady. Its pods are shown \
                  in their last known state, so Running proves nothing. Their addresses and endpoints may \
                  still be in use on the node.",
    remedy: "check the node's kubelet and network; do not force-delete its pods until you are certain that \
             the machine is off",
    needs: &[&[Need::KubeNodes]],
    ..Check::error(FindingCode::NodeNotReady, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for view in case.node_views().values() {
        let Some(node) = view.kube.iter().find(|kube| kube.seen.is_ready() == Some(false)) else { continue };
        if view.kube.iter().any(|kube| case.is_young(kube.seen.age(case.taken_at))) {
            continue;
        }
        let name = &view.name;
        let running: Vec<&Sighted<Pod>> =
            case.pods_on(name).filter(|pod| pod.seen.status == "Running").collect();
        let shown = match running.len() {
            0 => String::new(),
            1 => ", but one pod there is still shown as Running".to_owned(),
            count => format!(", but {} there are still shown as Running", counted(count, "pod")),
        };
        let finding = look.found(name, format!("node {name} is not ready{shown}"));
        finding.known_by("not ready").seen(node.place("Ready").exhibit(format!("node {name} is NotReady")));
        if let Some(ready) = node.seen.condition("Ready") {
            let since = ready.changed_at.map_or_else(String::new, |at| format!(" since {at}"));
            finding.because(format!("{}{since}: {}", ready.reason, ready.message));
        }
        if !running.is_empty() {
            finding
                .because(format!(
                    "these pods are shown in their last known state: {}",
                    listed(running.iter().map(|pod| &pod.seen.name))
                ))
                .seen_all(
                    running.iter().map(|pod| pod.exhibit(format!("{} is shown as Running", pod.seen.name))),
                );
        }
        finding.explains(FindingCode::CalicoNodeNotReady, name);
        explain_sessions(case, finding, view);
    }
}

/// Others cannot hold a session with a node that is down.
fn explain_sessions(case: &Case<'_>, finding: &mut crate::Finding, view: &NodeView<'_>) {
    let addresses: Vec<std::net::IpAddr> =
        view.addresses.iter().map(|recorded| recorded.address()).chain(view.internal_ips()).collect();
    for other in case.evidence.nodes.values().filter(|other| other.name != view.name) {
        for peer in &addresses {
            finding.explains(FindingCode::BgpSessionDown, Subject::session(&other.name, *peer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_and_names_the_pods_that_seem_to_run() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let node = &mut evidence.kube_nodes.as_mut().unwrap()[1].seen;
        node.conditions[0].status = "Unknown".to_owned();
        node.conditions[0].message = "Kubelet stopped posting node status.".to_owned();
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "node worker-0001 is not ready, but 5 pods there are still shown as Running"
        );
        assert!(finding.cause[0].ends_with("Kubelet stopped posting node status."));
        evidence.kube_nodes.as_mut().unwrap()[1].seen.created_at = evidence.taken_at;
        silent(&CHECK, &evidence);
    }
}
