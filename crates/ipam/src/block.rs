//! What is done inside one block. None of it counts as a write by itself: [`count_write`] does, once per write.

use std::net::IpAddr;

use jiff::Timestamp;
use model::ipam::{Block, BlockAttribute};
use model::{AffinityOwner, Cidr, HandleId};

use crate::{HostReserve, Owner, Reservations};

/// A block claimed now, with every address free that the node does not keep for itself.
pub fn new_block(cidr: Cidr, owner: &AffinityOwner, reserve: Option<&HostReserve>, now: Timestamp) -> Block {
    let number = u64::try_from(now.as_nanosecond()).unwrap_or_default();
    let mut block = Block::new(cidr, Some(owner), number);
    block.affinity_claim_time = Some(second(now));
    if let Some(reserve) = reserve {
        reserve.keep_from(&mut block);
    }
    block
}

/// Every write of a block raises its number by exactly one.
pub fn count_write(block: &mut Block) {
    block.sequence_number = block.sequence_number.wrapping_add(1);
}

/// How many addresses can be taken from the block.
pub fn free_count(block: &Block, reserved: &Reservations) -> usize {
    block.unallocated.iter().filter(|&&ordinal| is_free(block, ordinal, reserved)).count()
}

/// Takes up to `count` addresses, those first that have been free the longest. Reserved ones keep their place.
pub fn take(block: &mut Block, owner: &Owner, count: usize, reserved: &Reservations) -> Vec<IpAddr> {
    let chosen: Vec<usize> = block
        .unallocated
        .iter()
        .copied()
        .filter(|&ordinal| is_free(block, ordinal, reserved))
        .take(count)
        .collect();
    allocate(block, owner, &chosen)
}

/// Takes this address; `false` if it is not free.
pub fn take_address(block: &mut Block, owner: &Owner, address: IpAddr) -> bool {
    let Some(ordinal) = block.ordinal(address).filter(|ordinal| block.unallocated.contains(ordinal)) else {
        return false;
    };
    !allocate(block, owner, &[ordinal]).is_empty()
}

pub(crate) fn allocate(block: &mut Block, owner: &Owner, ordinals: &[usize]) -> Vec<IpAddr> {
    if ordinals.is_empty() {
        return Vec::new();
    }
    block.unallocated.retain(|ordinal| !ordinals.contains(ordinal));
    let index = attribute_index(block, owner.attribute());
    for &ordinal in ordinals {
        block.allocations[ordinal] = Some(index);
        // The number before this write: a later release can name exactly this allocation by it.
        block.sequence_number_for_allocation.insert(ordinal.to_string(), block.sequence_number);
    }
    ordinals.iter().filter_map(|&ordinal| block.address(ordinal)).collect()
}

/// Gives back these addresses, which must be allocated. With a reuse delay they cool down first.
pub fn give_back(block: &mut Block, ordinals: &[usize], cooldown_from: Option<Timestamp>) {
    for &ordinal in ordinals {
        match cooldown_from {
            Some(now) => cool_down(block, ordinal, now),
            None => set_free(block, ordinal),
        }
    }
    tidy(block);
}

/// The reuse delay, as of now: frees what has cooled down long enough. Says whether anything changed.
///
/// A release that lies in the future was written by a clock that has since been put back, or by a faster one. When it
/// really was nobody knows, but not later than now: the delay starts anew, so that nothing is free too early and
/// nothing waits for a year to come. This must be written to have an effect; see [`crate::settle_cooldown`].
pub fn free_cooled(block: &mut Block, now: Timestamp, cooldown_seconds: i64) -> bool {
    let mut has_changed = false;
    for ordinal in 0..block.allocations.len() {
        let Some(released) = block.attribute(ordinal).and_then(released_at) else { continue };
        let age = now.as_second().saturating_sub(released.as_second());
        if cooldown_seconds <= 0 || age >= cooldown_seconds {
            set_free(block, ordinal);
        } else if age < 0 {
            cool_down(block, ordinal, now);
        } else {
            continue;
        }
        has_changed = true;
    }
    if has_changed {
        tidy(block);
    }
    has_changed
}

/// Since when an address cools down. A time that cannot be read is long ago: Calico frees such an address too.
fn released_at(attribute: &BlockAttribute) -> Option<Timestamp> {
    let text = attribute.released_at.as_deref()?;
    Some(text.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

pub fn is_cooling_down(attribute: &BlockAttribute) -> bool {
    attribute.released_at.is_some()
}

/// The addresses of a handle: offset and what is known.
pub fn held_by<'a>(
    block: &'a Block,
    handle: &'a HandleId,
) -> impl Iterator<Item = (usize, &'a BlockAttribute)> {
    let attribute = |ordinal| Some((ordinal, block.attribute(ordinal)?));
    (0..block.allocations.len())
        .filter_map(attribute)
        .filter(move |(_, attribute)| attribute.handle() == Some(handle))
}

/// No address is taken or cooling down. What a Windows node keeps for itself does not count.
pub fn is_empty(block: &Block) -> bool {
    let is_unused = |ordinal| match block.allocations.get(ordinal) {
        None | Some(None) => true,
        Some(Some(_)) => block
            .attribute(ordinal)
            .and_then(BlockAttribute::handle)
            .is_some_and(HandleId::is_windows_reserved),
    };
    (0..block.allocations.len()).all(is_unused)
}

pub fn is_of_windows(block: &Block) -> bool {
    let held = (0..block.allocations.len()).filter_map(|ordinal| block.attribute(ordinal)?.handle());
    held.into_iter().any(HandleId::is_windows_reserved)
}

/// Makes an empty block another owner's, as if it had just been claimed; only its number goes on.
pub(crate) fn hand_over(
    block: &mut Block,
    owner: &AffinityOwner,
    reserve: Option<&HostReserve>,
    now: Timestamp,
) {
    block.allocations.iter_mut().for_each(|allocation| *allocation = None);
    let missing: Vec<usize> =
        (0..block.allocations.len()).filter(|ordinal| !block.unallocated.contains(ordinal)).collect();
    block.unallocated.extend(missing);
    tidy(block);
    block.set_owner(Some(owner));
    block.affinity_claim_time = Some(second(now));
    if let Some(reserve) = reserve {
        reserve.keep_from(block);
    }
}

/// Whether the block was claimed at least so long ago. A claim without a time is old.
pub(crate) fn is_claim_older_than(block: &Block, seconds: i64, now: Timestamp) -> bool {
    let claimed = block.affinity_claim_time.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    claimed.is_none_or(|claimed| now.as_second().saturating_sub(claimed.as_second()) >= seconds)
}

/// Removes what nothing refers to: attributes without an address (and rewrites the indexes of the others), numbers of
/// addresses that are free.
pub(crate) fn tidy(block: &mut Block) {
    let mut moved_to = vec![None; block.attributes.len()];
    for &index in block.allocations.iter().flatten() {
        if let Some(place) = moved_to.get_mut(index) {
            *place = Some(0);
        }
    }
    let allocations = &block.allocations;
    let is_taken = |text: &str| {
        let ordinal = text.parse().ok().and_then(|ordinal: usize| allocations.get(ordinal));
        ordinal.is_some_and(Option::is_some)
    };
    block.sequence_number_for_allocation.retain(|ordinal, _| is_taken(ordinal));
    if moved_to.iter().all(Option::is_some) {
        return;
    }
    for (next, place) in moved_to.iter_mut().flatten().enumerate() {
        *place = next;
    }
    let mut used = moved_to.iter().map(Option::is_some);
    block.attributes.retain(|_| used.next() == Some(true));
    for index in block.allocations.iter_mut().flatten() {
        // An index that was out of range stays so: there are fewer attributes now.
        if let Some(&Some(place)) = moved_to.get(*index) {
            *index = place;
        }
    }
}

/// As Calico writes times into blocks.
pub(crate) fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn is_free(block: &Block, ordinal: usize, reserved: &Reservations) -> bool {
    block.allocations.get(ordinal).is_some_and(Option::is_none)
        && block.address(ordinal).is_some_and(|address| !reserved.contains(address))
}

pub(crate) fn attribute_index(block: &mut Block, wanted: BlockAttribute) -> usize {
    if let Some(index) = block.attributes.iter().position(|known| *known == wanted) {
        return index;
    }
    block.attributes.push(wanted);
    block.attributes.len() - 1
}

fn set_free(block: &mut Block, ordinal: usize) {
    block.allocations[ordinal] = None;
    if !block.unallocated.contains(&ordinal) {
        block.unallocated.push(ordinal);
    }
}

fn cool_down(block: &mut Block, ordinal: usize, now: Timestamp) {
    let wanted = BlockAttribute { released_at: Some(second(now)), ..BlockAttribute::default() };
    let index = attribute_index(block, wanted);
    block.allocations[ordinal] = Some(index);
}
