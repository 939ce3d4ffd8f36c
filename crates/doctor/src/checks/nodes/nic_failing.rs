//! Node set-up: a NIC or its driver fails.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "A NIC or its driver fails",
    explanation: "The kernel reports that a NIC does not send what it was given. Packets are lost or wait for seconds while \
                  the driver starts the NIC again. Hardware, firmware, driver or the hypervisor's virtual NIC is at fault, \
                  not the pod network.",
    remedy: "update the NIC's firmware and driver, check cable and switch port, and switch offloads off to try \
             (ethtool -K DEVICE tso off gso off)",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::NicFailing, look)
};

const REPORT: Report = Report::of(Trouble::CardFailing);

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("a NIC of {place} fails to send"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "NETDEV WATCHDOG: eth0 (tg3): transmit queue 0 timed out";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(finding.summary, "a NIC of node n1 fails to send");
        silent(&CHECK, &said_otherwise());
    }
}
