//! No orphans, the other way round: a node that lives and that no record knows.

use model::AffinityOwner;

use crate::evidence::NodeEvidence;
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "node-unrecorded",
    severity: Severity::Error,
    title: "A node that runs and is not recorded",
    explanation: "A machine runs as a node and has pods, addresses or blocks, and no record of that node is \
                  there: it was deleted while the machine lived on, or the machine goes by another name than \
                  it did. Others have no way to its pods, and whoever cleans up after nodes that are gone \
                  frees its blocks and the addresses of its running pods at once.",
    remedy: "restart the node's agent so that it records itself again (and the kubelet, if Kubernetes has \
             lost the node, too), or drain the machine if it is meant to be gone",
    needs: &[&[Need::Setup, Need::Record(model::Kind::Node)], &[Need::Setup, Need::KubeNodes]],
    // A node that is new is looked at before it has recorded itself.
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.knows_nodes() {
        return;
    }
    for node in case.evidence.nodes.values().filter(|node| case.node_view(&node.name).is_none()) {
        let Some(name) = &node.setup.node_name else { continue };
        let Some(stake) = at_stake(case, node) else { continue };
        let finding = look.found(
            Subject::node(&node.name),
            format!("{} runs as a node and has {stake}, and there is no record of it", node.name),
        );
        finding.seen(name.exhibit(format!("registers as {}", name.seen)));
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
    let owner = AffinityOwner::Host(node.name.clone());
    let mut affinities = case.evidence.ipam.iter().flat_map(|ipam| ipam.books.affinities.keys());
    affinities.any(|(held_by, _)| *held_by == owner).then_some("blocks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

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
