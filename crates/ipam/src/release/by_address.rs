//! Giving back addresses by name, and asking whose an address is.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::IpAddr;

use jiff::Timestamp;
use model::ipam::{Block, BlockAttribute, Handle};
use model::{Cidr, HandleId, IpVersion, Key};

use super::{Freeing, Released};
use crate::ask::{Pause, Seen, Sight, next};
use crate::block::is_cooling_down;
use crate::{Answer, Corrupt, Decision, Next, Pool, Stored};

/// An address to give back, and what must be true of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReleaseItem {
    pub address: IpAddr,
    /// Only if this handle holds it.
    pub handle: Option<HandleId>,
    /// Only if it is still that allocation.
    pub sequence_number: Option<u64>,
}

/// Something that was not released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", item.address)]
pub struct Unreleased {
    pub item: ReleaseItem,
    pub why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Also while it cools down: it was released before.
    #[error("not allocated")]
    NotAllocated,
    #[error("held by {}", .0.as_ref().map_or("an owner without handle", HandleId::as_str))]
    OtherHandle(Option<HandleId>),
    #[error("allocated anew since, with number {0}")]
    OtherNumber(u64),
    #[error(transparent)]
    Corrupt(Corrupt),
}

/// Gives back addresses, each with its own conditions. One that cannot be released does not hold up the others.
#[derive(Debug)]
pub struct AddressRelease {
    items: Vec<ReleaseItem>,
    pools: Vec<Pool>,
    cooldown_from: Option<Timestamp>,
    changes_max: usize,
    seen: Seen,
}

impl AddressRelease {
    /// `pools` only help to find the blocks: all of them, in service or not. An address that is in none is found too.
    pub fn new(
        items: impl IntoIterator<Item = ReleaseItem>,
        pools: Vec<Pool>,
        cooldown_from: Option<Timestamp>,
        changes_max: usize,
    ) -> AddressRelease {
        let items: BTreeSet<ReleaseItem> = items.into_iter().collect();
        let items = items.into_iter().collect();
        AddressRelease { items, pools, cooldown_from, changes_max, seen: Seen::default() }
    }

    fn decide(&self) -> Result<Released, Pause<Infallible>> {
        let (mut meant, mut unreleased, mut later) = (Vec::new(), Vec::new(), Vec::new());
        let places = self.places()?;
        let (mut blocks, mut handles, mut ordinals) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (item, place) in self.items.iter().zip(places) {
            match check(item, place.map(|cidr| self.seen.block(&cidr))) {
                Err(why) => unreleased.push(Unreleased { item: item.clone(), why }),
                Ok((stored, ordinal, handle)) => {
                    let cidr = stored.value.cidr;
                    let is_new_block = !blocks.contains(&cidr);
                    let is_new_handle = handle.is_some_and(|handle| !handles.contains(handle));
                    let changes = blocks.len() + handles.len();
                    if changes + usize::from(is_new_block) + usize::from(is_new_handle) > self.changes_max {
                        later.push(item.clone());
                        continue;
                    }
                    blocks.insert(cidr);
                    handles.extend(handle.cloned());
                    // The same address twice is one release.
                    if ordinals.insert((cidr, ordinal)) {
                        meant.push((stored, ordinal));
                    }
                }
            }
        }
        self.seen.need(handles.iter().map(|id| Key::Handle(id.clone())))?;
        let mut freeing = Freeing::default();
        for (stored, ordinal) in meant {
            freeing.free(stored, &[ordinal], self.cooldown_from);
        }
        self.seen.need(freeing.affinities_needed())?;
        let (handles, corrupt) = self.handles_left(&handles, &freeing);
        let released = freeing.steps(handles, &self.seen);
        Ok(Released { unreleased, later, corrupt, ..released })
    }

    /// The block of each address.
    fn places(&self) -> Result<Vec<Option<Cidr>>, Vec<Key>> {
        let (mut places, mut missing) = (Vec::new(), BTreeSet::new());
        for item in &self.items {
            match locate(item.address, &self.pools, &self.seen) {
                Ok(place) => places.push(place),
                Err(keys) => missing.extend(keys),
            }
        }
        if missing.is_empty() { Ok(places) } else { Err(missing.into_iter().collect()) }
    }

    /// The handles as they are afterwards. One that is not there needs no change.
    fn handles_left(
        &self,
        ids: &BTreeSet<HandleId>,
        freeing: &Freeing,
    ) -> (Vec<(HandleId, Handle, String)>, Vec<Corrupt>) {
        let (mut left, mut corrupt) = (Vec::new(), Vec::new());
        for id in ids {
            let stored = match self.seen.handle(id) {
                Sight::There(stored) => stored,
                Sight::Absent | Sight::Going => continue,
                Sight::Broken(found) => {
                    corrupt.push(found.clone());
                    continue;
                }
            };
            let mut handle = stored.value.clone();
            for (before, _) in freeing.blocks.values() {
                match freeing.count(before, id) {
                    0 => handle.block.remove(&before.value.cidr.to_string()),
                    count => {
                        let count = i64::try_from(count).unwrap_or(i64::MAX);
                        handle.block.insert(before.value.cidr.to_string(), count)
                    }
                };
            }
            if handle != stored.value {
                left.push((id.clone(), handle, stored.revision.clone()));
            }
        }
        (left, corrupt)
    }
}

/// Whether the address may be released: its block, its offset and its handle.
fn check<'a>(
    item: &ReleaseItem,
    sight: Option<&'a Sight<Block>>,
) -> Result<(&'a Stored<Block>, usize, Option<&'a HandleId>), Why> {
    let stored = match sight {
        Some(Sight::There(stored)) => stored,
        Some(Sight::Broken(corrupt)) => return Err(Why::Corrupt(corrupt.clone())),
        Some(Sight::Absent | Sight::Going) | None => return Err(Why::NotAllocated),
    };
    let block = &stored.value;
    let ordinal = block.ordinal(item.address).ok_or(Why::NotAllocated)?;
    let attribute = block.attribute(ordinal).filter(|attribute| !is_cooling_down(attribute));
    let handle = attribute.ok_or(Why::NotAllocated)?.handle();
    if item.handle.is_some() && item.handle.as_ref() != handle {
        return Err(Why::OtherHandle(handle.cloned()));
    }
    let number = block.sequence_of(ordinal);
    if item.sequence_number.is_some_and(|expected| expected != number) {
        return Err(Why::OtherNumber(number));
    }
    Ok((stored, ordinal, handle))
}

/// The block that an address is in: the one of its pool, else of whatever size. Sizes are few, so that no list of all
/// blocks is needed even for an address whose pool is gone.
pub(crate) fn locate(address: IpAddr, pools: &[Pool], seen: &Seen) -> Result<Option<Cidr>, Vec<Key>> {
    let of_pool: BTreeSet<Cidr> = pools.iter().filter_map(|pool| pool.block_of(address)).collect();
    let is_there = |cidr: &Cidr| matches!(seen.block(cidr), Sight::There(_) | Sight::Broken(_));
    seen.need(of_pool.iter().map(|cidr| Key::Block(*cidr)))?;
    if let Some(found) = of_pool.iter().find(|cidr| is_there(cidr)) {
        return Ok(Some(*found));
    }
    let sizes = match IpVersion::of(address) {
        IpVersion::V4 => 20..=32,
        IpVersion::V6 => 116..=128,
    };
    let any: Vec<Cidr> = sizes.filter_map(|size| Cidr::containing(address, size)).collect();
    seen.need(any.iter().map(|cidr| Key::Block(*cidr)))?;
    Ok(any.into_iter().find(|cidr| is_there(cidr)))
}

/// Asks whose an address is, in whatever pool, or in none.
#[derive(Debug)]
pub struct AddressLookup {
    address: IpAddr,
    pools: Vec<Pool>,
    seen: Seen,
}

/// An address in use.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    pub block: Cidr,
    pub attribute: BlockAttribute,
    pub sequence_number: u64,
}

impl AddressLookup {
    pub fn new(address: IpAddr, pools: Vec<Pool>) -> AddressLookup {
        AddressLookup { address, pools, seen: Seen::default() }
    }

    fn decide(&self) -> Result<Option<Allocation>, Pause<Corrupt>> {
        let Some(cidr) = locate(self.address, &self.pools, &self.seen)? else { return Ok(None) };
        let stored = match self.seen.block(&cidr) {
            Sight::There(stored) => stored,
            Sight::Broken(corrupt) => return Err(Pause::Fail(corrupt.clone())),
            Sight::Absent | Sight::Going => return Ok(None),
        };
        let Some(ordinal) = stored.value.ordinal(self.address) else { return Ok(None) };
        Ok(stored.value.attribute(ordinal).map(|attribute| Allocation {
            block: cidr,
            attribute: attribute.clone(),
            sequence_number: stored.value.sequence_of(ordinal),
        }))
    }
}

impl Decision for AddressLookup {
    type Outcome = Option<Allocation>;
    type Error = Corrupt;

    fn poll(&mut self) -> Result<Next<Option<Allocation>>, Corrupt> {
        next(self.decide())
    }

    fn show(&mut self, key: &Key, answer: Answer) {
        self.seen.show(key, answer);
    }
}

impl Decision for AddressRelease {
    type Outcome = Released;
    type Error = Infallible;

    fn poll(&mut self) -> Result<Next<Released>, Infallible> {
        next(self.decide())
    }

    fn show(&mut self, key: &Key, answer: Answer) {
        self.seen.show(key, answer);
    }
}
