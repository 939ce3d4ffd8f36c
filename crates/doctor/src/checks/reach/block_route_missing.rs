//! Reachable: a node has no route to another node's block.

use std::collections::BTreeSet;

use ::ipam::Pool;
use ipnet::IpNet;
use model::{Key, NodeName};

use super::routed_blocks;
use crate::{Case, Check, FindingCode, Host, Look, Need, Subject};
use evidence::Origin;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node has no route to another node's pods",
    explanation: "A node has no route to another node's block, although it is expected to have one: it has \
                  routes to other blocks, or tunnels or BGP are in use. Its pods cannot reach the pods in \
                  that block, because packets to them follow a less specific route, usually the default \
                  route.",
    remedy: "run plumb repair finding block-route-missing --apply. If BIRD writes the routes, check that the \
             session with that node is established and that no filter rejects the route. For VXLAN, check \
             that the other node has a tunnel address",
    needs: &[&[Need::Ipam, Need::Routes]],
    ..Check::error(FindingCode::BlockRouteMissing, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    look_for_singles(case, look);
    let blocks = routed_blocks(case);
    let pools = case.pools();
    let owned: BTreeSet<(IpNet, &NodeName)> = blocks.iter().map(|(_, net, node)| (*net, node)).collect();
    let has_tunnels = pools.iter().any(|(pool, _)| pool.has_ipip() || pool.has_vxlan());
    // A machine that is no node, or no longer, has no pods who would need the routes; if it has, that is another finding.
    let is_node = |host: &&Host<'_>| !case.knows_nodes() || case.node_view(host.name()).is_some();
    for host in case.hosts().iter().filter(|host| host.has_all_routes()).filter(is_node) {
        let crossings = case.crossings_of(host.name());
        // Through a tunnel leads only a route of its own; one that was summed up leads past it.
        let is_tunnelled = |net: &IpNet| crossings.is_some_and(|known| known.tunnelled.contains(net));
        // One inside another block of the same node takes the other's way.
        let is_in_routed = |net: IpNet, node: &NodeName| {
            enclosing(net).any(|outer| owned.contains(&(outer, node)) && is_within(host, outer))
        };
        let is_routed = |net: IpNet, node: &NodeName| {
            is_within(host, net)
                || (!is_tunnelled(&net) && is_summed_up(host, net))
                || is_in_routed(net, node)
        };
        let elsewhere = || blocks.iter().filter(|(_, _, node)| node != host.name());
        let mut missing: Vec<_> = elsewhere()
            // Nobody routes what no pool vouches for, which is a finding of its own.
            .filter(|(_, net, _)| pools.is_empty() || pools.iter().any(|(pool, _)| is_part(pool, net)))
            .filter(|(_, net, node)| !is_routed(*net, node) && case.node_view(node).is_some())
            .collect();
        // Of a block inside another of the same node the larger one's route is missed, once.
        let unrouted: BTreeSet<(IpNet, &NodeName)> =
            missing.iter().map(|(_, net, node)| (*net, node)).collect();
        missing.retain(|(_, net, node)| !enclosing(*net).any(|outer| unrouted.contains(&(outer, node))));
        let routes_others = elsewhere().any(|(_, net, node)| is_routed(*net, node));
        let has_bgp = host.node.bgp.as_ref().is_some_and(|bgp| !bgp.sessions.is_empty());
        // Where neither holds, somebody else (a cloud, a router) knows the way.
        if !(routes_others || has_bgp || has_tunnels) {
            continue;
        }
        for (block, net, owner) in missing {
            let place = host.name();
            let summary = format!("{place} has no route to block {block} of node {owner}");
            let finding = look.found(Subject::route(place, *net), summary);
            if let Some(route) = host.route_for(net.addr()) {
                finding.because(format!("packets to it follow {}", route.seen));
            }
            finding.seen(Origin::probe(place, "routes").exhibit(format!("none to {block}"))).seen(
                case.evidence
                    .ipam
                    .as_ref()
                    .map_or_else(
                        || Origin::store(&Key::Block(*block)),
                        |ipam| ipam.origin(&Key::Block(*block)),
                    )
                    .exhibit(format!("block {block} belongs to node {owner}")),
            );
        }
    }
}

/// Networks that a network lies in, as far as blocks go: none of Calico's has more than 2^12 addresses.
fn enclosing(net: IpNet) -> impl Iterator<Item = IpNet> {
    let least = net.max_prefix_len() - 12;
    (least..net.prefix_len()).filter_map(move |len| Some(IpNet::new(net.addr(), len).ok()?.trunc()))
}

/// By a route to more than the block; the default route is none.
fn is_summed_up(host: &Host<'_>, block: IpNet) -> bool {
    host.route_for(block.addr()).is_some_and(|route| {
        let to = route.seen.destination;
        let is_local = route.seen.protocol.as_deref() == Some("kernel");
        to.prefix_len() > 0 && !is_local && to.prefix_len() <= block.prefix_len()
    })
}

/// By a route of its own.
fn is_within(host: &Host<'_>, block: IpNet) -> bool {
    !host.routes_to(block).is_empty()
}

fn is_part(pool: &Pool, block: &IpNet) -> bool {
    pool.cidr.contains(block.addr()) && pool.cidr.prefix_len() <= block.prefix_len()
}

/// Addresses that are at another node than their block, and ends of tunnels: each needs a route of its own through the tunnel.
fn look_for_singles(case: &Case<'_>, look: &mut Look<'_>) {
    for crossings in case.crossings() {
        let place = &crossings.node;
        for (destination, owner) in &crossings.missing {
            let summary = format!("{place} has no route to {destination} at node {owner}");
            look.found(Subject::route(place, *destination), summary)
                .seen(Origin::probe(place, "routes").exhibit(format!("none to {destination}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_the_one_that_is_missing() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let routes = evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap();
        routes.retain(|route| route.seen.destination.to_string() != "10.0.0.64/26");
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "worker-0000 has no route to block 10.0.0.64/26 of node worker-0001");
        assert!(finding.cause[0].contains("0.0.0.0/0 via 172.16.255.254"), "{:?}", finding.cause);
    }

    #[test]
    fn a_block_inside_another_is_not_missed_twice() {
        let mut evidence = small();
        let inner: model::Cidr = "10.0.0.64/28".parse().unwrap();
        let owner = model::AffinityOwner::Host("worker-0001".to_owned());
        let block = model::ipam::Block::new(inner, Some(&owner), 1);
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        books.blocks.insert(inner, ::ipam::Stored::new(block, "1"));
        silent(&CHECK, &evidence);
        let routes = evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap();
        routes.retain(|route| route.seen.destination.to_string() != "10.0.0.64/26");
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "route 10.0.0.64/26 on worker-0000");
    }

    /// Whoever makes routes by the records makes none to a node that nobody reaches.
    #[test]
    fn follows_from_the_address_of_the_blocks_node() {
        let mut evidence = small();
        let routes = evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap();
        routes.retain(|route| route.seen.destination.to_string() != "10.0.0.64/26");
        let roots = |evidence: &evidence::Evidence| {
            let findings = crate::diagnose(evidence).findings;
            findings.into_iter().map(|finding| finding.code).collect::<BTreeSet<_>>()
        };
        assert!(roots(&evidence).contains(&CHECK.code));
        let annotation = "projectcalico.org/IPv4Address".to_owned();
        let nodes = evidence.kube_nodes.as_mut().unwrap();
        nodes[1].seen.annotations.insert(annotation, "172.16.0.1/16".to_owned());
        let roots = roots(&evidence);
        assert!(roots.contains(&FindingCode::NodeAddressShared) && !roots.contains(&CHECK.code), "{roots:?}");
    }

    #[test]
    fn is_silent_for_a_machine_that_is_no_node_any_more() {
        let mut evidence = small();
        let routes = evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap();
        routes.retain(|route| route.seen.destination.to_string() != "10.0.0.64/26");
        evidence.records.all_mut(model::Kind::Node).retain(|node| node.seen.metadata.name != "worker-0000");
        evidence.kube_nodes.as_mut().unwrap().remove(0);
        silent(&CHECK, &evidence);
    }

    #[test]
    fn is_silent_where_others_route() {
        let mut evidence = small();
        let node = evidence.node_mut("worker-0000");
        node.bgp = None;
        node.kernel.routes.as_mut().unwrap().retain(|route| route.seen.protocol.as_deref() != Some("bird"));
        silent(&CHECK, &evidence);
    }
}
