//! No orphans: a route into a pod's device for an address that nobody has.

use model::ShellCommand;

use super::{is_held, judged_hosts};
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::kernel::RouteKind;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Route leads to an address that no endpoint has",
    explanation: "A node routes an address to a pod's device, but no endpoint on that node has the address. \
                  If the address is allocated to a pod on another node, this node sends its traffic to the \
                  wrong place, while all other nodes reach it.",
    remedy: "run plumb repair finding route-without-endpoint --apply, or on the node: ip route del ADDRESS \
             dev DEVICE",
    needs: &[&[Need::Endpoints, Need::Routes]],
    ..Check::warning(FindingCode::RouteWithoutEndpoint, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in judged_hosts(case) {
        for route in host.routes() {
            let net = route.seen.destination;
            let Some(device) = route.seen.device.as_deref() else { continue };
            let is_single = net.prefix_len() == net.max_prefix_len() && route.seen.kind == RouteKind::Unicast;
            let is_pods = device.starts_with(model::DeviceName::CALICO_PREFIX);
            if !is_single || !is_pods || is_held(case, host, net.addr(), device) {
                continue;
            }
            let (place, address) = (host.name(), net.addr());
            let summary = format!("{place} routes {address} to {device}, but no endpoint has the address");
            look.found(Subject::route(place, net), summary)
                .known_by(format!("at link {:?}", host.link(device).and_then(|link| link.seen.index)))
                .remedy(format!("remove it on {place}"))
                .command(ShellCommand::new("ip route del").value(address).plain("dev").value(device))
                .seen(route.exhibit(route.seen.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_route_into_a_pod_and_not_for_strangers() {
        let mut evidence = small();
        let routes = evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap();
        let mut route = routes[2].clone();
        route.seen.destination = "10.0.0.60/32".parse().unwrap();
        let mut stranger = route.clone();
        stranger.seen.device = Some("docker0".to_owned());
        routes.push(stranger);
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap().push(route);
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "route 10.0.0.60/32 on worker-0000");
    }
}
