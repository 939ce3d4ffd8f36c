//! Reachable: a block is routed to another node than the one it belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::NodeName;

use super::node_blocks;
use crate::checks::words::listed;
use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Block is routed to the wrong node",
    explanation: "A node's route to a block leads to the address of a node that does not own the block. \
                  Packets arrive at a node that does not have the address. The block changed owners, or two \
                  nodes announce it.",
    remedy: "run plumb repair finding route-via-wrong-node --apply. If the route comes back, find out which \
             node announces the block (birdc show route for BLOCK all), and whether its affinity disagrees \
             with the block (affinity-contradicted)",
    needs: &[&[Need::Ipam, Need::Routes]],
    ..Check::error(FindingCode::RouteViaWrongNode, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    // Nodes that share an address are another story, told there: each of them may be meant.
    let mut owners: BTreeMap<IpAddr, BTreeSet<&NodeName>> = BTreeMap::new();
    for view in case.node_views().values() {
        let tunnels = view.tunnels.iter().map(|(_, address)| *address);
        for address in
            view.addresses.iter().map(|recorded| recorded.address()).chain(view.internal_ips()).chain(tunnels)
        {
            owners.entry(address).or_default().insert(&view.name);
        }
    }
    let blocks = node_blocks(case);
    for host in case.hosts() {
        for (block, net, owner) in blocks.iter().filter(|(_, _, owner)| owner != host.name()) {
            for route in host.routes_to(*net).into_iter().take(1) {
                let Some(via) = route.seen.via else { continue };
                let Some(others) = owners.get(&via).filter(|nodes| !nodes.contains(owner)) else {
                    continue;
                };
                let leads_to = listed(others);
                let place = host.name();
                let summary = format!("{place} routes block {block} of node {owner} to {leads_to} ({via})");
                look.found(Subject::route(place, *net), summary).seen(route.exhibit(route.seen.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_another_nodes_address() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let routes = evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap();
        let route =
            routes.iter_mut().find(|route| route.seen.destination.to_string() == "10.0.0.64/26").unwrap();
        route.seen.via = Some("172.16.0.3".parse().unwrap());
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "worker-0000 routes block 10.0.0.64/26 of node worker-0001 to worker-0002 (172.16.0.3)"
        );
        let routes = evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap();
        let route =
            routes.iter_mut().find(|route| route.seen.destination.to_string() == "10.0.0.64/26").unwrap();
        route.seen.via = Some("172.16.200.1".parse().unwrap());
        silent(&CHECK, &evidence);
    }

    /// Which is a finding of its own.
    #[test]
    fn stays_silent_where_the_owner_shares_its_address() {
        let mut evidence = small();
        let nodes = evidence.kube_nodes.as_mut().unwrap();
        nodes[2].seen.internal_ips = nodes[1].seen.internal_ips.clone();
        silent(&CHECK, &evidence);
    }
}
