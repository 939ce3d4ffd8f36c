//! Reachable: a block is routed through an address that the node cannot reach.

use std::net::IpAddr;

use super::node_blocks;
use super::packets_lost::way;
use crate::evidence::kernel::NeighbourState;
use crate::{Case, Check, Exhibit, Host, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "route-gateway-unreachable",
    severity: Severity::Error,
    title: "A block is routed through an address that does not answer",
    explanation: "A node routes another node's block through an address that it cannot reach: the kernel \
                  calls the route dead, the address answers neither to ARP nor to a probe. The route is \
                  there and does nothing.",
    remedy: "see whether the other node is up and has that address; whether both are on one network; \
             whether a tunnel is needed between them",
    needs: &[&[Need::Ipam, Need::Routes]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let blocks = node_blocks(case);
    for host in case.hosts() {
        for (block, net, owner) in
            blocks.iter().filter(|(_, _, owner)| !owner.eq_ignore_ascii_case(host.name()))
        {
            for route in host.routes_to(*net).into_iter().take(1) {
                let Some(via) = route.seen.via else { continue };
                let device = route.seen.device.as_deref().unwrap_or_default();
                let Some((why, exhibit)) = unreachable(host, via, device, route.seen.is_dead) else {
                    continue;
                };
                let place = host.name();
                look.found(
                    Subject::Route { node: place.to_owned(), destination: *net },
                    format!("{place} routes block {block} of node {owner} through {via}, {why}"),
                )
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
        return Some(("which the kernel calls dead", None));
    }
    let failed =
        host.neighbour(via, device).filter(|neighbour| neighbour.seen.state == NeighbourState::Missing)?;
    let exhibit = failed.exhibit(format!("{via} at {device} has no hardware address"));
    Some(("which does not answer", Some(exhibit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{silent, subjects};
    use crate::sample::small;

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
