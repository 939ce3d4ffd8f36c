//! Reported by others: a link goes up and down.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "NIC loses its link again and again",
    explanation: "The kernel reports several times that a NIC, or a part of a bond, has no link. While it is down \
                  packets are lost, BGP sessions end and addresses may move. Cable, transceiver, switch port or a \
                  wrong bonding mode is at fault.",
    remedy: "check the switch port's counters, the cable and ethtool DEVICE; for bonds also cat \
             /proc/net/bonding/BOND and the switch's LACP state",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::LinkFlaps, look)
};

const REPORT: Report =
    Report { least: 3, explains: &[FindingCode::BgpSessionDown], ..Report::of(Trouble::LinkFlaps) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("a NIC of {place} loses its link again and again"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 3));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 2));
    }
}
