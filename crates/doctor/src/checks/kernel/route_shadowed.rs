//! Kernel agrees: a stranger's route to a pod's address goes before ours.

use ipnet::IpNet;

use super::{route_subject, settled};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, Look, Need, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "route-shadowed",
    severity: Severity::Error,
    title: "Another route goes before the pod's",
    explanation: "The node has the right route to a pod's address, and another route to the very same \
                  address with a better metric. The kernel takes that one, so the right route does nothing. \
                  Somebody else's program or hand put it there.",
    remedy: "find out who made the other route, and remove it",
    needs: &[&[Need::Endpoints, Need::Routes]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts() {
        for (endpoint, device) in settled(case, host) {
            for address in &endpoint.seen.addresses {
                let routes = host.routes_to(IpNet::from(*address));
                let leads_there = |route: &&&crate::Sighted<crate::evidence::kernel::Route>| {
                    route.seen.device.as_deref() == Some(device)
                };
                let (Some(first), Some(right)) = (routes.first(), routes.iter().find(leads_there)) else {
                    continue;
                };
                if leads_there(&first) || case.endpoints_at(*address).len() > 1 {
                    continue;
                }
                let (place, stranger) = (host.name(), &first.seen);
                let protocol = stranger.protocol.as_deref().unwrap_or("boot");
                look.found(
                    route_subject(host, *address),
                    format!(
                        "on {place} a stranger's route to {address} goes before that of endpoint {}",
                        endpoint.seen
                    ),
                )
                .of_sandbox(endpoint.seen.container_id.as_deref())
                .because(format!("{stranger} of protocol {protocol} has the better metric"))
                .seen(first.exhibit(stranger.to_string()))
                .seen(right.exhibit(right.seen.to_string()))
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
