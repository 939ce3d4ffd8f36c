//! One owner: a node's tunnel has an address that a pod or another tunnel has, too.

use ::ipam::check::{Problem, User};

use super::{problems, user_exhibits};
use crate::checks::words::listed;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Tunnel address is used twice",
    explanation: "The address of a node's tunnel device (IPIP, VXLAN or WireGuard) is also used by a pod or \
                  by another node's tunnel. Packets for one are delivered to the other. This happens when a \
                  node is deleted and recreated, and its old address was allocated to a pod in between.",
    remedy: "run plumb repair ipam --apply, or remove the tunnel address from the Node record, so that the \
             node allocates a new one at its next start",
    needs: &[&[Need::Ipam, Need::Record(model::Kind::Node)], &[Need::Ipam, Need::KubeNodes]],
    ..Check::error(FindingCode::TunnelAddressShared, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for problem in problems(case) {
        let Problem::SeveralUsers { address, users } = problem else { continue };
        let tunnels: Vec<&str> = users
            .iter()
            .filter_map(|user| match user {
                User::Tunnel { node, .. } => Some(node.as_str()),
                _ => None,
            })
            .collect();
        // Node and tunnel twice under one name: two tunnels of a node may have one address each, never the same.
        if tunnels.is_empty() {
            continue;
        }
        let finding = look.found(*address, format!("{address} is used by {}", listed(users)));
        finding.seen_all(user_exhibits(case, *address));
        for node in tunnels {
            if let Some(record) = case.node_view(&node.into()).and_then(|view| view.record) {
                finding.seen(record.exhibit(format!("Node({node}) has {address} as a tunnel address")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    fn set_tunnel(evidence: &mut evidence::Evidence, node: usize, address: &str) {
        let annotation = "projectcalico.org/IPv4VXLANTunnelAddr".to_owned();
        let kube = &mut evidence.kube_nodes.as_mut().unwrap()[node].seen;
        kube.annotations.insert(annotation, json!(address).as_str().unwrap().to_owned());
    }

    #[test]
    fn fires_for_a_pod_and_a_tunnel() {
        let mut evidence = small();
        set_tunnel(&mut evidence, 1, "10.0.0.70");
        silent(&CHECK, &evidence);
        set_tunnel(&mut evidence, 1, "10.0.0.0");
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "10.0.0.0");
        assert!(finding.summary.contains("vxlanTunnelAddress of node worker-0001"), "{}", finding.summary);
    }
}
