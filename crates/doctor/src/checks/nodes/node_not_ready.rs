//! Nodes that Kubernetes calls not ready, and what their pods are shown as all the same.

use jiff::{SignedDuration, Timestamp};

use crate::checks::words::{counted, listed};
use crate::{Case, Check, FindingCode, Look, Need, NodeView, Severity, Subject};
use evidence::{Pod, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node is not ready",
    explanation: "Kubernetes has lost contact with a node, or the node reports NotReady. Its pods are shown \
                  in their last known state, so Running proves nothing. Their addresses and endpoints may \
                  still be in use on the node. A node that is shown as ready although its kubelet has \
                  stopped renewing its lease is a warning: the controller manager, which would report it, \
                  may not run either.",
    remedy: "check the node's kubelet and network; do not force-delete its pods until you are certain that \
             the machine is off",
    needs: &[&[Need::KubeNodes]],
    ..Check::error(FindingCode::NodeNotReady, look)
};

/// How long a kubelet's lease counts. It is renewed four times as often.
const LEASE: SignedDuration = SignedDuration::from_secs(40);

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let leases = case.kube_nodes.iter().flatten().filter_map(|node| node.seen.lease_renewed_at);
    // What the kubelets' own clocks show: whoever looks may have another one.
    let newest = leases.max();
    for view in case.node_views().values() {
        let Some(node) = view.kube.iter().find(|kube| kube.seen.is_ready() == Some(false)) else {
            if let Some(newest) = newest {
                look_at_lease(case, look, view, newest);
            }
            continue;
        };
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
        finding
            .explains(FindingCode::CalicoNodeNotReady, name)
            .explains(FindingCode::NetworkComponentNotReady, name)
            .explains(FindingCode::NetworkComponentNotReady, Subject::Cluster);
        explain_sessions(case, finding, view);
    }
}

/// A node that is shown as ready while its kubelet is silent.
fn look_at_lease(case: &Case<'_>, look: &mut Look<'_>, view: &NodeView<'_>, newest: Timestamp) {
    let bound = LEASE.max(case.options.grace);
    for node in &view.kube {
        let Some(renewed) = node.seen.lease_renewed_at else { continue };
        if newest.duration_since(renewed) <= bound {
            continue;
        }
        let name = &view.name;
        let summary = format!("node {name} is shown as ready, but its kubelet does not renew its lease");
        look.found(name, summary)
            .severity(Severity::Warning)
            .known_by("silent")
            .because(format!("its lease was renewed at {renewed}, that of another node at {newest}"))
            .because(
                "the kubelet does not run, cannot reach the API server, or its machine's clock is behind",
            )
            .seen(node.exhibit(format!("lease of node {name} renewed at {renewed}")));
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

    #[test]
    fn fires_for_a_kubelet_that_is_silent_as_a_warning() {
        let mut evidence = small();
        let now = evidence.taken_at.unwrap();
        let lease = |evidence: &mut evidence::Evidence, node: usize, seconds: i64| {
            let node = &mut evidence.kube_nodes.as_mut().unwrap()[node].seen;
            node.lease_renewed_at = Some(now - SignedDuration::from_secs(seconds));
        };
        lease(&mut evidence, 1, 3_600);
        silent(&CHECK, &evidence);
        lease(&mut evidence, 0, 3_555);
        lease(&mut evidence, 2, 3_590);
        silent(&CHECK, &evidence);
        lease(&mut evidence, 0, 5);
        lease(&mut evidence, 2, 20);
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "node worker-0001 is shown as ready, but its kubelet does not renew its lease"
        );
        assert_eq!(finding.severity, Severity::Warning);
    }
}
