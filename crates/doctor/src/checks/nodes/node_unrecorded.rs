//! No orphans, the other way round: a node that lives and that no record knows.

use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::NodeEvidence;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Running node has no Node record",
    explanation: "A machine runs as a node and has pods, endpoints or blocks, but it has no Node record. The \
                  record was deleted while the machine was still running, or the machine was renamed. Other \
                  nodes have no route to its pods, and a cleanup of removed nodes would release its blocks \
                  and the addresses of its running pods.",
    remedy: "restart the node's agent so that it writes its record again (and the kubelet, if Kubernetes has \
             lost the node as well). If the machine should no longer be a node, drain it",
    needs: &[&[Need::Setup, Need::Record(model::Kind::Node)], &[Need::Setup, Need::KubeNodes]],
    // A node that is new is looked at before it has recorded itself.
    certainty: Certainty::MayBeChurn,
    ..Check::error(FindingCode::NodeUnrecorded, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.knows_nodes() {
        return;
    }
    for node in case.evidence.nodes.values().filter(|node| case.node_view(&node.name).is_none()) {
        let Some(name) = &node.setup.node_name else { continue };
        let Some(stake) = at_stake(case, node) else { continue };
        let summary = format!("{} runs as a node and has {stake}, but it has no Node record", node.name);
        let finding = look.found(&node.name, summary);
        finding.seen(name.exhibit(format!("registered as {}", name.seen)));
        finding.known_by("unrecorded");
    }
}

/// What it would lose.
fn at_stake(case: &Case<'_>, node: &NodeEvidence) -> Option<&'static str> {
    if node.attachments.as_ref().is_some_and(|held| !held.is_empty()) {
        return Some("pods");
    }
    if case.endpoints_on(&node.name).next().is_some() {
        return Some("endpoints");
    }
    case.has_blocks(&node.name).then_some("blocks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_node_that_lives() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.records = Default::default();
        evidence.kube_nodes.as_mut().unwrap().remove(1);
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "node worker-0001");
        // A machine that somebody only pasted something from need not be a node.
        evidence.node_mut("worker-0001").setup.node_name = None;
        silent(&CHECK, &evidence);
    }

    #[test]
    fn stays_silent_where_not_all_nodes_are_known_or_nothing_is_at_stake() {
        let mut evidence = small();
        evidence.records = Default::default();
        evidence.kube_nodes.as_mut().unwrap().remove(1);
        evidence.partial.kube_nodes = true;
        silent(&CHECK, &evidence);
        evidence.partial.kube_nodes = false;
        evidence.node_mut("worker-0001").attachments = None;
        evidence.endpoints = None;
        only(&CHECK, &evidence);
        evidence.ipam = None;
        silent(&CHECK, &evidence);
    }
}
