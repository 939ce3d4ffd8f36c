//! The order in which a node looks for a block of its own in a pool.

use std::net::IpAddr;

use model::{Cidr, IpVersion};

use crate::Reservations;
use crate::reserved::number;

/// FNV-1, 32 bits.
pub fn fnv1(text: &str) -> u32 {
    text.bytes().fold(2_166_136_261, |hash, byte| hash.wrapping_mul(16_777_619) ^ u32::from(byte))
}

/// Every block of a pool once, starting at a place that depends on the node, so that nodes seldom try for the same.
/// Blocks that are wholly reserved are left out. Empty if a block would be larger than the pool.
#[derive(Clone, Debug)]
pub struct BlockOrder {
    pool: Cidr,
    block_size: u8,
    reserved: Reservations,
    start: u64,
    count: u64,
    offset: u64,
}

/// A pool of more blocks is only walked that far; nobody claims that many.
const BLOCKS_WALKED_BITS_MAX: u8 = 32;

impl BlockOrder {
    pub fn new(pool: Cidr, block_size: u8, host: &str, reserved: &Reservations) -> BlockOrder {
        let is_possible = block_size >= pool.prefix_len() && block_size <= pool.version().bits();
        let index_bits = if is_possible { block_size - pool.prefix_len() } else { 0 };
        let count = if is_possible { 1u64 << index_bits.min(BLOCKS_WALKED_BITS_MAX) } else { 0 };
        let start = if count == 0 { 0 } else { u64::from(fnv1(host)) % count };
        BlockOrder { pool, block_size, reserved: reserved.clone(), start, count, offset: 0 }
    }

    /// Goes on behind a block that came before. One that is not of this pool and size changes nothing.
    pub fn resume_after(&mut self, block: &Cidr) {
        if let Some(position) = self.position_of(block) {
            self.offset = position + 1;
        }
    }

    /// How many blocks come before this one, reserved ones included. `None` if it is not of this pool and size.
    pub fn position_of(&self, block: &Cidr) -> Option<u64> {
        if block.prefix_len() != self.block_size || !self.pool.contains_cidr(block) || self.count == 0 {
            return None;
        }
        let distance = number(block.network()) - number(self.pool.network());
        let index = distance >> (self.pool.version().bits() - self.block_size);
        let index = u64::try_from(index).ok().filter(|index| *index < self.count)?;
        Some((index + self.count - self.start) % self.count)
    }

    fn index(&self) -> u64 {
        (self.start + self.offset) % self.count
    }

    fn block_at(&self, index: u64) -> Option<Cidr> {
        let distance = u128::from(index) << (self.pool.version().bits() - self.block_size);
        let address = address(self.pool.version(), number(self.pool.network()).checked_add(distance)?)?;
        Cidr::containing(address, self.block_size)
    }

    /// How many blocks from this one on are reserved without a gap, up to the end of the pool. A large reservation
    /// is stepped over at once.
    fn reserved_run(&self, block: &Cidr) -> u64 {
        if !self.reserved.covers(block) {
            return 0;
        }
        let Some(end) = self.reserved.end_of_run(block) else { return 0 };
        let host_bits = u32::from(self.pool.version().bits() - self.block_size);
        let length = (end - number(block.network())).saturating_add(1).checked_shr(host_bits).unwrap_or(1);
        let to_wrap = self.count - self.index();
        u64::try_from(length).unwrap_or(u64::MAX).clamp(1, to_wrap)
    }
}

impl Iterator for BlockOrder {
    type Item = Cidr;

    fn next(&mut self) -> Option<Cidr> {
        while self.offset < self.count {
            let block = self.block_at(self.index())?;
            match self.reserved_run(&block) {
                0 => {
                    self.offset += 1;
                    return Some(block);
                }
                run => self.offset += run,
            }
        }
        None
    }
}

fn address(version: IpVersion, number: u128) -> Option<IpAddr> {
    Some(match version {
        IpVersion::V4 => IpAddr::V4(u32::try_from(number).ok()?.into()),
        IpVersion::V6 => IpAddr::V6(number.into()),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn order(pool: &str, size: u8, host: &str, reserved: &[&str]) -> BlockOrder {
        let reserved: Vec<Cidr> = reserved.iter().map(|text| text.parse().unwrap()).collect();
        BlockOrder::new(pool.parse().unwrap(), size, host, &Reservations::new(&reserved))
    }

    #[test]
    fn the_hash_is_fnv_1() {
        assert_eq!(fnv1("node-a"), 568_266_999);
    }

    /// Checklist: the random block generator visits every block exactly once, for six pool and block sizes.
    #[test]
    fn every_block_comes_once() {
        for (pool, size, count) in [
            ("10.0.0.0/24", 26, 4),
            ("10.0.0.0/16", 26, 1_024),
            ("10.0.0.0/22", 32, 1_024),
            ("10.0.0.0/26", 26, 1),
            ("fd00::/112", 122, 1_024),
            ("fd00::/120", 128, 256),
        ] {
            for host in ["node-a", "node-b"] {
                let network: Cidr = pool.parse().unwrap();
                let blocks: Vec<Cidr> = order(pool, size, host, &[]).collect();
                assert_eq!(
                    (blocks.len(), blocks.iter().collect::<BTreeSet<_>>().len()),
                    (count, count),
                    "{pool}"
                );
                assert!(
                    blocks.iter().all(|block| network.contains_cidr(block) && block.prefix_len() == size)
                );
            }
        }
    }

    #[test]
    fn a_walk_can_be_resumed() {
        for (pool, size) in [("10.0.0.0/24", 26), ("fd00::/120", 124)] {
            let all: Vec<Cidr> = order(pool, size, "node-a", &[]).collect();
            for (position, block) in all.iter().enumerate() {
                let mut resumed = order(pool, size, "node-a", &[]);
                resumed.resume_after(block);
                assert_eq!(resumed.collect::<Vec<_>>(), all[position + 1..], "after {block}");
            }
            let mut unchanged = order(pool, size, "node-a", &[]);
            unchanged.resume_after(&"192.168.0.0/26".parse().unwrap());
            unchanged.resume_after(&"10.0.0.0/27".parse().unwrap());
            assert_eq!(unchanged.collect::<Vec<_>>(), all);
        }
    }

    #[test]
    fn nodes_start_in_different_places() {
        let first = |host| order("10.0.0.0/24", 26, host, &[]).next().unwrap().to_string();
        assert_eq!(first("node-a"), "10.0.0.192/26");
        assert_ne!(first("node-b"), first("node-a"));
    }

    #[test]
    fn reserved_blocks_are_left_out() {
        let blocks: Vec<String> =
            order("10.0.0.0/24", 26, "node-a", &["10.0.0.0/26", "10.0.0.64/27", "10.0.0.96/27"])
                .map(|block| block.to_string())
                .collect();
        assert_eq!(blocks, ["10.0.0.192/26", "10.0.0.128/26"]);
        // Four thousand million blocks, all but two of them reserved: stepped over, not walked.
        let most: Vec<String> = (1..=31)
            .map(|prefix| format!("{}/{}", std::net::Ipv4Addr::from(1u32 << (32 - prefix)), prefix))
            .collect();
        let most: Vec<&str> = most.iter().map(String::as_str).collect();
        assert_eq!(order("0.0.0.0/0", 32, "node-a", &most).count(), 2);
        assert_eq!(order("::/0", 128, "node-a", &["::/0"]).count(), 0);
    }

    #[test]
    fn odd_pools_do_no_harm() {
        let blocks = |pool: &str, size| order(pool, size, "n", &[]).take(3).count();
        assert_eq!(blocks("10.0.0.0/26", 24), 0);
        assert_eq!(blocks("10.0.0.0/26", 26), 1);
        assert_eq!(blocks("10.0.0.1/32", 32), 1);
        assert_eq!(blocks("0.0.0.0/0", 32), 3);
        assert_eq!(blocks("::/0", 128), 3);
        assert_eq!(blocks("10.0.0.0/26", 33), 0);
    }
}
