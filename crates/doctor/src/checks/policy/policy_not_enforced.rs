//! Not yet enforced is never silent: policies that would deny something.

use model::{Kind, NodeName};

use crate::checks::words::{counted, listed};
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};

/// What our agent notes on its node's record.
const ANNOTATION: &str = "plumbline.io/policies-not-enforced";

pub(in crate::checks) const CHECK: Check = Check {
    title: "Policies are not enforced",
    explanation: "The store contains network policies, or profiles with rules that deny, but the agents of \
                  some nodes report that they do not enforce them: their rules are not in the kernel, or \
                  records cannot be read. Traffic that they would deny may be allowed there.",
    remedy: "check the agent's log and readiness on these nodes, which name the reason: `plumb node status`",
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
            view.record.is_some_and(|record| record.seen.metadata.annotations.contains_key(ANNOTATION))
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
    fn fires_for_what_denies_where_an_agent_says_so() {
        let mut evidence = small();
        evidence.records.add(record(Kind::Profile, "open", json!({"ingress": [{"action": "Allow"}]})));
        silent(&CHECK, &evidence);
        evidence.records.add(record(Kind::GlobalNetworkPolicy, "default.deny", json!({"selector": "all()"})));
        silent(&CHECK, &evidence);
        let mut node = record(Kind::Node, "worker-0009", json!({}));
        node.seen.metadata.annotations.insert(ANNOTATION.to_owned(), "1".to_owned());
        evidence.records.add(node);
        assert_eq!(only(&CHECK, &evidence).subject, Subject::Cluster);
    }
}
