//! In the pod: no default route.

use plan::DifferenceKind;

use super::{ends, origin, tell, whose};
use crate::case::PodEnd;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod has no default route",
    explanation: "A pod has no default route, so it can reach nothing: not its node, not other pods and \
                  nothing outside. A process in the pod removed it, or the plugin was interrupted.",
    remedy: "run plumb repair finding pod-default-route-missing --apply, or recreate the pod, or inside it: \
             ip route add 169.254.1.1 dev eth0 scope link; ip route add default via 169.254.1.1",
    needs: &[&[Need::PodViews]],
    ..Check::error(FindingCode::PodDefaultRouteMissing, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for PodEnd { node, view, differences } in ends(case) {
        let default = differences.iter().find_map(|difference| match &difference.kind {
            DifferenceKind::RouteMissing { route } if route.destination.prefix_len() == 0 => Some(route),
            _ => None,
        });
        let Some(default) = default else { continue };
        let missing = if default.destination.addr().is_ipv4() { "IPv4" } else { "IPv6" };
        let whose = whose(case, node, view);
        let routes = view.kernel.routes.as_ref();
        let words = format!("{} routes, none of them a default route", routes.map_or(0, Vec::len));
        let summary = format!("{} has no default route for {missing}", whose.name);
        let exhibit = origin(routes, node, "routes of the pod").exhibit(words);
        tell(look, &whose, view, summary).seen(exhibit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

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
