//! Reachable: a node that does not answer another one on their common network.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::NodeName;

use super::packets_lost::explain_losses;
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::kernel::NeighbourState;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node gets no answer from another on their common network",
    explanation: "A node asks for the hardware address of another node (ARP, or neighbour discovery) and gets no answer, \
                  although Kubernetes holds the other one for ready. Nothing passes between the two: no BGP, no tunnel, no \
                  packet of a pod. A VLAN that is missing on a switch port, isolated ports of a hypervisor or a cloud, a \
                  wrong netmask or two machines with one hardware address are the usual causes.",
    remedy: "ping and arping the other node from this one, and look with tcpdump arp on both: if the question does not \
             arrive, check VLANs, port isolation and netmasks on the way",
    needs: &[&[Need::Neighbours, Need::KubeNodes]],
    ..Check::error(FindingCode::NodeNeighbourLost, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut owners: BTreeMap<IpAddr, &NodeName> = BTreeMap::new();
    for view in case.node_views().values() {
        let is_ready = view.kube.iter().any(|node| node.seen.is_ready() == Some(true));
        owners.extend(view.internal_ips().filter(|_| is_ready).map(|address| (address, &view.name)));
    }
    for host in case.hosts() {
        for neighbour in host.neighbours().filter(|neighbour| neighbour.seen.state == NeighbourState::Missing)
        {
            let (address, device) = (neighbour.seen.address, &neighbour.seen.device);
            let Some(other) = owners.get(&address).filter(|other| ***other != *host.name()) else { continue };
            let name = host.name();
            let summary = format!("{name} gets no answer from node {other} ({address}) on {device}");
            let finding = look.found(Subject::neighbour(name, address, device.clone()), summary);
            finding
                .explains(FindingCode::BgpSessionDown, Subject::session(name, address))
                .seen(neighbour.exhibit(format!("{address} dev {device}: no answer")));
            for route in host.routes().filter(|route| route.seen.via == Some(address)) {
                let route = Subject::route(name, route.seen.destination);
                finding.explains(FindingCode::RouteGatewayUnreachable, route);
            }
            explain_losses(case, finding, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::kernel::Neighbour;
    use evidence::sample::{node_address, small};
    use evidence::{Origin, Sighted};

    #[test]
    fn fires_for_a_ready_node_alone() {
        let with = |address: IpAddr| {
            let mut evidence = small();
            let neighbour = Neighbour {
                address,
                device: "eth0".to_owned(),
                state: NeighbourState::Missing,
                mac: None,
                is_proxy: false,
            };
            let known = evidence.node_mut("worker-0000").kernel.neighbours.get_or_insert_default();
            known.push(Sighted::new(neighbour, Origin::file("neigh")));
            evidence
        };
        silent(&CHECK, &with("172.16.9.9".parse().unwrap()));
        let finding = only(&CHECK, &with(node_address(1)));
        assert_eq!(
            finding.subject.to_string(),
            format!("neighbour {} at eth0 on worker-0000", node_address(1))
        );
        let mut evidence = with(node_address(1));
        evidence.kube_nodes.as_mut().unwrap()[1].seen.conditions[0].status = "Unknown".to_owned();
        silent(&CHECK, &evidence);
    }
}
