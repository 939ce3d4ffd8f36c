//! Node set-up: Felix cannot make its tunnel device.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Felix cannot make its tunnel device",
    explanation: "Felix fails again and again to make or configure vxlan.calico or tunl0. Pods of this node and pods of \
                  other nodes do not reach each other. Another VXLAN device with the same VNI and port (flannel's or \
                  another Calico's), a missing kernel module, or an address that the kernel refuses are the usual causes.",
    remedy: "read Felix's error: remove the other device (ip -d link show type vxlan), load the module (modprobe vxlan \
             or ipip), or choose another vxlanVNI or vxlanPort in FelixConfiguration",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::TunnelNotMade, look)
};

const REPORT: Report = Report {
    least: 2,
    passes: true,
    explains: &[FindingCode::CalicoNodeNotReady],
    ..Report::of(Trouble::TunnelNotMade)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("Felix cannot make its tunnel device on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Failed to configure VXLAN tunnel device, retrying... error=file exists";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(finding.summary, "Felix cannot make its tunnel device on node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
