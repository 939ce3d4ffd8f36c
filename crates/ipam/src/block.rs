//! What is done inside one block. Each of these belongs to one write of the block.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use model::Cidr;
use model::ipam::{Block, BlockAttribute};

/// An attribute of ours beside Calico's: which interface of the sandbox an address is for. All attachments of one
/// container to one network share a handle, and each is released on its own.
pub const INTERFACE_ATTRIBUTE: &str = "interface";

/// Who holds an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub handle: String,
    pub attributes: BTreeMap<String, String>,
}

/// Takes the address that has been free the longest and is not reserved; `None` if there is none. Raises the block's
/// sequence number: it is one write.
pub fn take(block: &mut Block, owner: &Owner, reserved: &[Cidr]) -> Option<IpAddr> {
    let is_fit = |&ordinal: &usize| {
        let is_free = block.allocations.get(ordinal).is_some_and(Option::is_none);
        is_free && block.address(ordinal).is_some_and(|address| !is_reserved(address, reserved))
    };
    let position = block.unallocated.iter().position(is_fit)?;
    let ordinal = block.unallocated.remove(position);
    let index = attribute_index(block, owner);
    block.allocations[ordinal] = Some(index);
    // The number before this write: a later release can name exactly this allocation by it.
    block.sequence_number_for_allocation.insert(ordinal.to_string(), block.sequence_number);
    block.sequence_number += 1;
    block.address(ordinal)
}

/// Gives back every address of `handle` for which `is_meant` says so. With a reuse delay they cool down first.
/// Raises the block's sequence number if there were any. `is_meant` gets the address, what is known about it, and
/// the sequence number of its allocation.
pub fn release(
    block: &mut Block,
    handle: &str,
    is_meant: impl Fn(IpAddr, &BlockAttribute, u64) -> bool,
    cooldown_from: Option<Timestamp>,
) -> Vec<IpAddr> {
    let mut released = Vec::new();
    for ordinal in 0..block.allocations.len() {
        let Some(attribute) = block.attribute(ordinal) else { continue };
        let Some(address) = block.address(ordinal) else { continue };
        if attribute.handle() == Some(handle) && is_meant(address, attribute, block.sequence_of(ordinal)) {
            released.push((ordinal, address));
        }
    }
    if released.is_empty() {
        return Vec::new();
    }
    for &(ordinal, _) in &released {
        match cooldown_from {
            Some(now) => cool_down(block, ordinal, now),
            None => set_free(block, ordinal),
        }
    }
    drop_unused_attributes(block);
    block.sequence_number += 1;
    released.into_iter().map(|(_, address)| address).collect()
}

/// Frees the addresses that have cooled down long enough. Part of whatever write comes next.
pub fn free_expired(block: &mut Block, now: Timestamp, cooldown_seconds: i64) {
    let is_over = |attribute: &BlockAttribute| {
        let released = attribute.released_at.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        released.is_some_and(|released| now.as_second() - released.as_second() >= cooldown_seconds)
    };
    let expired: Vec<usize> = (0..block.allocations.len())
        .filter(|&ordinal| block.attribute(ordinal).is_some_and(is_over))
        .collect();
    for &ordinal in &expired {
        set_free(block, ordinal);
    }
    if !expired.is_empty() {
        drop_unused_attributes(block);
    }
}

/// How many addresses of the block a handle holds.
pub(crate) fn count_of(block: &Block, handle: &str) -> usize {
    let is_held =
        |ordinal: &usize| block.attribute(*ordinal).and_then(BlockAttribute::handle) == Some(handle);
    (0..block.allocations.len()).filter(is_held).count()
}

/// No address is taken or cooling down.
pub(crate) fn is_empty(block: &Block) -> bool {
    block.allocations.iter().all(Option::is_none)
}

pub(crate) fn is_reserved(address: IpAddr, reserved: &[Cidr]) -> bool {
    reserved.iter().any(|network| network.contains(address))
}

fn attribute_index(block: &mut Block, owner: &Owner) -> usize {
    let wanted = BlockAttribute {
        handle_id: Some(owner.handle.clone()),
        secondary: owner.attributes.clone(),
        ..BlockAttribute::default()
    };
    if let Some(index) = block.attributes.iter().position(|known| *known == wanted) {
        return index;
    }
    block.attributes.push(wanted);
    block.attributes.len() - 1
}

fn set_free(block: &mut Block, ordinal: usize) {
    block.allocations[ordinal] = None;
    block.sequence_number_for_allocation.remove(&ordinal.to_string());
    if !block.unallocated.contains(&ordinal) {
        block.unallocated.push(ordinal);
    }
}

fn cool_down(block: &mut Block, ordinal: usize, now: Timestamp) {
    let released_at = Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let wanted = BlockAttribute { released_at, ..BlockAttribute::default() };
    let known = block.attributes.iter().position(|attribute| *attribute == wanted);
    let index = known.unwrap_or_else(|| {
        block.attributes.push(wanted);
        block.attributes.len() - 1
    });
    block.allocations[ordinal] = Some(index);
}

/// Attributes that no address refers to are removed, and the indexes of the others rewritten.
fn drop_unused_attributes(block: &mut Block) {
    let mut moved_to = vec![None; block.attributes.len()];
    for &index in block.allocations.iter().flatten() {
        if let Some(place) = moved_to.get_mut(index) {
            *place = Some(0);
        }
    }
    for (next, place) in moved_to.iter_mut().flatten().enumerate() {
        *place = next;
    }
    let mut used = moved_to.iter().map(Option::is_some);
    block.attributes.retain(|_| used.next() == Some(true));
    for index in block.allocations.iter_mut().flatten() {
        if let Some(&Some(place)) = moved_to.get(*index) {
            *index = place;
        }
    }
}
