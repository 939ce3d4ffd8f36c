//! Reported by others: a port is taken.

use std::collections::BTreeSet;

use crate::checks::named::Report;
use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Port of a network program is already in use",
    explanation: "A program of the network cannot open its port because another one on the same machine has it. It \
                  starts again and again: calico-node needs 9099 on the local address and 179 for BGP, Typha 5473, \
                  NodeLocal DNS port 53 of its own address.",
    remedy: "ss -lntup on the node shows who has the port; stop that program or let it listen on its own address \
             only, or move ours (healthPort in FelixConfiguration, for one)",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::PortTaken, look)
};

const REPORT: Report = Report {
    explains: &[FindingCode::CalicoNodeNotReady, FindingCode::DnsFailing],
    ..Report::of(Trouble::PortTaken)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let told = case.told_of(Trouble::PortTaken);
    let ports: BTreeSet<String> = told.iter().filter_map(|told| address_of(&told.message)).collect();
    let finding = REPORT.tell(case, look, |place| format!("{} is already in use on {place}", listed(&ports)));
    let Some(finding) = finding else { return };
    let port = |address: &String| address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    for node in case.all_nodes() {
        let is_there = told.iter().any(|told| told.node.as_ref().is_none_or(|place| *place == node.name));
        let owners = node.setup.port_owners.iter().flatten();
        for (port, owner) in
            owners.filter(|(held, _)| is_there && ports.iter().any(|told| port(told) == Some(**held)))
        {
            finding.because(format!("{} has port {port} on {}", owner.seen, node.name));
            finding.seen(owner.exhibit(format!("port {port}: {}", owner.seen)));
        }
    }
}

/// `169.254.25.10:53` in `listen tcp 169.254.25.10:53: bind: …`.
fn address_of(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("listen ")?;
    let address = rest.split_whitespace().nth(1)?.trim_end_matches(':');
    address.contains(':').then(|| address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "listen tcp 127.0.0.1:9099: bind: address already in use";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
