//! What repairs do inside one block, past the rules of giving and taking.

use std::net::IpAddr;

use model::ipam::{Block, BlockAttribute};

use crate::block::{attribute_index, tidy};

/// Makes an address somebody's, or free, whatever it was before. The place must be in the block.
pub fn set_allocation(block: &mut Block, ordinal: usize, owner: Option<BlockAttribute>) {
    block.unallocated.retain(|free| *free != ordinal);
    match owner {
        Some(owner) => {
            let index = attribute_index(block, owner);
            block.allocations[ordinal] = Some(index);
            block.sequence_number_for_allocation.insert(ordinal.to_string(), block.sequence_number);
        }
        None => {
            block.allocations[ordinal] = None;
            block.unallocated.push(ordinal);
        }
    }
    tidy(block);
}

/// Makes the lists of a block agree. What is allocated stays allocated; an address whose owner is lost gets the one in
/// `owners`, or becomes free; what is free keeps its place in the line.
pub fn mend_lists(block: &mut Block, owners: &[(IpAddr, BlockAttribute)]) {
    block.allocations.resize(block.capacity(), None);
    for ordinal in 0..block.allocations.len() {
        let is_lost = block.allocations[ordinal].is_some_and(|index| index >= block.attributes.len());
        if !is_lost {
            continue;
        }
        let owner = owners.iter().find(|(address, _)| block.ordinal(*address) == Some(ordinal));
        block.allocations[ordinal] = owner.map(|(_, owner)| attribute_index(block, owner.clone()));
    }
    let mut is_listed = vec![false; block.allocations.len()];
    let allocations = &block.allocations;
    block.unallocated.retain(|&ordinal| {
        let is_free = allocations.get(ordinal).is_some_and(Option::is_none);
        is_free && !std::mem::replace(&mut is_listed[ordinal], true)
    });
    let forgotten =
        (0..allocations.len()).filter(|&ordinal| allocations[ordinal].is_none() && !is_listed[ordinal]);
    block.unallocated.extend(forgotten);
    let block_number = block.sequence_number;
    block
        .sequence_number_for_allocation
        .values_mut()
        .for_each(|number| *number = (*number).min(block_number));
    tidy(block);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use model::HandleId;

    use super::*;

    fn block() -> Block {
        Block::new("10.0.0.0/29".parse().unwrap(), None, 7)
    }

    fn owner(handle: &str) -> BlockAttribute {
        BlockAttribute { handle_id: Some(handle.into()), ..BlockAttribute::default() }
    }

    #[test]
    fn an_address_is_given_and_freed() {
        let mut block = block();
        set_allocation(&mut block, 3, Some(owner("a")));
        set_allocation(&mut block, 4, Some(owner("a")));
        assert_eq!(block.contradictions(), [] as [&str; 0]);
        assert_eq!((block.attribute(3).unwrap().handle(), block.attributes.len()), (Some(&"a".into()), 1));
        set_allocation(&mut block, 3, Some(owner("b")));
        set_allocation(&mut block, 4, None);
        assert_eq!(block.contradictions(), [] as [&str; 0]);
        assert_eq!((block.attributes.len(), block.attribute(4)), (1, None));
    }

    #[test]
    fn who_is_lost_is_found_or_freed() {
        let mut block = block();
        block.allocations[1] = Some(5);
        block.allocations[2] = Some(5);
        mend_lists(&mut block, &[("10.0.0.1".parse().unwrap(), owner("a"))]);
        assert_eq!(block.contradictions(), [] as [&str; 0]);
        assert_eq!(block.attribute(1).unwrap().handle(), Some(&"a".into()));
        assert_eq!(block.allocations[2], None);
    }

    proptest! {
        /// Whatever the lists hold: afterwards they agree, and whoever had an address has it still.
        #[test]
        fn any_lists_are_made_to_agree(
            allocations in proptest::collection::vec(proptest::option::of(0usize..4), 0..12),
            unallocated in proptest::collection::vec(0usize..12, 0..12),
            numbers in proptest::collection::btree_map("[0-9x]{1,2}", 0u64..20, 0..4),
        ) {
            let mut block = block();
            block.attributes = vec![owner("a"), owner("b")];
            block.allocations = allocations;
            block.unallocated = unallocated;
            block.sequence_number_for_allocation = numbers;
            let before: Vec<Option<HandleId>> = (0..block.capacity()).map(|place| block.attribute(place)?.handle().cloned()).collect();
            mend_lists(&mut block, &[]);
            prop_assert_eq!(block.contradictions(), Vec::<String>::new());
            for (place, handle) in before.iter().enumerate().filter(|(_, handle)| handle.is_some()) {
                prop_assert_eq!(block.attribute(place).and_then(BlockAttribute::handle), handle.as_ref());
            }
        }
    }
}
