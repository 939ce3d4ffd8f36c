//! Reachable: every node's blocks are routed on every other node, through an address that node can really reach.

pub(super) mod block_route_missing;
pub(super) mod cluster_routes_contradictory;
pub(super) mod packets_lost;
pub(super) mod route_gateway_unreachable;
pub(super) mod route_via_wrong_node;

use ipnet::IpNet;
use model::{AffinityOwner, Cidr};

use crate::Case;

/// Blocks that belong to nodes, with their nodes.
pub(super) fn node_blocks(case: &Case<'_>) -> Vec<(Cidr, IpNet, String)> {
    let blocks = case.evidence.ipam.iter().flat_map(|ipam| &ipam.books.blocks);
    blocks
        .filter(|(_, stored)| !stored.value.deleted)
        .filter_map(|(cidr, stored)| match stored.value.owner() {
            Some(AffinityOwner::Host(node)) => Some((*cidr, cidr.to_string().parse().ok()?, node)),
            _ => None,
        })
        .collect()
}
