//! Node set-up: an address that only the operator can confirm, or a setting that was given and has no effect.

use crate::{Case, Certainty, Check, FindingCode, Look, Need, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node's address is not confirmed",
    explanation: "The agent has chosen an address for the node but reports a doubt about it. Either \
                  IP_AUTODETECTION_METHOD is set but has no effect, because the node is already registered \
                  with an address that it still has. Or the node has several NICs, and none of these sources \
                  identifies the right one: the kubelet's --node-ip, Kubernetes' InternalIP, the other \
                  nodes' network, or a reply from another node.",
    remedy: "set IP to the address or to autodetect, or set the kubelet's --node-ip, and restart the node's \
             agent",
    needs: &[&[Need::Setup]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::NodeAddressDoubtful, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    // Where there is no other node, nobody has to reach this one yet.
    let is_alone = case.node_views().len() < 2;
    for node in case.evidence.nodes.values() {
        for choice in node.setup.address_choices.iter().flatten() {
            for doubt in &choice.seen.unsettled {
                let finding = look.found(&node.name, format!("node {}: {doubt}", node.name));
                finding.known_by(doubt.as_str());
                if is_alone {
                    finding.severity(Severity::Info);
                }
                let chosen = choice.seen.network.map_or("none".to_owned(), |network| network.to_string());
                finding.seen(choice.exhibit(format!("address {chosen}: {}", choice.seen.why)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::node::AddressChoice;
    use evidence::sample::small;
    use evidence::{Origin, Sighted};

    #[test]
    fn fires_for_what_only_the_operator_can_settle() {
        let mut evidence = small();
        let mut choice = AddressChoice {
            network: "172.16.0.1/16".parse().ok(),
            why: "recorded".to_owned(),
            doubts: vec!["it was elsewhere".to_owned()],
            ..AddressChoice::default()
        };
        let mut told = |choice: &AddressChoice| {
            let sighted = Sighted::new(choice.clone(), Origin::probe("worker-0000", "address"));
            evidence.node_mut("worker-0000").setup.address_choices = Some(vec![sighted]);
            evidence.clone()
        };
        silent(&CHECK, &told(&choice));
        choice.unsettled = vec!["the method first-found has no effect".to_owned()];
        let finding = only(&CHECK, &told(&choice));
        assert_eq!(finding.summary, "node worker-0000: the method first-found has no effect");
        assert_eq!(finding.evidence[0].text, "address 172.16.0.1/16: recorded");
        assert_eq!(finding.severity, Severity::Warning);
        let mut alone = told(&choice);
        alone.records = Default::default();
        alone.kube_nodes.as_mut().unwrap().truncate(1);
        assert_eq!(only(&CHECK, &alone).severity, Severity::Info);
    }
}
