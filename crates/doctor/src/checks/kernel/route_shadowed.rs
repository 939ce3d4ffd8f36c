//! Kernel agrees: a stranger's route to a pod's address goes before ours.

use plan::DifferenceKind;

use super::{Fault, faults, route_subject};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Another route takes precedence over the pod's",
    explanation: "The node has the correct route to a pod's address, but another route to the same address \
                  has a better metric. The kernel uses that one, so the correct route has no effect. Another \
                  program, or a person, added it.",
    remedy: "use the protocol of the other route to find out what added it, and remove it with ip route del",
    needs: &[&[Need::Endpoints, Need::Routes]],
    ..Check::error(FindingCode::RouteShadowed, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for Fault { host, endpoint, device, difference } in faults(case) {
        let DifferenceKind::RouteTaken { route, .. } = &difference.kind else { continue };
        let (place, address) = (host.name(), route.destination.addr());
        let routes = host.routes_to(route.destination);
        let right = routes.iter().find(|route| route.seen.device.as_deref() == Some(device));
        let (Some(first), Some(right)) = (routes.first(), right) else { continue };
        if case.endpoints_at(address).len() > 1 {
            continue;
        }
        let stranger = &first.seen;
        let protocol = stranger.protocol.as_deref().unwrap_or("boot");
        let summary = format!(
            "on {place} another program's route to {address} takes precedence over that of endpoint {}",
            endpoint.seen
        );
        look.found(route_subject(host, address), summary)
            .of_sandbox(endpoint.seen.container_id.as_deref())
            .because(format!("{stranger} (proto {protocol}) has the better metric"))
            .seen(first.exhibit(stranger.to_string()))
            .seen(right.exhibit(right.seen.to_string()))
            .seen(endpoint_exhibit(endpoint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_better_metric_and_not_for_a_worse() {
        let mut evidence = small();
        let routes = evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap();
        let mut stranger = routes[2].clone();
        stranger.seen.device = Some("eth0".to_owned());
        stranger.seen.metric = Some(1024);
        routes.push(stranger);
        silent(&CHECK, &evidence);
        let routes = evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap();
        routes[2].seen.metric = Some(2000);
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "route 10.0.0.0/32 on worker-0000");
    }
}
