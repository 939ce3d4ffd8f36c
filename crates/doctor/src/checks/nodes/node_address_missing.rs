//! Node set-up: a node without an address for the others.

use model::Kind;

use crate::checks::reach::explain_ways;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node record has no address",
    explanation: "A Node record has no address at which other nodes could reach the node, although other \
                  records have one. The other nodes cannot route to its pods. Calico clears the address when \
                  it finds that another node has the same one.",
    remedy: "run plumb repair finding node-address-missing --apply, which writes the address if there is \
             exactly one candidate. Otherwise check the start of the agent's log for why it chose no \
             address, or set IP for that node",
    needs: &[&[Need::Record(Kind::Node)]],
    ..Check::warning(FindingCode::NodeAddressMissing, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let views = || case.node_views().values();
    if views().all(|view| view.addresses.is_empty()) {
        return;
    }
    for view in views().filter(|view| view.addresses.is_empty()) {
        let Some(record) = view.record.filter(|_| !is_virtual(view)) else { continue };
        let summary = format!("node {} has no address in its record", view.name);
        let finding = look.found(&view.name, summary);
        finding.seen(record.exhibit("no spec.bgp.ipv4Address"));
        explain_ways(case, finding, &view.name);
    }
}

/// A virtual kubelet stands for machines elsewhere: no network is set up there.
fn is_virtual(view: &crate::NodeView<'_>) -> bool {
    let has_type = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get("type").is_some_and(|kind| kind == "virtual-kubelet")
    };
    view.kube.iter().any(|node| has_type(&node.seen.labels))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_for_the_one_that_lacks_it() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.records.add(record(Kind::Node, "worker-0003", json!({})));
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "node worker-0003");
        let mut kube = evidence.kube_nodes.as_ref().unwrap()[0].clone();
        kube.seen.name = "worker-0003".into();
        kube.seen.labels.insert("type".to_owned(), "virtual-kubelet".to_owned());
        evidence.kube_nodes.as_mut().unwrap().push(kube);
        silent(&CHECK, &evidence);
    }
}
