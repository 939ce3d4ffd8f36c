//! Addresses that a node keeps of every block for itself, as Windows nodes do.

use std::collections::BTreeMap;

use model::ipam::Block;
use model::{Cidr, HandleId};

use crate::Owner;
use crate::block::allocate;
use crate::reserved::size;

/// So many addresses at either end of a block are taken as soon as the block is the node's. They have no handle record,
/// and a block with nothing else in it counts as empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReserve {
    pub first: usize,
    pub last: usize,
}

/// What stands beside the addresses, in Calico's words.
const NOTE_ATTRIBUTE: &str = "note";
const NOTE: &str = "windows host rsvd";

impl HostReserve {
    /// Network, gateway and DNS stand-in at the start, broadcast at the end.
    pub const WINDOWS: HostReserve = HostReserve { first: 3, last: 1 };

    /// Whether a block of this size has anything left.
    pub fn leaves_room(&self, block: &Cidr) -> bool {
        size(block) > (self.first + self.last) as u128
    }

    /// Takes the addresses from a block that is new, or new to the node.
    pub fn keep_from(&self, block: &mut Block) {
        let capacity = block.capacity();
        let is_kept = |ordinal: &usize| *ordinal < self.first || *ordinal + self.last >= capacity;
        let kept: Vec<usize> = block.unallocated.iter().copied().filter(is_kept).collect();
        let owner = Owner { handle: HandleId::WINDOWS_RESERVED.into(), attributes: BTreeMap::new() };
        allocate(block, &owner.with(NOTE_ATTRIBUTE, NOTE), &kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{free_count, is_empty, is_of_windows};

    fn kept(cidr: &str, reserve: HostReserve) -> Block {
        let mut block = Block::new(cidr.parse().unwrap(), None, 7);
        reserve.keep_from(&mut block);
        block
    }

    #[test]
    fn the_ends_of_a_block_are_kept() {
        let block = kept("10.0.0.0/29", HostReserve::WINDOWS);
        assert_eq!(block.unallocated, [3, 4, 5, 6]);
        assert_eq!(block.contradictions(), [] as [String; 0]);
        assert_eq!(
            (free_count(&block, &Default::default()), is_empty(&block), is_of_windows(&block)),
            (4, true, true)
        );
        let attribute = block.attribute(7).unwrap();
        assert_eq!(attribute.handle(), Some(&"windows-reserved-ipam-handle".into()));
        assert_eq!(
            attribute.secondary,
            BTreeMap::from([("note".to_owned(), "windows host rsvd".to_owned())])
        );
    }

    /// Checklist: host-reserved addresses in a new /30: only the third address is free.
    #[test]
    fn of_four_addresses_the_third_is_left() {
        let block = kept("10.0.0.0/30", HostReserve { first: 2, last: 1 });
        assert_eq!(block.unallocated, [2]);
    }

    #[test]
    fn a_block_can_be_too_small() {
        let leaves_room = |cidr: &str| HostReserve::WINDOWS.leaves_room(&cidr.parse().unwrap());
        assert!(leaves_room("10.0.0.0/29") && leaves_room("fd00::/125"));
        assert!(!leaves_room("10.0.0.0/30") && !leaves_room("fd00::/126"));
        // Nothing is taken twice where the two ends meet.
        assert_eq!(kept("10.0.0.0/31", HostReserve::WINDOWS).unallocated, [] as [usize; 0]);
    }
}
