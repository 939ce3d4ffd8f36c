//! In the pod: no default route.

use super::{versions, views, whose};
use crate::{Case, Check, Look, Need, Origin, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "pod-default-route-missing",
    severity: Severity::Error,
    title: "A pod without a default route",
    explanation: "Inside a pod there is no default route, so it reaches nobody: not its node, not other \
                  pods, not the world. Somebody in the pod removed it, or the plugin was stopped halfway.",
    remedy: "recreate the pod, or inside it: ip route add 169.254.1.1 dev eth0 scope link; ip route add \
             default via 169.254.1.1",
    needs: &[&[Need::PodViews]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for (node, view) in views(case) {
        let Some(routes) = view.kernel.routes.as_ref().filter(|_| !view.kernel.partial.routes) else {
            continue;
        };
        let (needs_v4, needs_v6) = versions(case, view);
        let has = |v4: bool| {
            routes.iter().any(|route| {
                route.seen.destination.prefix_len() == 0 && route.seen.destination.addr().is_ipv4() == v4
            })
        };
        // `ip route` prints one version: silence about the other says nothing unless it was asked for.
        let knows_v6 = routes.iter().any(|route| route.seen.destination.addr().is_ipv6());
        let missing = match (needs_v4 && !has(true), needs_v6 && knows_v6 && !has(false)) {
            (true, _) => "IPv4",
            (false, true) => "IPv6",
            _ => continue,
        };
        let whose = whose(case, node, view);
        let finding =
            look.found(whose.subject.clone(), format!("{} has no default route for {missing}", whose.name));
        finding.of_sandbox(view.container_id.as_deref());
        let origin = routes.first().map_or_else(
            || Origin::probe(node.name.as_str(), "routes of the pod"),
            |route| route.origin.clone(),
        );
        finding.seen(origin.exhibit(format!("{} routes, none of them a default", routes.len())));
        if let Some(reason) = whose.reason {
            finding.because(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_where_all_routes_are_known() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let views = evidence.node_mut("worker-0000").pod_views.as_mut().unwrap();
        views[0].kernel.routes.as_mut().unwrap().remove(0);
        assert_eq!(only(&CHECK, &evidence).summary, "pod team-0/web-0 has no default route for IPv4");
        evidence.node_mut("worker-0000").pod_views.as_mut().unwrap()[0].kernel.partial.routes = true;
        silent(&CHECK, &evidence);
    }
}
