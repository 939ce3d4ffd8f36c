//! Reported by others: only small packets arrive.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Large packets are lost on the way",
    explanation: "Small packets arrive and large ones do not, and no router says why. A part of the way has a \
                  smaller MTU than the tunnel and the pods assume, and the ICMP messages that would tell are \
                  blocked: a VPN between sites, a cloud's network, a switch without jumbo frames. Connections open \
                  and then hang, TLS handshakes among them.",
    remedy: "find the largest size that arrives (ping -M do -s SIZE), and set the MTU in FelixConfiguration or the \
             Installation to that size plus 28, less the tunnel's header (VXLAN 50, IPIP 20, WireGuard 60); or let \
             ICMP type 3 code 4 through",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::LargePacketsLost, look)
};

const REPORT: Report = Report::of(Trouble::LargePacketsLost);

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("large packets from {place} are lost, small ones arrive"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "ping: large packets are lost: 1428 bytes to 10.0.1.7, while 84 bytes arrive";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
