//! Node set-up: NetworkManager manages devices of pods or tunnels.

use crate::case::Told;
use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Another program manages devices of pods or tunnels",
    explanation: "NetworkManager or systemd-networkd configures devices of Calico. It gives them addresses by DHCP, takes \
                  their routes away or sets them down, so pods lose their network without any change in Calico. It has to \
                  be told to leave these devices alone.",
    remedy: "write /etc/NetworkManager/conf.d/calico.conf with [keyfile] unmanaged-devices=interface- \
             name:cali*;interface-name:tunl*;interface-name:vxlan.calico;interface-name:wireguard.cali, then restart \
             NetworkManager and calico-node",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::DevicesManagedByOthers, look)
};

const REPORT: Report =
    Report { explains: &[FindingCode::CalicoNodeNotReady], ..Report::of(Trouble::DevicesManaged) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let is_networkd =
        |told: &Told| told.message.contains("networkd") || told.message.contains("Configuring with");
    let is_networkd = case.told_of(Trouble::DevicesManaged).iter().any(is_networkd);
    let program = if is_networkd { "systemd-networkd" } else { "NetworkManager" };
    let finding = REPORT.tell(case, look, |place| format!("{program} manages devices of Calico on {place}"));
    if let Some(finding) = finding.filter(|_| is_networkd) {
        finding.remedy(
            "write /etc/systemd/network/05-calico.network with [Match] Name=cali* tunl0 vxlan.calico wireguard.cali \
             and [Link] Unmanaged=yes, set ManageForeignRoutes=no and ManageForeignRoutingPolicyRules=no in \
             /etc/systemd/networkd.conf, then restart systemd-networkd and calico-node",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "<info> [1700000000.1] device (cali1a2b3c4d5e6): Activation: starting connection 'Wired connection 3' (uuid)";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(finding.summary, "NetworkManager manages devices of Calico on node n1");
        silent(&CHECK, &said_otherwise());
    }
}
