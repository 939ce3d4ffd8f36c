//! Reachable: every node's blocks are routed on every other node, through an address that node can really reach.

pub(super) mod block_route_missing;
pub(super) mod block_route_wrong;
pub(super) mod cloud_drops_tunnel;
pub(super) mod cluster_routes_contradictory;
pub(super) mod node_neighbour_lost;
pub(super) mod packets_lost;
pub(super) mod policy_route_diverts;
pub(super) mod route_diverted;
pub(super) mod route_gateway_unreachable;
pub(super) mod route_via_wrong_node;
pub(super) mod source_check_on;
pub(super) mod tunnel_device_wrong;
pub(super) mod tunnel_disabled;
pub(super) mod tunnel_end_unknown;
pub(super) mod tunnel_mac_shared;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use model::{Cidr, NodeName};

use crate::{Case, Finding, Subject};

/// Blocks that belong to nodes, with their nodes.
pub(super) fn node_blocks(case: &Case<'_>) -> Vec<(Cidr, IpNet, NodeName)> {
    let blocks = case.live_blocks();
    blocks
        .filter_map(|(cidr, block)| Some((cidr, cidr.to_string().parse().ok()?, block.owner()?.node()?)))
        .collect()
}

/// Those that agents route: not what lies in no pool, what would hide a node, or what lies inside a block of another node.
pub(super) fn routed_blocks(case: &Case<'_>) -> Vec<(Cidr, IpNet, NodeName)> {
    let blocks = node_blocks(case);
    let knows_pools = case.books_view().is_some_and(|view| view.knows_pools);
    let by_length: BTreeSet<u8> = blocks.iter().map(|(cidr, ..)| cidr.prefix_len()).collect();
    let owners: BTreeMap<Cidr, &NodeName> = blocks.iter().map(|(cidr, _, node)| (*cidr, node)).collect();
    let views = case.node_views().values();
    let addresses: BTreeSet<IpAddr> =
        views.flat_map(|view| &view.addresses).map(|recorded| recorded.address()).collect();
    let is_routed = |(cidr, net, node): &&(Cidr, IpNet, NodeName)| {
        let pool = case.pools().iter().map(|(pool, _)| pool).find(|pool| pool.cidr.contains_cidr(cidr));
        let mut around = by_length
            .range(..cidr.prefix_len())
            .filter_map(|length| owners.get(&Cidr::containing(cidr.network(), *length)?));
        let is_odd = pool.is_some_and(|pool| pool.block_size != cidr.prefix_len());
        let is_others = is_odd && around.any(|owner| *owner != node);
        let hides = || addresses.range(net.network()..=net.broadcast()).next().is_some();
        !is_others && (pool.is_some() && !hides() || !knows_pools)
    };
    blocks.iter().filter(is_routed).cloned().collect()
}

/// A node that goes by an address at which nobody reaches it: routes to its blocks are missing or wrong on the others, and on itself those
/// to theirs.
pub(super) fn explain_ways(case: &Case<'_>, finding: &mut Finding, node: &NodeName) {
    let blocks = node_blocks(case);
    for host in case.hosts() {
        let is_itself = host.name() == node;
        for (_, destination, owner) in &blocks {
            if (owner == node) == is_itself {
                continue;
            }
            for check in [
                &block_route_missing::CHECK,
                &block_route_wrong::CHECK,
                &route_gateway_unreachable::CHECK,
                &route_via_wrong_node::CHECK,
            ] {
                let (node, destination) = (host.name().clone(), *destination);
                finding.explains(check.code, Subject::Route { node, destination });
            }
        }
    }
    for crossings in case.crossings() {
        let place = &crossings.node;
        let is_itself = place == node;
        for end in crossings.ends.iter().filter(|end| is_itself || end.owner == *node) {
            finding.explains(tunnel_end_unknown::CHECK.code, tunnel_end_unknown::subject(place, end));
        }
        for tunnel in crossings.tunnels.iter().filter(|_| is_itself) {
            finding.explains(tunnel_device_wrong::CHECK.code, Subject::device(place, tunnel.device));
        }
    }
}
