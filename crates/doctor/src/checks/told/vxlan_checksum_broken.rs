//! Reported by others: checksums of tunnelled packets are wrong.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "VXLAN packets arrive with a wrong checksum",
    explanation: "Packets of the tunnel arrive with an outer checksum that is wrong, and the receiver drops them. \
                  A NIC, its driver or the kernel is to compute it when they are sent (offload) and does not: \
                  pings pass, TCP and DNS do not. VMware's vmxnet3 with port 4789 and kernels before 5.7 are known \
                  for it.",
    remedy: "set featureDetectOverride: ChecksumOffloadBroken=true in FelixConfiguration default, or on each \
             sending node ethtool -K vxlan.calico tx-checksum-ip-generic off",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::VxlanChecksumBroken, look)
};

const REPORT: Report = Report { is_of_cluster: true, ..Report::of(Trouble::ChecksumBroken) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |_| "VXLAN packets arrive with a wrong checksum".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "10.0.10.14.7103 > 10.0.10.10.4789: [bad udp cksum 0xbd67 -> 0x4e7f!] VXLAN, flags [I] (0x08), vni 4096";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "cluster");
        silent(&CHECK, &said_otherwise());
    }
}
