//! Kernel agrees: the route to an endpoint's address leads elsewhere.

use plan::DifferenceKind;

use super::{Fault, faults, route_subject};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Route to a pod points to the wrong device",
    explanation: "The node's route to a pod's address points to a different device from the one in its \
                  endpoint record. Traffic for the pod goes to another pod or is lost.",
    remedy: "wait for the agent to fix the route, run plumb repair finding route-to-wrong-device --apply, or \
             on the node: ip route replace ADDRESS dev DEVICE scope link",
    needs: &[&[Need::Endpoints, Need::Routes]],
    ..Check::error(FindingCode::RouteToWrongDevice, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for fault in faults(case) {
        let (DifferenceKind::RouteMissing { route } | DifferenceKind::RouteTaken { route, .. }) =
            &fault.difference.kind
        else {
            continue;
        };
        let Fault { host, endpoint, device, .. } = fault;
        let (place, address) = (host.name(), route.destination.addr());
        let routes = host.routes_to(route.destination);
        let Some(instead) = routes.first() else { continue };
        let is_shadowed = routes.iter().any(|route| route.seen.device.as_deref() == Some(device));
        // Of several owners the route leads to one: that is their sharing, and told there.
        if is_shadowed || case.endpoints_at(address).len() > 1 {
            continue;
        }
        let summary = format!(
            "{place} routes {address} of endpoint {} with {}, expected dev {device}",
            endpoint.seen, instead.seen
        );
        look.found(route_subject(host, address), summary)
            .of_sandbox(endpoint.seen.container_id.as_deref())
            .remedy(format!("wait for the agent to fix it, or run on {place}"))
            .command(fault.command())
            .seen(instead.exhibit(instead.seen.to_string()))
            .seen(endpoint_exhibit(endpoint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_route_into_another_pod() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        let other = kernel.routes.as_ref().unwrap()[3].seen.device.clone();
        kernel.routes.as_mut().unwrap()[2].seen.device = other;
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "route 10.0.0.0/32 on worker-0000");
        let mut second = evidence.endpoints.as_ref().unwrap()[1].clone();
        second.seen.addresses = vec!["10.0.0.0".parse().unwrap()];
        evidence.endpoints.as_mut().unwrap().push(second);
        silent(&CHECK, &evidence);
    }
}
