//! Not yet enforced is never silent: policies that would deny something.

use model::{Kind, NodeName};

use crate::checks::words::{counted, listed};
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};

/// What our agent notes on its node's record.
const ANNOTATION: &str = "plumbline.io/policies-not-enforced";

pub(in crate::checks) const CHECK: Check = Check {
    title: "Policies are not enforced",
    explanation: "The store contains network policies, or profiles with rules that deny, but nodes of this \
                  cluster run an agent that does not enforce them yet. Traffic that they would deny is \
                  allowed there.",
    remedy: "run Calico's Felix for policy on these nodes, or delete the policies if they are not wanted",
    needs: &[
        &[Need::Record(Kind::NetworkPolicy), Need::Record(Kind::Node)],
        &[Need::Record(Kind::GlobalNetworkPolicy), Need::Record(Kind::Node)],
        &[Need::Record(Kind::Profile), Need::Record(Kind::Node)],
    ],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::PolicyNotEnforced, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let nodes: Vec<&NodeName> = case
        .node_views()
        .values()
        .filter(|view| {
            let is_noted =
                view.record.is_some_and(|record| record.seen.metadata.annotations.contains_key(ANNOTATION));
            is_noted || case.node(&view.name).is_some_and(|node| node.attachments.is_some())
        })
        .map(|view| &view.name)
        .collect();
    let kinds = [Kind::GlobalNetworkPolicy, Kind::NetworkPolicy, Kind::Profile];
    let records = kinds.into_iter().flat_map(|kind| case.evidence.records.all(kind));
    let denying: Vec<_> = records.filter(|record| record.seen.would_deny()).collect();
    if nodes.is_empty() || denying.is_empty() {
        return;
    }
    let count = counted(denying.len(), "record");
    let (verb, is) = if denying.len() == 1 { ("denies", "is") } else { ("deny", "are") };
    let summary = format!(
        "{count} {verb} traffic but {is} not enforced on {}: {}",
        listed(&nodes),
        listed(denying.iter().map(|record| record.seen.key()))
    );
    look.found(Subject::Cluster, summary)
        .known_by("not enforced")
        .seen_all(denying.iter().map(|record| record.exhibit(record.seen.key().to_string())));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_for_what_denies_where_our_agent_runs() {
        let mut evidence = small();
        evidence.records.add(record(Kind::Profile, "open", json!({"ingress": [{"action": "Allow"}]})));
        silent(&CHECK, &evidence);
        evidence.records.add(record(Kind::GlobalNetworkPolicy, "default.deny", json!({"selector": "all()"})));
        assert_eq!(only(&CHECK, &evidence).subject, Subject::Cluster);
        for node in ["worker-0000", "worker-0001", "worker-0002"] {
            evidence.node_mut(node).attachments = None;
        }
        silent(&CHECK, &evidence);
    }
}
