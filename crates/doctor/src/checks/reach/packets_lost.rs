//! Reachable: routes look right, and packets do not arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::NodeName;

use crate::case::Tried;
use crate::checks::words::listed;
use crate::{Case, Check, Finding, FindingCode, Look, Need, Subject};
use evidence::probe::Echo;
use evidence::{Exhibit, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Packets from one node to another are lost",
    explanation: "A node's routes to another node's pods look correct, but those pods do not reply to it, \
                  although they reply to other nodes. The packets are lost on the way. Possible causes are a \
                  firewall on one of the nodes, a firewall or security group between them (IPIP, or VXLAN on \
                  UDP port 4789), a switch or cloud network that drops unknown addresses, and reverse path \
                  filtering. Only plumb doctor --probe detects this, because it sends packets.",
    remedy: "run tcpdump on the other node's NIC while this node pings it. If the packets do not arrive, \
             check the network between the nodes; if they do, check the other node's firewall and \
             net.ipv4.conf.*.rp_filter",
    needs: &[&[Need::Probes]],
    ..Check::error(FindingCode::PacketsLost, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.has_probes() {
        return;
    }
    let ways = Ways::tried(case);
    let cut_off = ways.cut_off();
    for &node in &cut_off {
        let own = ways.lost.iter().filter(|lost| lost.from == *node || lost.to == *node);
        let there = own.clone().map(|lost| if lost.from == *node { &lost.to } else { &lost.from });
        let there: BTreeSet<&NodeName> = there.collect();
        look.found(node, format!("{node} is cut off: packets to and from {} are lost", listed(there)))
            .known_by("lost")
            .seen_all(own.flat_map(|lost| lost.exhibits()));
    }
    let is_told = |lost: &&Lost<'_>| cut_off.contains(&lost.from) || cut_off.contains(&lost.to);
    for lost in ways.lost.iter().filter(|lost| !is_told(lost)) {
        let addresses = listed(lost.echoes.iter().map(|(address, _)| address));
        let answers = if lost.echoes.len() == 1 { "answers" } else { "answer" };
        let summary =
            format!("packets from {} to {} are lost: {addresses} {answers} other nodes", lost.from, lost.to);
        look.found(way(&lost.from, &lost.to), summary).known_by("lost").seen_all(lost.exhibits());
    }
}

/// A way on which packets are lost.
struct Lost<'e> {
    from: NodeName,
    to: NodeName,
    echoes: Vec<(IpAddr, &'e Sighted<Echo>)>,
}

impl Lost<'_> {
    fn exhibits(&self) -> impl Iterator<Item = Exhibit> {
        self.echoes.iter().map(|(address, echo)| echo.exhibit(format!("{address}: {}", echo.seen)))
    }
}

/// Every way of which something can be told.
struct Ways<'e> {
    lost: Vec<Lost<'e>>,
    /// Nodes from or to which a packet arrived.
    reached: BTreeSet<NodeName>,
}

impl<'e> Ways<'e> {
    fn tried(case: &Case<'e>) -> Ways<'e> {
        let mut ways = Ways { lost: Vec::new(), reached: BTreeSet::new() };
        let probed = case.evidence.nodes.values().filter(|node| node.setup.probed.is_some());
        for from in probed.map(|node| &node.name) {
            for to in case.node_views().values().map(|view| &view.name) {
                match case.way(from, to) {
                    _ if to == from => {}
                    Some(Tried::Lost(echoes)) => {
                        ways.lost.push(Lost { from: from.clone(), to: to.clone(), echoes })
                    }
                    Some(Tried::Arrived) => ways.reached.extend([from.clone(), to.clone()]),
                    None => {}
                }
            }
        }
        ways
    }

    /// Nodes from which nothing arrives and to which nothing does, if more than one other says so.
    fn cut_off(&self) -> BTreeSet<&NodeName> {
        let mut ways: BTreeMap<&NodeName, (usize, usize)> = BTreeMap::new();
        for lost in &self.lost {
            ways.entry(&lost.from).or_default().0 += 1;
            ways.entry(&lost.to).or_default().1 += 1;
        }
        let lost = ways.into_iter().filter(|(_, (from, to))| *from > 1 && *to > 1).map(|(node, _)| node);
        lost.filter(|node| !self.reached.contains(*node)).collect()
    }
}

pub(super) fn way(from: &NodeName, to: &NodeName) -> Subject {
    Subject::Way { node: from.clone(), to: to.clone() }
}

/// What is wrong with a node loses packets to it, and from it.
pub(in crate::checks) fn explain_losses(case: &Case<'_>, finding: &mut Finding, node: &NodeName) {
    if !case.has_probes() {
        return;
    }
    finding.explains(CHECK.code, node);
    for other in case.node_views().values().filter(|other| other.name != *node) {
        finding.explains(CHECK.code, way(&other.name, node)).explains(CHECK.code, way(node, &other.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent, subjects};
    use evidence::sample::{node_address, node_name, record, small};
    use evidence::{Evidence, Origin};

    /// Everybody gets an answer from everybody.
    fn probed() -> Evidence {
        let mut evidence = small();
        let (targets, _) = crate::probe::targets(&evidence, &crate::Options::default());
        for node in evidence.nodes.values_mut() {
            let origin = Origin::probe(&node.name, "echo");
            let echo = |address: &IpAddr| (*address, Sighted::new(Echo::Answered, origin.clone()));
            node.setup.probed = Some(targets.iter().map(echo).collect());
        }
        evidence
    }

    fn echoes(evidence: &mut Evidence, node: usize) -> impl Iterator<Item = (&IpAddr, &mut Sighted<Echo>)> {
        evidence.node_mut(node_name(node)).setup.probed.as_mut().unwrap().iter_mut()
    }

    fn is_pod(address: &IpAddr) -> bool {
        address.to_string().starts_with("10.")
    }

    /// Nothing that the first sends to pods of the second arrives.
    fn lose(evidence: &mut Evidence) {
        let pods: Vec<IpAddr> =
            evidence.endpoints.as_ref().unwrap()[4..8].iter().map(|pod| pod.seen.addresses[0]).collect();
        for (address, echo) in echoes(evidence, 0) {
            if pods.contains(address) {
                echo.seen = Echo::Silent;
            }
        }
    }

    #[test]
    fn fires_where_only_one_gets_no_answer() {
        let mut evidence = probed();
        silent(&CHECK, &evidence);
        lose(&mut evidence);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "way worker-0000 to worker-0001");
        assert_eq!(finding.evidence.len(), 2, "{:?}", finding.evidence);
    }

    #[test]
    fn a_node_that_is_cut_off_is_one_finding() {
        let mut evidence = probed();
        let on_node = |evidence: &Evidence, node: usize| -> Vec<IpAddr> {
            let pods = evidence.endpoints.as_ref().unwrap()[node * 4..node * 4 + 4].iter();
            let pods = pods.map(|pod| pod.seen.addresses[0]);
            pods.chain([node_address(node)]).collect()
        };
        for (from, to) in [(0, 1), (2, 1), (1, 0), (1, 2)] {
            let there = on_node(&evidence, to);
            echoes(&mut evidence, from)
                .filter(|(address, _)| there.contains(address))
                .for_each(|(_, echo)| echo.seen = Echo::Silent);
        }
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "worker-0001 is cut off: packets to and from worker-0000, worker-0002 are lost"
        );
        // One way that works, and it is about ways again.
        let there = on_node(&evidence, 1);
        echoes(&mut evidence, 2)
            .filter(|(address, _)| there.contains(address))
            .for_each(|(_, echo)| echo.seen = Echo::Answered);
        assert_eq!(
            subjects(&CHECK, &evidence),
            [
                "way worker-0000 to worker-0001",
                "way worker-0001 to worker-0000",
                "way worker-0001 to worker-0002"
            ]
        );
    }

    #[test]
    fn a_node_that_answers_another_is_missed() {
        let mut evidence = probed();
        // No pod answers, as where pods do not answer pings.
        for node in 0..3 {
            echoes(&mut evidence, node)
                .filter(|(address, _)| is_pod(address))
                .for_each(|(_, echo)| echo.seen = Echo::Silent);
        }
        silent(&CHECK, &evidence);
        for (address, echo) in echoes(&mut evidence, 0) {
            if *address == node_address(1) {
                echo.seen = Echo::Unreachable { said_by: node_address(9) };
            }
        }
        assert_eq!(subjects(&CHECK, &evidence), ["way worker-0000 to worker-0001"]);
        // And where nobody gets an answer, the node does not answer pings.
        for node in 0..3 {
            echoes(&mut evidence, node).for_each(|(_, echo)| echo.seen = Echo::Silent);
        }
        silent(&CHECK, &evidence);
    }

    #[test]
    fn stays_silent_where_something_else_is_wrong_or_it_may_be_meant() {
        let mut evidence = probed();
        lose(&mut evidence);
        let routes = evidence.node_mut(node_name(0)).kernel.routes.as_mut().unwrap();
        routes.retain(|route| route.seen.destination.to_string() != "10.0.0.64/26");
        silent(&CHECK, &evidence);
        let mut evidence = probed();
        lose(&mut evidence);
        evidence.records.add(record(
            model::Kind::GlobalNetworkPolicy,
            "default.deny",
            serde_json::json!({"selector": "all()"}),
        ));
        only(&CHECK, &evidence);
        evidence.node_mut(node_name(1)).attachments = None;
        silent(&CHECK, &evidence);
    }
}
