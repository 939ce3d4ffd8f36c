//! Node set-up: kernel refuses packets for their source.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kernel refuses packets for their source",
    explanation: "The kernel logs packets whose source address it would not look for on that device, and drops them \
                  (rp_filter). Traffic comes in through another NIC than it goes out: the node has two NICs in one network, \
                  its address for Calico is on the wrong one, or the fabric routes the two directions differently.",
    remedy: "compare the device in the log with ip route get ADDRESS; make both directions use one NIC \
             (IP_AUTODETECTION_METHOD, routes), or set rp_filter to 0 or 2 on that NIC",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::MartianPackets, look)
};

const REPORT: Report = Report { least: 3, ..Report::of(Trouble::MartianPackets) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("the kernel refuses packets on {place} because their source belongs behind another device")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "IPv4: martian source 10.244.1.5 from 10.244.2.3, on dev eth1";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 3));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(
            finding.summary,
            "the kernel refuses packets on node n1 because their source belongs behind another device"
        );
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 2));
    }
}
