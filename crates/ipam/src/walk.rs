//! The order in which a node looks for a block of its own in a pool.

use std::net::IpAddr;

use model::Cidr;

/// FNV-1, 32 bits.
pub fn fnv1(text: &str) -> u32 {
    text.bytes().fold(2_166_136_261, |hash, byte| hash.wrapping_mul(16_777_619) ^ u32::from(byte))
}

/// Every block of a pool once, starting at a place that depends on the node, so that nodes seldom try for the same.
/// Empty if a block would be larger than the pool.
pub fn block_order(pool: Cidr, block_size: u8, host: &str) -> impl Iterator<Item = Cidr> + use<> {
    let bits = pool.version().bits();
    let is_possible = block_size >= pool.prefix_len() && block_size <= bits;
    let index_bits = if is_possible { block_size - pool.prefix_len() } else { 0 };
    // A pool of more than 2^32 blocks is only walked that far; nobody claims that many.
    let count = if is_possible { 1u64 << index_bits.min(32) } else { 0 };
    let start = if count == 0 { 0 } else { u64::from(fnv1(host)) % count };
    (0..count).filter_map(move |offset| {
        let index = u128::from((start + offset) % count);
        let distance = index << (bits - block_size);
        Cidr::containing(address_at(pool.network(), distance)?, block_size)
    })
}

fn address_at(base: IpAddr, distance: u128) -> Option<IpAddr> {
    Some(match base {
        IpAddr::V4(base) => IpAddr::V4(u32::from(base).checked_add(u32::try_from(distance).ok()?)?.into()),
        IpAddr::V6(base) => IpAddr::V6(u128::from(base).checked_add(distance)?.into()),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_hash_is_fnv_1() {
        assert_eq!(fnv1("node-a"), 568_266_999);
    }

    #[test]
    fn every_block_comes_once() {
        let pool: Cidr = "10.0.0.0/24".parse().unwrap();
        let blocks: Vec<Cidr> = block_order(pool, 26, "node-a").collect();
        assert_eq!(blocks.len(), 4);
        assert_eq!(blocks.iter().collect::<BTreeSet<_>>().len(), 4);
        assert!(blocks.iter().all(|block| pool.contains_cidr(block) && block.prefix_len() == 26));
        assert_eq!(blocks[0], "10.0.0.192/26".parse().unwrap());
        assert_eq!(blocks[1], "10.0.0.0/26".parse().unwrap());
    }

    #[test]
    fn odd_pools_do_no_harm() {
        let blocks = |pool: &str, size| block_order(pool.parse().unwrap(), size, "n").take(3).count();
        assert_eq!(blocks("10.0.0.0/26", 24), 0);
        assert_eq!(blocks("10.0.0.0/26", 26), 1);
        assert_eq!(blocks("10.0.0.1/32", 32), 1);
        assert_eq!(blocks("0.0.0.0/0", 32), 3);
        assert_eq!(blocks("::/0", 128), 3);
        assert_eq!(blocks("10.0.0.0/26", 33), 0);
    }
}
