//! Reachable: a route to a part of another node's block takes the packets of pods elsewhere.

use super::block_route_wrong::described;
use super::packets_lost::way;
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::Origin;

pub(in crate::checks) const CHECK: Check = Check {
    title: "More specific route diverts traffic for individual pods",
    explanation: "A node has a route to a part of another node's block, most often to a single address, that \
                  does not follow the block's route. It is a blackhole, or points to a different device. The \
                  longest prefix wins, so the block's route is not used, and the pods at these addresses \
                  cannot be reached from this node.",
    remedy: "run plumb repair finding route-diverted --apply to remove the route. Then use its protocol (ip \
             route) to find out what installed it, or it will come back",
    needs: &[&[Need::Ipam, Need::Routes]],
    ..Check::error(FindingCode::RouteDiverted, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for crossings in case.crossings() {
        let place = &crossings.node;
        for diverted in &crossings.diverted {
            let (route, owner, block) = (&diverted.found.seen, &diverted.owner, diverted.block);
            let destination = route.destination;
            let summary = format!("{place} diverts packets to {destination} of node {owner}: {route}");
            let finding = look.found(Subject::route(place, destination), summary);
            finding.seen(diverted.found.exhibit(described(route)));
            for endpoint in case.endpoints_at(destination.addr()) {
                finding.seen(endpoint.exhibit(format!(
                    "endpoint {} has {}",
                    endpoint.seen,
                    destination.addr()
                )));
            }
            let books = Origin::store(&model::Key::Block(cidr(block)));
            finding
                .seen(books.exhibit(format!("block {block} belongs to node {owner}")))
                .explains(super::packets_lost::CHECK.code, way(place, owner));
        }
    }
}

fn cidr(net: ipnet::IpNet) -> model::Cidr {
    model::Cidr::containing(net.addr(), net.prefix_len()).unwrap_or_else(|| model::Cidr::single(net.addr()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::kernel::Route;
    use evidence::sample::{kernel_route, small, tunnelled};
    use evidence::{Evidence, Sighted};

    /// Beside everything else, on the first node, to the first pod of the second.
    fn with(evidence: &Evidence, change: impl FnOnce(&mut Route)) -> Evidence {
        let mut evidence = evidence.clone();
        let pod = evidence.endpoints.as_ref().unwrap()[4].seen.addresses[0];
        let mut route = kernel_route(pod.into(), None, Some("eth0"), "static");
        change(&mut route);
        let routes = evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap();
        routes.push(Sighted::new(route, Origin::probe("worker-0000", "routes")));
        evidence
    }

    #[test]
    fn fires_for_black_holes_and_other_devices() {
        for healthy in [small(), tunnelled("vxlanMode", "Always")] {
            silent(&CHECK, &healthy);
            let other = with(&healthy, |_| {});
            assert!(only(&CHECK, &other).summary.contains("worker-0000 diverts packets to"));
            let hole = with(&healthy, |route| {
                (route.kind, route.device) = (evidence::kernel::RouteKind::Blackhole, None);
            });
            assert!(only(&CHECK, &hole).summary.contains(": blackhole 10.0.0."));
            // A whole range of pods.
            only(&CHECK, &with(&healthy, |route| route.destination = "10.0.0.64/28".parse().unwrap()));
        }
    }

    #[test]
    fn stays_silent_where_nobody_is_harmed() {
        let healthy = small();
        // To nobody; the way the block goes; what BIRD tells of an address that was lent; a pod that is here.
        silent(&CHECK, &with(&healthy, |route| route.destination = "10.0.0.127/32".parse().unwrap()));
        silent(&CHECK, &with(&healthy, |route| route.via = Some("172.16.0.2".parse().unwrap())));
        silent(
            &CHECK,
            &with(&healthy, |route| {
                (route.via, route.protocol) = (Some("172.16.0.3".parse().unwrap()), Some("bird".to_owned()));
            }),
        );
        silent(&CHECK, &with(&healthy, |route| route.device = Some("cali1".to_owned())));
        // Behind another of the same destination.
        let second = with(&healthy, |route| route.via = Some("172.16.0.2".parse().unwrap()));
        silent(&CHECK, &with(&second, |route| route.metric = Some(7)));
    }
}
