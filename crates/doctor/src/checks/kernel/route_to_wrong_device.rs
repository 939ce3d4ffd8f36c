//! Kernel agrees: the route to an endpoint's address leads elsewhere.

use ipnet::IpNet;

use super::{route_subject, route_to, settled};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, Look, Need, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "route-to-wrong-device",
    severity: Severity::Error,
    title: "The route to a pod leads to another device",
    explanation: "The node's route to a pod's address points at another device than the one its endpoint \
                  names. Traffic for the pod ends in another pod, or nowhere.",
    remedy: "let the agent put it right; by hand: ip route replace ADDRESS dev DEVICE scope link",
    needs: &[&[Need::Endpoints, Need::Routes]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts() {
        for (endpoint, device) in settled(case, host) {
            for address in &endpoint.seen.addresses {
                let routes = host.routes_to(IpNet::from(*address));
                let Some(route) = routes.first() else { continue };
                let leads_there = |at: usize| routes[at].seen.device.as_deref() == Some(device);
                let is_right = (0..routes.len()).any(leads_there);
                // Of several owners the route leads to one: that is their sharing, and told there.
                if is_right || case.endpoints_at(*address).len() > 1 {
                    continue;
                }
                let place = host.name();
                look.found(
                    route_subject(host, *address),
                    format!(
                        "{place} routes {address} of endpoint {} \
                    by {}, not to {device}",
                        endpoint.seen, route.seen
                    ),
                )
                .of_sandbox(endpoint.seen.container_id.as_deref())
                .remedy(format!("let the agent put it right, or do it by hand on {place}"))
                .command(route_to(*address, device))
                .seen(route.exhibit(route.seen.to_string()))
                .seen(endpoint_exhibit(endpoint));
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
