//! Node set-up: NetworkManager manages devices of pods or tunnels.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::NodeName;

use crate::case::Told;
use crate::checks::named::Report;
use crate::checks::words::listed;
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
    let Some(finding) = finding else { return };
    finding.because_all(pods_without_route(case));
    if is_networkd {
        finding.remedy(
            "write /etc/systemd/network/05-calico.network with [Match] Name=cali* tunl0 vxlan.calico wireguard.cali \
             and [Link] Unmanaged=yes, set ManageForeignRoutes=no and ManageForeignRoutingPolicyRules=no in \
             /etc/systemd/networkd.conf, then restart systemd-networkd and calico-node",
        );
    }
}

/// Pods of the nodes that it was reported of to which no route is left.
fn pods_without_route(case: &Case<'_>) -> Vec<String> {
    let nodes: BTreeSet<&NodeName> =
        case.told_of(Trouble::DevicesManaged).iter().filter_map(|told| told.node.as_ref()).collect();
    let mut lost = Vec::new();
    for host in case.hosts().iter().filter(|host| nodes.contains(host.name())) {
        let kernel = &host.node.kernel;
        let Some(routes) = kernel.routes.as_ref().filter(|_| !kernel.partial.routes) else { continue };
        let is_routed = |address: IpAddr| {
            routes.iter().any(|route| {
                let net = route.seen.destination;
                net.prefix_len() == net.max_prefix_len() && net.addr() == address
            })
        };
        let pods = case.pods_on(host.name()).filter(|pod| {
            let (pod, addresses) = (&pod.seen, &pod.seen.addresses);
            pod.status == "Running" && !case.is_on_host_network(pod) && !addresses.is_empty()
        });
        let without = pods.filter(|pod| !pod.seen.addresses.iter().any(|address| is_routed(*address)));
        let named: Vec<String> =
            without.map(|pod| format!("{} ({})", pod.seen.name, listed(&pod.seen.addresses))).collect();
        if !named.is_empty() {
            lost.push(format!("no route is left on {} to {}", host.name(), listed(&named)));
        }
    }
    lost
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
