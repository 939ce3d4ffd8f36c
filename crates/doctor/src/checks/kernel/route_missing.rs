//! Kernel agrees: an endpoint's address has no route.

use plan::DifferenceKind;

use super::{Fault, faults, route_subject};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need};
use evidence::Origin;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod's address has no route on its node",
    explanation: "The node that runs a pod has no route to the pod's address. Packets to it follow a less \
                  specific route, usually out of the node again or into a blackhole. The pod cannot be \
                  reached, and replies to its own packets do not arrive.",
    remedy: "wait for the agent to restore the route, run plumb repair finding route-missing --apply, or on \
             the node: ip route replace ADDRESS dev DEVICE scope link",
    needs: &[&[Need::Endpoints, Need::Routes]],
    ..Check::error(FindingCode::RouteMissing, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for fault in faults(case) {
        let DifferenceKind::RouteMissing { route } = &fault.difference.kind else { continue };
        let Fault { host, endpoint, .. } = fault;
        if !host.routes_to(route.destination).is_empty() {
            continue;
        }
        let (place, address) = (host.name(), route.destination.addr());
        let really = match host.route_for(address) {
            Some(route) => format!("packets to it follow {}", route.seen),
            None => "packets to it have no route at all".to_owned(),
        };
        let summary = format!("{place} has no route to {address} of endpoint {}", endpoint.seen);
        look.found(route_subject(host, address), summary)
            .of_sandbox(endpoint.seen.container_id.as_deref())
            .because(really)
            .remedy(format!("wait for the agent to restore it, or run on {place}"))
            .command(fault.command())
            .seen(endpoint_exhibit(endpoint))
            .seen(Origin::probe(place, "routes").exhibit(format!("none to {address}")));
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
        evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap().remove(2);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "route 10.0.0.0/32 on worker-0000");
        assert_eq!(finding.cause, ["packets to it follow blackhole 10.0.0.0/26"]);
        evidence.node_mut("worker-0000").kernel.partial.routes = true;
        silent(&CHECK, &evidence);
    }
}
