//! Reachable: routes look right, and packets do not arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::case::Tried;
use crate::checks::words::listed;
use crate::evidence::probe::Echo;
use crate::{Case, Check, Exhibit, Finding, Look, Need, Settles, Severity, Sighted, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "packets-lost",
    severity: Severity::Error,
    title: "Packets from one node to another do not arrive",
    explanation: "A node's routes to another node's pods look right, and yet nobody there answers it, while they do answer \
                  somebody else. The packets are lost on the way: a firewall or a security group between the nodes (IP in IP, \
                  VXLAN on UDP 4789), a switch or cloud that drops addresses it does not know, reverse path filtering, or a \
                  firewall on one of the two nodes. Only plumb doctor --probe looks for it, as that sends packets.",
    remedy: "follow a packet: tcpdump on the other node's card while this one pings; if it does not arrive, look between the nodes, \
             else at the other node's firewall and net.ipv4.conf.*.rp_filter",
    needs: &[&[Need::Probes]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.has_probes() {
        return;
    }
    let ways = Ways::tried(case);
    let cut_off = ways.cut_off();
    for node in &cut_off {
        let own = ways.lost.iter().filter(|lost| lost.from == *node || lost.to == *node);
        let there = own.clone().map(|lost| if lost.from == *node { lost.to } else { lost.from });
        let there: BTreeSet<&str> = there.collect();
        look.found(
            Subject::node(*node),
            format!("{node} is cut off: packets to and from {} are lost both ways", listed(there)),
        )
        .known_by("lost")
        .seen_all(own.flat_map(|lost| lost.exhibits()));
    }
    let is_told = |lost: &&Lost<'_>| cut_off.contains(lost.from) || cut_off.contains(lost.to);
    for lost in ways.lost.iter().filter(|lost| !is_told(lost)) {
        let addresses = listed(lost.echoes.iter().map(|(address, _)| address));
        let answers = if lost.echoes.len() == 1 { "answers" } else { "answer" };
        look.found(
            way(lost.from, lost.to),
            format!("packets from {} to {} are lost: {addresses} {answers} others", lost.from, lost.to),
        )
        .known_by("lost")
        .seen_all(lost.exhibits());
    }
}

/// A way on which packets are lost.
struct Lost<'e> {
    from: &'e str,
    to: &'e str,
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
    reached: BTreeSet<&'e str>,
}

impl<'e> Ways<'e> {
    fn tried(case: &Case<'e>) -> Ways<'e> {
        let mut ways = Ways { lost: Vec::new(), reached: BTreeSet::new() };
        let probed = case.evidence.nodes.values().filter(|node| node.setup.probed.is_some());
        for from in probed.map(|node| node.name.as_str()) {
            for to in case.node_views().values().map(|view| view.name) {
                match case.way(from, to) {
                    _ if to.eq_ignore_ascii_case(from) => {}
                    Some(Tried::Lost(echoes)) => ways.lost.push(Lost { from, to, echoes }),
                    Some(Tried::Arrived) => ways.reached.extend([from, to]),
                    None => {}
                }
            }
        }
        ways
    }

    /// Nodes from which nothing arrives and to which nothing does, if more than one other says so.
    fn cut_off(&self) -> BTreeSet<&'e str> {
        let mut ways: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for lost in &self.lost {
            ways.entry(lost.from).or_default().0 += 1;
            ways.entry(lost.to).or_default().1 += 1;
        }
        let lost = ways.into_iter().filter(|(_, (from, to))| *from > 1 && *to > 1).map(|(node, _)| node);
        lost.filter(|node| !self.reached.contains(node)).collect()
    }
}

pub(super) fn way(from: &str, to: &str) -> Subject {
    Subject::Way { node: from.to_owned(), to: to.to_owned() }
}

/// What is wrong with a node loses packets to it, and from it.
pub(in crate::checks) fn explain_losses(case: &Case<'_>, finding: &mut Finding, node: &str) {
    if !case.has_probes() {
        return;
    }
    finding.explains(CHECK.code, Subject::node(node));
    for other in case.node_views().values().filter(|other| !other.name.eq_ignore_ascii_case(node)) {
        finding.explains(CHECK.code, way(other.name, node)).explains(CHECK.code, way(node, other.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent, subjects};
    use crate::evidence::probe;
    use crate::sample::{node_address, node_name, record, small};
    use crate::{Evidence, Origin};

    /// Everybody gets an answer from everybody.
    fn probed() -> Evidence {
        let mut evidence = small();
        let (targets, _) = probe::targets(&evidence, &crate::Options::default());
        for node in evidence.nodes.values_mut() {
            let origin = Origin::probe(node.name.as_str(), "echo");
            let echo = |address: &IpAddr| (*address, Sighted::new(Echo::Answered, origin.clone()));
            node.setup.probed = Some(targets.iter().map(echo).collect());
        }
        evidence
    }

    fn echoes(evidence: &mut Evidence, node: usize) -> impl Iterator<Item = (&IpAddr, &mut Sighted<Echo>)> {
        evidence.node_mut(&node_name(node)).setup.probed.as_mut().unwrap().iter_mut()
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
            "worker-0001 is cut off: packets to and from worker-0000, worker-0002 are lost both ways"
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
        let routes = evidence.node_mut(&node_name(0)).kernel.routes.as_mut().unwrap();
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
        evidence.node_mut(&node_name(1)).attachments = None;
        silent(&CHECK, &evidence);
    }
}
