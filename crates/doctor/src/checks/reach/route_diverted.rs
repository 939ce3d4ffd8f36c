//! Reachable: a route to a part of another node's block takes the packets of pods elsewhere.

use super::block_route_wrong::described;
use super::packets_lost::way;
use crate::{Case, Check, Look, Need, Origin, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "route-diverted",
    severity: Severity::Error,
    title: "A route takes the packets of single pods elsewhere",
    explanation: "A node has a route to a part of another node's block, most often to one address, that leads elsewhere than \
                  the block: nowhere (a black hole), or by another device. The longest prefix wins, so the route to the block is \
                  there and of no use: the pods at these addresses are not reached from this node.",
    remedy: "plumb repair removes it, and undo puts it back; see who wrote it (its protocol), or it comes back",
    needs: &[&[Need::Ipam, Need::Routes]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for crossings in case.crossings() {
        let place = crossings.node;
        for diverted in &crossings.diverted {
            let (route, owner, block) = (&diverted.found.seen, &diverted.owner, diverted.block);
            let destination = route.destination;
            let finding = look.found(
                Subject::Route { node: place.to_owned(), destination },
                format!("{place} takes packets to {destination} of node {owner} out of their way: {route}"),
            );
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
    use crate::evidence::kernel::Route;
    use crate::sample::{kernel_route, small, tunnelled};
    use crate::{Evidence, Sighted};

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
            assert!(only(&CHECK, &other).summary.contains("of node worker-0001 out of their way"));
            let hole = with(&healthy, |route| {
                (route.kind, route.device) = (crate::evidence::kernel::RouteKind::Blackhole, None);
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
