//! Kernel agrees: an endpoint's address has no route.

use ipnet::IpNet;

use super::{route_subject, route_to, settled};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, Look, Need, Origin, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "route-missing",
    severity: Severity::Error,
    title: "A pod's address has no route",
    explanation: "The node on which a pod runs has no route to the pod's address. Packets to it follow some \
                  wider route, usually out of the node again or into a black hole: nobody reaches the pod, \
                  and answers to its own packets do not arrive.",
    remedy: "let the agent put it back; by hand: ip route replace ADDRESS dev DEVICE scope link",
    needs: &[&[Need::Endpoints, Need::Routes]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts().iter().filter(|host| host.has_all_routes()) {
        for (endpoint, device) in settled(case, host) {
            for address in &endpoint.seen.addresses {
                if !host.routes_to(IpNet::from(*address)).is_empty() {
                    continue;
                }
                let really = match host.route_for(*address) {
                    Some(route) => format!("packets to it take {}", route.seen),
                    None => "packets to it have no route at all".to_owned(),
                };
                let place = host.name();
                let finding = look.found(
                    route_subject(host, *address),
                    format!("{place} has no route to {address} of endpoint {}", endpoint.seen),
                );
                finding.of_sandbox(endpoint.seen.container_id.as_deref());
                finding
                    .because(really)
                    .remedy(format!("let the agent put it back, or do it by hand on {place}"))
                    .command(route_to(*address, device))
                    .seen(endpoint_exhibit(endpoint))
                    .seen(Origin::probe(place, "routes").exhibit(format!("none to {address}")));
            }
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
        evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap().remove(2);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "route 10.0.0.0/32 on worker-0000");
        assert_eq!(finding.cause, ["packets to it take blackhole 10.0.0.0/26"]);
        evidence.node_mut("worker-0000").kernel.partial.routes = true;
        silent(&CHECK, &evidence);
    }
}
