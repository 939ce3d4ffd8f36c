//! Which routes to blocks may be made at all. A record can say anything; a route that follows from it must take nothing from anybody.
//!
//! * A block that lies in no pool is not newly routed. One that was routed when its pool went stays so ([`super::Between::held`]).
//! * No route hides the address of a node, or an address of services.
//! * A block that lies inside a block of another node is not newly routed, unless it has the size of its pool's blocks: its longer
//!   prefix would win over the other's.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use model::Cidr;

use super::blocks::Blocks;
use super::trouble::Trouble;
use super::way::{Ground, PoolGround};

/// What is judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Law<'a> {
    pub(super) ground: &'a Ground,
    pub(super) blocks: &'a Blocks,
    /// Addresses of nodes.
    pub(super) nodes: &'a BTreeMap<IpAddr, Vec<String>>,
}

impl Law<'_> {
    /// What speaks against a route to a block, or to an address of it, that leads to `node`.
    pub(super) fn objection(&self, destination: IpNet, node: &str, block: &Cidr) -> Option<Trouble> {
        let pool = self.ground.pool_of(block);
        if self.hides_node(destination) {
            Some(Trouble::HidesNode)
        } else if self.hides_service(destination, pool) {
            Some(Trouble::HidesService)
        } else if self.is_inside_another(destination, node, block, pool) {
            Some(Trouble::InsideAnother)
        } else {
            None
        }
    }

    fn hides_node(&self, destination: IpNet) -> bool {
        self.nodes.range(destination.network()..=destination.broadcast()).next().is_some()
    }

    /// A range that a whole pool lies in was meant so: somebody announces pods and services alike.
    fn hides_service(&self, destination: IpNet, pool: Option<&PoolGround>) -> bool {
        let is_meant = |range: &IpNet| {
            pool.is_some_and(|pool| {
                range.contains(&pool.cidr.network()) && range.prefix_len() <= pool.cidr.prefix_len()
            })
        };
        let overlaps = |range: &IpNet| range.contains(&destination) || destination.contains(range);
        self.ground.services.iter().any(|range| overlaps(range) && !is_meant(range))
    }

    fn is_inside_another(
        &self,
        destination: IpNet,
        node: &str,
        block: &Cidr,
        pool: Option<&PoolGround>,
    ) -> bool {
        let size = pool.map(|pool| pool.block_size);
        if size == Some(block.prefix_len()) {
            return false;
        }
        self.blocks.around(destination.network()).any(|(around, view)| {
            let holds = around != *block && around.prefix_len() <= destination.prefix_len();
            let comes_first = size == Some(around.prefix_len()) || around.prefix_len() < block.prefix_len();
            // A route to where that block leads anyway takes it from nobody.
            holds && comes_first && view.leads_to(destination) != Some(node)
        })
    }
}
