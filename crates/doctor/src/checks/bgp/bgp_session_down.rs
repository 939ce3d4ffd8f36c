//! Reachable: a BGP session that is not established.

use std::collections::BTreeMap;

use ipnet::IpNet;
use model::NodeName;

use super::{called, missed_sessions, node_at};
use crate::checks::reach::node_blocks;
use crate::{Case, Check, Finding, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "BGP session is not established",
    explanation: "Two nodes, or a node and a router, have no BGP session. Neither learns the other's routes, \
                  so pods on one side cannot reach pods on the other unless there is another path.",
    remedy: "check that each side reaches the other's address on port 179, and that AS numbers and passwords \
             match",
    needs: &[&[Need::Bgp], &[Need::Events], &[Need::Log]],
    ..Check::error(FindingCode::BgpSessionDown, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut blocks: Blocks = BTreeMap::new();
    for (_, net, owner) in node_blocks(case) {
        blocks.entry(owner).or_default().push(net);
    }
    for session in missed_sessions(case) {
        let (node, peer) = (session.node, session.peer);
        let other = node_at(case, peer);
        let whose = other.map_or_else(String::new, |other| format!(" ({other})"));
        let words = session.words.join("; ");
        let summary = format!("{} has no BGP session with {peer}{whose}: {words}", called(case, &node));
        let finding = look.found(Subject::session(&node, peer), summary);
        // What BIRD says of it moves from look to look.
        finding.known_by("down");
        finding.explains(FindingCode::CalicoNodeNotReady, &node).seen_all(session.exhibits);
        if let Some(other) = other {
            explain_routes(&blocks, finding, &node, other);
            explain_routes(&blocks, finding, other, &node);
            // The same session, as the other side sees it.
            let own = case.node_view(&node).into_iter().flat_map(|view| view.addresses.iter());
            for address in own.map(|recorded| recorded.address()) {
                finding.explains(FindingCode::BgpSessionDown, Subject::session(other, address));
            }
            finding.explains(FindingCode::CalicoNodeNotReady, other);
        }
    }
}

type Blocks = BTreeMap<NodeName, Vec<IpNet>>;

/// The blocks of one are not learned by the other.
fn explain_routes(blocks: &Blocks, finding: &mut Finding, owner: &NodeName, learner: &NodeName) {
    for destination in blocks.get(owner).into_iter().flatten() {
        let subject = Subject::route(learner, *destination);
        finding.explains(FindingCode::BlockRouteMissing, subject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;
    use evidence::{Event, Evidence, Origin, Sighted};

    /// Somebody pasted the answer alone.
    #[test]
    fn fires_for_a_node_that_nobody_named() {
        let text = "Calico process is running.\n\nIPv4 BGP status\n\
            | PEER ADDRESS |     PEER TYPE     | STATE |   SINCE    |    INFO     |\n\
            | 10.0.0.11    | node-to-node mesh | up    | 2023-05-01 | Established |\n";
        silent(&CHECK, &intake::read([("status.txt", text.as_bytes())]));
        let text = text.replace("Established", "Active     ");
        let finding = only(&CHECK, &intake::read([("status.txt", text.as_bytes())]));
        assert!(
            finding.summary.starts_with("the node of status.txt has no BGP session with 10.0.0.11"),
            "{finding:?}"
        );
    }

    #[test]
    fn fires_for_what_bird_says() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let session = &mut evidence.node_mut("worker-0000").bgp.as_mut().unwrap().sessions[0].seen;
        (session.state, session.info) = ("start".to_owned(), "Passive".to_owned());
        let finding = only(&CHECK, &evidence);
        assert!(
            finding.summary.starts_with("worker-0000 has no BGP session with 172.16.0.2 (worker-0001): "),
            "{}",
            finding.summary
        );
        assert!(finding.summary.contains("waiting for the other side"), "{}", finding.summary);
    }

    #[test]
    fn fires_for_a_readiness_probe_and_reads_through_its_date() {
        let message = "Readiness probe failed: calico/node is not ready: BIRD is not ready: BGP not \
                       established with 10.0.0.662020-05-27 03:45:40.461 [INFO][17547] health.go 156: \
                       Number of node(s) with BGP peering established = 0";
        let event =
            Event { node: Some("a".into()), message: message.to_owned(), count: 3, ..Event::default() };
        let events = Some(vec![Sighted::new(event, Origin::line("e.txt", 4, "…"))]);
        let finding = only(&CHECK, &Evidence { events, ..Evidence::default() });
        assert_eq!(finding.subject.to_string(), "BGP session a to 10.0.0.66");
    }
}
