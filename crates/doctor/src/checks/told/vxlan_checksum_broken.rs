//! Reported by others: checksums of tunnelled packets are wrong.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::checks::named::Report;
use crate::checks::words::listed;
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
    let senders: BTreeSet<String> = case
        .told_of(Trouble::ChecksumBroken)
        .iter()
        .filter_map(|told| sender_of(&told.message))
        .map(|address| sender(case, address))
        .collect();
    let finding = REPORT.tell(case, look, |_| match senders.is_empty() {
        true => "VXLAN packets arrive with a wrong checksum".to_owned(),
        false => format!("VXLAN packets of {} arrive with a wrong checksum", listed(&senders)),
    });
    if let Some(finding) = finding {
        finding.known_by("checksum");
    }
}

/// `10.0.10.14.7103 > 10.0.10.10.4789: …`: an address and a port.
fn sender_of(message: &str) -> Option<IpAddr> {
    let (before, _) = message.split_once(" > ")?;
    before.split_whitespace().last()?.rsplit_once('.')?.0.parse().ok()
}

fn sender(case: &Case<'_>, address: IpAddr) -> String {
    let is_its = |view: &&crate::NodeView<'_>| view.internal_ips().any(|own| own == address);
    match case.node_views().values().find(is_its) {
        Some(view) => format!("{} ({address})", view.name),
        None => address.to_string(),
    }
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
