//! Reported by others: the firewall's log shows what it drops.

use crate::checks::named::Report;
use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Firewall's log shows blocked packets of the network",
    explanation: "The node's firewall (ufw, firewalld) writes into the kernel's log which packets it blocks, and \
                  those of the pod network are among them: VXLAN (UDP port 4789, flannel's 8472), BGP (TCP port \
                  179), Typha (TCP port 5473) or IPIP (protocol 4).",
    remedy: "allow the packets from the other nodes: ufw allow from NODES to any port 4789 proto udp, or \
             firewall-cmd --permanent --add-port=4789/udp (179/tcp and 5473/tcp likewise), then reload the \
             firewall",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::FirewallLogBlocks, look)
};

const REPORT: Report = Report {
    explains: &[FindingCode::TunnelDropped, FindingCode::BgpSessionDown, FindingCode::PeerPacketsDropped],
    ..Report::of(Trouble::FirewallLog)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    const KINDS: [(&str, &str); 5] = [
        ("DPT=4789 ", "VXLAN (UDP port 4789)"),
        ("DPT=8472 ", "VXLAN of flannel or Cilium (UDP port 8472)"),
        ("DPT=179 ", "BGP (TCP port 179)"),
        ("DPT=5473 ", "Typha (TCP port 5473)"),
        ("PROTO=4 ", "IPIP (protocol 4)"),
    ];
    let told = case.told_of(Trouble::FirewallLog);
    let is_told = |sign: &str| told.iter().any(|told| told.message.contains(sign));
    let kinds: Vec<&str> = KINDS.iter().filter(|(sign, _)| is_told(sign)).map(|(_, kind)| *kind).collect();
    REPORT.tell(case, look, |place| {
        format!("packets of {} are dropped by the firewall of {place}", listed(&kinds))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str =
        "[UFW BLOCK] IN=eno1 OUT= SRC=192.0.2.1 DST=192.0.2.3 PROTO=UDP SPT=50133 DPT=4789 LEN=114";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
