//! In the pod: its gateway has no hardware address.

use std::net::IpAddr;

use plan::{V4_GATEWAY, V6_GATEWAY};

use super::{attachment, views, whose};
use crate::evidence::NodeEvidence;
use crate::evidence::kernel::{NeighbourState, PodView};
use crate::{Case, Check, Exhibit, Look, Need, Origin, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "pod-gateway-unresolved",
    severity: Severity::Error,
    title: "A pod does not reach its gateway",
    explanation: "Inside a pod the gateway (169.254.1.1, or a link-local address for IPv6) has no hardware \
                  address: the pod asked, and its node did not answer. No packet leaves the pod. The node \
                  answers only for pods whose device it has set up, so usually the device is another \
                  sandbox's, is not set up, or has no endpoint.",
    remedy: "look for the pod's endpoint and device on its node (proxy_arp of the device must be 1); \
             recreating the pod mends it",
    needs: &[&[Need::PodViews]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for (node, view) in views(case) {
        let Some((gateway, exhibit)) = unresolved(node, view) else { continue };
        let whose = whose(case, node, view);
        let finding = look.found(
            whose.subject.clone(),
            format!("{} on {} has no hardware address for its gateway {gateway}", whose.name, node.name)
                .replace(&format!("a pod on {0} on {0}", node.name), &format!("a pod on {}", node.name)),
        );
        finding.of_sandbox(view.container_id.as_deref());
        finding.seen(exhibit).because("no packet leaves the pod");
        if let Some(reason) = whose.reason {
            finding.because(reason);
        }
    }
}

/// Asked for without an answer, or, where our agent keeps a permanent entry, not there.
fn unresolved(node: &NodeEvidence, view: &PodView) -> Option<(IpAddr, Exhibit)> {
    let neighbours = view.kernel.neighbours.as_ref()?;
    for gateway in [V4_GATEWAY.into(), V6_GATEWAY.into()] {
        let known = neighbours.iter().find(|neighbour| neighbour.seen.address == gateway);
        if let Some(failed) = known.filter(|known| known.seen.state == NeighbourState::Missing) {
            return Some((gateway, failed.exhibit(format!("{gateway} is incomplete"))));
        }
    }
    let held = attachment(node, view).filter(|_| !view.kernel.partial.neighbours)?;
    let is_absent = |gateway: &IpAddr| {
        let is_used = held.addresses.iter().any(|address| address.is_ipv4() == gateway.is_ipv4());
        is_used && !neighbours.iter().any(|neighbour| neighbour.seen.address == *gateway)
    };
    let absent = [V4_GATEWAY.into(), V6_GATEWAY.into()].into_iter().find(is_absent)?;
    let origin = Origin::probe(node.name.as_str(), "neighbours of the pod");
    Some((absent, origin.exhibit(format!("none for {absent}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_an_entry_without_answer() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let views = evidence.node_mut("worker-0000").pod_views.as_mut().unwrap();
        views[0].kernel.neighbours.as_mut().unwrap()[0].seen.state = NeighbourState::Missing;
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "pod team-0/web-0 on worker-0000 has no hardware address for its gateway 169.254.1.1"
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
        assert_eq!(
            finding.summary,
            "a pod on worker-0000 has no hardware address for its gateway 169.254.1.1"
        );
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
