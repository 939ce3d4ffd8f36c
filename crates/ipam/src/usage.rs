//! How full the pools are.

use std::collections::{BTreeMap, BTreeSet};

use model::Cidr;
use model::ipam::Block;

use crate::reserved::size;
use crate::{Pool, Reservations};

/// Addresses of a pool or a block. Numbers that do not fit are `u128::MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub capacity: u128,
    /// Taken or cooling down.
    pub in_use: u128,
    /// Not in use, and not given automatically.
    pub reserved: u128,
}

impl Usage {
    /// What can still be given automatically.
    pub fn available(&self) -> u128 {
        self.capacity.saturating_sub(self.in_use).saturating_sub(self.reserved)
    }
}

/// A pool, or the blocks that are in none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    pub name: Option<String>,
    pub cidr: Option<Cidr>,
    /// Of the whole pool, blocks or not.
    pub total: Usage,
    pub blocks: Vec<(Cidr, Usage)>,
}

/// The pools in their order, then the blocks that are in no pool, if there are any.
pub fn pool_usage<'a>(
    pools: &[Pool],
    blocks: impl IntoIterator<Item = &'a Block>,
    reserved: &Reservations,
) -> Vec<PoolUsage> {
    let mut by_pool: BTreeMap<usize, Vec<(Cidr, Usage)>> = BTreeMap::new();
    // Of pools around a block the first counts. Neither they nor blocks are few.
    let mut first: BTreeMap<Cidr, usize> = BTreeMap::new();
    for (position, pool) in pools.iter().enumerate() {
        first.entry(pool.cidr).or_insert(position);
    }
    let lengths: BTreeSet<u8> = first.keys().map(Cidr::prefix_len).collect();
    for block in blocks {
        let around = |length: &u8| Cidr::containing(block.cidr.network(), *length);
        let lengths = lengths.range(..=block.cidr.prefix_len());
        let pool = lengths.filter_map(|length| first.get(&around(length)?)).min().copied();
        let listed = by_pool.entry(pool.unwrap_or(pools.len())).or_default();
        listed.push((block.cidr, block_usage(block, reserved)));
    }
    let mut usages: Vec<PoolUsage> = Vec::new();
    for (position, pool) in pools.iter().enumerate() {
        let blocks = by_pool.remove(&position).unwrap_or_default();
        let total = pool_total(pool, &blocks, reserved);
        usages.push(PoolUsage { name: Some(pool.name.clone()), cidr: Some(pool.cidr), total, blocks });
    }
    if let Some(blocks) = by_pool.remove(&pools.len()) {
        let sum =
            |of: fn(&Usage) -> u128| blocks.iter().map(|(_, usage)| of(usage)).fold(0, u128::saturating_add);
        let total = Usage {
            capacity: sum(|usage| usage.capacity),
            in_use: sum(|usage| usage.in_use),
            reserved: sum(|usage| usage.reserved),
        };
        usages.push(PoolUsage { name: None, cidr: None, total, blocks });
    }
    usages
}

fn block_usage(block: &Block, reserved: &Reservations) -> Usage {
    let is_reserved =
        |ordinal: &&usize| block.address(**ordinal).is_some_and(|address| reserved.contains(address));
    let capacity = size(&block.cidr);
    Usage {
        capacity,
        in_use: capacity.saturating_sub(block.unallocated.len() as u128),
        reserved: block.unallocated.iter().filter(is_reserved).count() as u128,
    }
}

/// Reservations over addresses in use do not count: these are in use.
fn pool_total(pool: &Pool, blocks: &[(Cidr, Usage)], reserved: &Reservations) -> Usage {
    let in_use: u128 = blocks.iter().map(|(_, usage)| usage.in_use).fold(0, u128::saturating_add);
    let in_blocks: u128 = blocks.iter().map(|(_, usage)| usage.reserved).fold(0, u128::saturating_add);
    let under_blocks: u128 =
        blocks.iter().map(|(cidr, _)| reserved.count_in(cidr)).fold(0, u128::saturating_add);
    let elsewhere = reserved.count_in(&pool.cidr).saturating_sub(under_blocks);
    Usage { capacity: size(&pool.cidr), in_use, reserved: elsewhere.saturating_add(in_blocks) }
}
