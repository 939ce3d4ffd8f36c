//! Reachable: a block is routed through an address that the node cannot reach.

use std::net::IpAddr;

use super::node_blocks;
use super::packets_lost::way;
use crate::{Case, Check, FindingCode, Host, Look, Need, Subject};
use evidence::Exhibit;
use evidence::kernel::NeighbourState;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Next hop of a route to a block does not answer",
    explanation: "A node routes another node's block through an address that it cannot reach: the kernel \
                  marks the route as dead, or the address does not answer ARP or NDP requests. The route \
                  exists, but all packets that follow it are lost.",
    remedy: "check that the other node is up and has that address, that both are on the same network, and \
             whether they need a tunnel between them",
    needs: &[&[Need::Ipam, Need::Routes]],
    ..Check::error(FindingCode::RouteGatewayUnreachable, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let blocks = node_blocks(case);
    for host in case.hosts() {
        for (block, net, owner) in blocks.iter().filter(|(_, _, owner)| owner != host.name()) {
            for route in host.routes_to(*net).into_iter().take(1) {
                let Some(via) = route.seen.via else { continue };
                let device = route.seen.device.as_deref().unwrap_or_default();
                let Some((why, exhibit)) = unreachable(host, via, device, route.seen.is_dead) else {
                    continue;
                };
                let place = host.name();
                let summary = format!("{place} routes block {block} of node {owner} through {via}, {why}");
                look.found(Subject::route(place, *net), summary)
                    .seen(route.exhibit(route.seen.to_string()))
                    .seen_all(exhibit)
                    .explains(super::packets_lost::CHECK.code, way(place, owner));
            }
        }
    }
}

fn unreachable(
    host: &Host<'_>,
    via: IpAddr,
    device: &str,
    is_dead: bool,
) -> Option<(&'static str, Option<Exhibit>)> {
    if is_dead {
        return Some(("but the kernel marks the route as dead", None));
    }
    let failed =
        host.neighbour(via, device).filter(|neighbour| neighbour.seen.state == NeighbourState::Missing)?;
    let exhibit = failed.exhibit(format!("{via} on {device} has no MAC address"));
    Some(("which does not answer", Some(exhibit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{silent, subjects};
    use evidence::sample::small;

    #[test]
    fn fires_for_dead_routes_and_failed_neighbours() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        let routes = kernel.routes.as_mut().unwrap();
        let route =
            routes.iter_mut().find(|route| route.seen.destination.to_string() == "10.0.0.64/26").unwrap();
        route.seen.is_dead = true;
        let neighbours = kernel.neighbours.as_mut().unwrap();
        let mut gone = neighbours[0].clone();
        gone.seen.address = "172.16.0.3".parse().unwrap();
        gone.seen.device = "eth0".to_owned();
        gone.seen.state = NeighbourState::Missing;
        neighbours.push(gone);
        assert_eq!(
            subjects(&CHECK, &evidence),
            ["route 10.0.0.64/26 on worker-0000", "route 10.0.0.128/26 on worker-0000"]
        );
    }
}
