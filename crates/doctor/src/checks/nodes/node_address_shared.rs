//! Node set-up: two nodes with one address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::checks::named::Report;
use crate::checks::reach::explain_ways;
use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, NodeView, Recorded, Subject};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Several nodes have the same address",
    explanation: "The records of two nodes have the same address. Both chose it: it is a virtual IP that \
                  moves between them, or one machine is a clone. Each mistakes the other for itself and sets \
                  up no session with it, and other nodes reach only one of the two.",
    remedy: "set IP_AUTODETECTION_METHOD so that each node chooses its own address. If one of the nodes is \
             gone for good: plumb repair node NAME gone --apply",
    needs: &[&[Need::Record(model::Kind::Node)], &[Need::KubeNodes], &[Need::Log]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::NodeAddressShared, look)
};

const TAKEN: Report = Report {
    explains: &[FindingCode::CalicoNodeNotReady, FindingCode::NodeAddressMissing],
    ..Report::of(Trouble::NodeAddressTaken)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    TAKEN.tell(case, look, |place| {
        format!("calico-node does not start on {place}: another node has its address")
    });
    let mut holders: BTreeMap<IpAddr, Vec<(&NodeView<'_>, &Recorded<'_>)>> = BTreeMap::new();
    for view in case.node_views().values() {
        for recorded in &view.addresses {
            holders.entry(recorded.address()).or_default().push((view, recorded));
        }
    }
    for (address, holders) in holders.into_iter().filter(|(_, holders)| holders.len() > 1) {
        let names = listed(holders.iter().map(|(view, _)| &view.name));
        let summary = format!("{} nodes have address {address}: {names}", holders.len());
        let finding = look.found(Subject::Address(address), summary);
        for (view, recorded) in &holders {
            finding.seen(recorded.exhibit()).explains(FindingCode::NodeAddressWrong, &view.name);
            finding.explains(FindingCode::NodeAddressUnfit, &view.name);
            explain_ways(case, finding, &view.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_two_nodes() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let annotation = "projectcalico.org/IPv4Address".to_owned();
        let nodes = evidence.kube_nodes.as_mut().unwrap();
        nodes[0].seen.annotations.insert(annotation, "172.16.0.2/16".to_owned());
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "2 nodes have address 172.16.0.2: worker-0000, worker-0001"
        );
    }
}
