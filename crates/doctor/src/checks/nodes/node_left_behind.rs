//! No orphans: a Node record whose node Kubernetes no longer has.

use jiff::Timestamp;
use model::{Kind, NodeName, Resource, ShellCommand};

use crate::case::orchestrators_name;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kubernetes node is gone but its Node record remains",
    explanation: "Kubernetes no longer lists this node: it was deleted there (kubectl delete node), but its \
                  Node record remained. The other nodes keep routes, tunnel entries and BGP sessions to it, \
                  and they cannot use its blocks. If the machine is still running, its agent keeps the \
                  record, and its pods keep their network although Kubernetes no longer manages them.",
    remedy: "if the node is gone for good: plumb repair node NAME gone --apply. If it was deleted by \
             mistake, restart its kubelet, which registers it again",
    needs: &[&[Need::KubeNodes, Need::Record(Kind::Node)]],
    // A node that joins is recorded before or after Kubernetes lists it.
    certainty: Certainty::MayBeChurn,
    ..Check::warning(FindingCode::NodeLeftBehind, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for view in case.node_views().values().filter(|view| case.is_gone_from_kubernetes(&view.name)) {
        let Some(record) = view.record else { continue };
        if case.is_young(age(case, &record.seen)) {
            continue;
        }
        let name = &view.name;
        let is_bare = is_bare(case, &record.seen);
        if is_bare && view.addresses.is_empty() {
            // Nothing leads to it.
            continue;
        }
        let answers = case.node(name).is_some_and(|node| node.setup.node_name.is_some());
        let state = match (answers, held(case, name)) {
            (true, _) => ", and its agent still answers".to_owned(),
            (false, Some(held)) => format!(", and it still has {held}"),
            (false, None) => String::new(),
        };
        let summary = format!("node {name} no longer exists in Kubernetes, but its Node record does{state}");
        let finding = look.found(name, summary);
        finding
            .known_by("left behind")
            .command(ShellCommand::new("plumb repair node").value(name.as_str()).plain("gone --apply"));
        finding.seen(record.exhibit(format!("Node record {name}")));
        let reference = orchestrators_name(&record.seen);
        if reference != *name {
            finding.seen(record.exhibit(format!("orchRefs: {reference}")));
        }
        if answers {
            finding.remedy(
                "the machine is still running. If it should be a node, restart its kubelet, which registers it again. If not, \
                 stop its pods and its agent, then run the command below",
            );
        } else if is_bare {
            // A host outside Kubernetes, such as a route reflector, has a record as well.
            finding.severity(Severity::Info);
        }
    }
}

fn age(case: &Case<'_>, record: &Resource) -> Option<jiff::SignedDuration> {
    let created: Timestamp = record.metadata.creation_timestamp.as_deref()?.parse().ok()?;
    Some(case.evidence.taken_at?.duration_since(created))
}

fn held(case: &Case<'_>, node: &NodeName) -> Option<&'static str> {
    let has_endpoints = || case.endpoints_on(node).next().map(|_| "endpoints");
    if case.has_blocks(node) { Some("blocks") } else { has_endpoints() }
}

/// Nothing shows that it ever was a node of Kubernetes.
fn is_bare(case: &Case<'_>, record: &Resource) -> bool {
    record.spec("orchRefs").is_none() && held(case, &record.metadata.name.as_str().into()).is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_for_a_record_without_a_kubernetes_node() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.kube_nodes.as_mut().unwrap().remove(1);
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "node worker-0001 no longer exists in Kubernetes, but its Node record does, and its agent still answers"
        );
        evidence.nodes.remove(&"worker-0001".into());
        let finding = only(&CHECK, &evidence);
        assert!(finding.summary.ends_with(", and it still has blocks"), "{}", finding.summary);
        assert!(finding.remedy.contains("plumb repair node NAME gone"));
        // Only some nodes were listed, or those of another cluster.
        evidence.partial.kube_nodes = true;
        silent(&CHECK, &evidence);
        evidence.partial.kube_nodes = false;
        evidence
            .kube_nodes
            .as_mut()
            .unwrap()
            .iter_mut()
            .for_each(|node| node.seen.name = format!("{}-elsewhere", node.seen.name).into());
        silent(&CHECK, &evidence);
    }

    #[test]
    fn a_record_may_have_another_name_than_its_node_be_young_or_of_a_host_outside() {
        let mut evidence = small();
        let named = |name: &str| json!({"orchRefs": [{"nodeName": name, "orchestrator": "k8s"}]});
        evidence.records.add(record(Kind::Node, "other-name", named("worker-0000")));
        silent(&CHECK, &evidence);
        evidence.records.add(record(Kind::Node, "gone", named("gone.example")));
        assert_eq!(only(&CHECK, &evidence).severity, Severity::Warning);
        let gone = evidence.records.all_mut(Kind::Node).last_mut().unwrap();
        gone.seen.metadata.creation_timestamp = evidence.taken_at.map(|now| now.to_string());
        silent(&CHECK, &evidence);
        let mut evidence = small();
        evidence.records.add(record(Kind::Node, "empty", json!({})));
        silent(&CHECK, &evidence);
        evidence.records.add(record(
            Kind::Node,
            "reflector",
            json!({"bgp": {"ipv4Address": "172.16.0.99/16"}}),
        ));
        assert_eq!(only(&CHECK, &evidence).severity, Severity::Info);
    }
}
