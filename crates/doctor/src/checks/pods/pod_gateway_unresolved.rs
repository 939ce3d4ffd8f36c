//! In the pod: its gateway has no hardware address.

use plan::DifferenceKind;

use super::{ends, whose};
use crate::case::PodEnd;
use crate::{Case, Check, FindingCode, Look, Need};
use evidence::Origin;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod cannot resolve its gateway",
    explanation: "Inside a pod, the gateway (169.254.1.1, or a link-local address for IPv6) has no MAC \
                  address: the node did not answer the pod's request, or the permanent entry is missing. No \
                  packet leaves the pod. The node answers only for devices that it has set up, so usually \
                  the device belongs to another sandbox, is not set up, or has no endpoint.",
    remedy: "run plumb repair finding pod-gateway-unresolved --apply, or recreate the pod. To find the \
             cause, check the pod's endpoint and its device on the node (proxy_arp of the device must be 1)",
    needs: &[&[Need::PodViews]],
    ..Check::error(FindingCode::PodGatewayUnresolved, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for PodEnd { node, view, differences } in ends(case) {
        // One that did not answer tells more than one that is absent.
        let unresolved = differences.iter().filter_map(|difference| match &difference.kind {
            DifferenceKind::NeighbourUnresolved { address } => Some((0, *address)),
            DifferenceKind::NeighbourMissing { neighbour, .. } => Some((1, neighbour.address)),
            _ => None,
        });
        let Some((_, gateway)) = unresolved.min() else { continue };
        let mut known = view.kernel.neighbours.iter().flatten();
        let exhibit = match known.find(|known| known.seen.address == gateway) {
            Some(failed) => failed.exhibit(format!("{gateway} is incomplete")),
            None => Origin::probe(node.name.as_str(), "neighbours of the pod")
                .exhibit(format!("none for {gateway}")),
        };
        let whose = whose(case, node, view);
        let summary = format!("{} on {} has no MAC address for its gateway {gateway}", whose.name, node.name)
            .replace(&format!("a pod on {0} on {0}", node.name), &format!("a pod on {}", node.name));
        let finding = look.found(whose.subject.clone(), summary);
        finding.of_sandbox(view.container_id.as_deref());
        finding.seen(exhibit).because("no packet leaves the pod").because_all(whose.reason);
    }
}

#[cfg(test)]
mod tests {
    use plan::V6_GATEWAY;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::kernel::NeighbourState;
    use evidence::sample::small;

    #[test]
    fn fires_for_an_entry_without_answer() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let views = evidence.node_mut("worker-0000").pod_views.as_mut().unwrap();
        views[0].kernel.neighbours.as_mut().unwrap()[0].seen.state = NeighbourState::Missing;
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "pod team-0/web-0 on worker-0000 has no MAC address for its gateway 169.254.1.1"
        );
    }

    #[test]
    fn a_view_without_a_name_is_the_only_pods_or_the_nodes() {
        let mut evidence = small();
        let views = evidence.node_mut("worker-0000").pod_views.as_mut().unwrap();
        views.truncate(1);
        views[0].pod = None;
        views[0].kernel.neighbours.as_mut().unwrap()[0].seen.state = NeighbourState::Missing;
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "node worker-0000");
        assert_eq!(finding.summary, "a pod on worker-0000 has no MAC address for its gateway 169.254.1.1");
        evidence.pods.as_mut().unwrap().drain(1..4);
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "pod team-0/web-0");
    }

    #[test]
    fn an_absent_entry_counts_only_where_it_is_permanent() {
        let mut evidence = small();
        let node = evidence.node_mut("worker-0000");
        node.pod_views.as_mut().unwrap()[0].kernel.neighbours = Some(Vec::new());
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "pod team-0/web-0");
        evidence.node_mut("worker-0000").attachments = None;
        silent(&CHECK, &evidence);
    }

    #[test]
    fn each_ip_version_has_its_gateway() {
        let mut evidence = small();
        let node = evidence.node_mut("worker-0000");
        let id = node.pod_views.as_ref().unwrap()[0].container_id.clone().unwrap();
        let attachments = node.attachments.as_mut().unwrap().iter_mut();
        for held in attachments.filter(|held| held.seen.container_id == id) {
            held.seen.addresses.push("fd00::7".parse().unwrap());
        }
        let found = only(&CHECK, &evidence);
        assert!(found.summary.ends_with(&format!("its gateway {V6_GATEWAY}")), "{}", found.summary);
    }
}
