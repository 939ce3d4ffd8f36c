//! BGP: a peering that is meant for nodes which are not there.

use std::collections::BTreeMap;

use model::{Kind, Resource, Selector};
use serde_json::Value;

use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "BGPPeer selects no node",
    explanation: "A BGPPeer names its nodes, or its peers, by labels that no node has. The sessions that it stands for do not \
                  exist. Most often the label of route reflectors was never set, or was lost when their Node records were \
                  created again.",
    remedy: "label the nodes that are meant (kubectl label node NODE route-reflector=true on a Kubernetes store, else in \
             metadata.labels of the Node record), or correct the selector",
    needs: &[&[Need::Record(Kind::BgpPeer), Need::Record(Kind::Node)]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::BgpPeerSelectsNobody, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.knows_nodes() {
        return;
    }
    let nodes: Vec<&BTreeMap<String, String>> =
        case.evidence.records.all(Kind::Node).iter().map(|node| &node.seen.metadata.labels).collect();
    // A table has no labels.
    if nodes.is_empty() || nodes.iter().all(|labels| labels.is_empty()) {
        return;
    }
    for peer in case.evidence.records.all(Kind::BgpPeer) {
        for (field, who) in [("peerSelector", "its peers"), ("nodeSelector", "its nodes")] {
            let Some((text, selector)) = selector(&peer.seen, field) else { continue };
            if nodes.iter().any(|labels| selector.matches(*labels)) {
                continue;
            }
            let summary = format!("{} looks for {who} with {text}, which selects no node", peer.seen.key());
            let finding = look.found(peer.seen.key(), summary);
            finding.known_by(field).seen(peer.exhibit(format!("{field}: {text}")));
            if let Some(mesh) = case.evidence.records.find(Kind::BgpConfiguration, "default")
                && mesh.seen.spec("nodeToNodeMeshEnabled") == Some(&Value::Bool(false))
            {
                finding.because("the node-to-node mesh is off, so these sessions are the only ones");
                finding.seen(mesh.exhibit("nodeToNodeMeshEnabled: false"));
            }
        }
    }
}

fn selector<'r>(peer: &'r Resource, field: &str) -> Option<(&'r str, Selector)> {
    let text = peer.spec(field)?.as_str().filter(|text| !text.trim().is_empty())?;
    Some((text, text.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_for_labels_that_no_node_has() {
        let mut evidence = small();
        let spec = json!({"nodeSelector": "all()", "peerSelector": "route-reflector == 'true'"});
        evidence.records.add(record(Kind::BgpPeer, "reflected", spec));
        silent(&CHECK, &evidence);
        let label = |evidence: &mut evidence::Evidence, name: &str| {
            let node = &mut evidence.records.all_mut(Kind::Node)[0].seen;
            node.metadata.labels.insert(name.to_owned(), "true".to_owned());
        };
        label(&mut evidence, "rack");
        let finding = only(&CHECK, &evidence);
        assert!(
            finding.summary.ends_with("with route-reflector == 'true', which selects no node"),
            "{}",
            finding.summary
        );
        label(&mut evidence, "route-reflector");
        silent(&CHECK, &evidence);
    }
}
