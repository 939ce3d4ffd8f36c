//! What handles with a maximum hold already.

use std::collections::BTreeMap;

use model::{AffinityOwner, HandleId, IpVersion, Key};

use super::{AssignError, Granted, Version, Want};
use crate::ask::{Seen, Sight};
use crate::{Corrupt, held_by};

/// Addresses by handle, as the blocks have them; only of handles with a maximum.
#[derive(Debug, Default)]
pub(super) struct Holdings(BTreeMap<HandleId, Result<Vec<Granted>, Corrupt>>);

/// What an owner gets of one IP version: those it has, and so many new ones.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Share {
    pub(super) again: Vec<Granted>,
    pub(super) new: usize,
    pub(super) shortage: Option<AssignError>,
}

/// The blocks that must be looked at before it is known what these owners hold.
pub(super) fn blocks_of_limited(wants: &[Want]) -> impl Iterator<Item = Key> {
    let handles =
        wants.iter().filter(|want| want.handle_max.is_some()).filter_map(|want| want.handle.as_ref());
    handles.flat_map(|handle| handle.value.blocks().map(Key::Block))
}

impl Holdings {
    pub(super) fn of(wants: &[Want], ours: &AffinityOwner, seen: &Seen) -> Holdings {
        let mut holdings = BTreeMap::new();
        for want in wants.iter().filter(|want| want.handle_max.is_some()) {
            let Some(handle) = &want.handle else { continue };
            let id = &want.owner.handle;
            holdings.insert(id.clone(), held_in(id, handle.value.blocks(), ours, seen));
        }
        Holdings(holdings)
    }

    pub(super) fn share(&self, want: &Want, version: IpVersion) -> Result<Share, AssignError> {
        let wanted = want.count(version);
        let Some(max) = want.handle_max else { return Ok(Share { new: wanted, ..Share::default() }) };
        let held = match self.0.get(&want.owner.handle) {
            None => Vec::new(),
            Some(Err(corrupt)) => return Err(corrupt.clone().into()),
            Some(Ok(held)) => held.iter().filter(|held| held.block.version() == version).copied().collect(),
        };
        let new = wanted.min(max.saturating_sub(held.len()));
        let again = if new < wanted { held } else { Vec::new() };
        let is_short = again.len() + new < wanted;
        let limit =
            || AssignError::HandleLimit { handle: want.owner.handle.clone(), version: Version(version), max };
        Ok(Share { again, new, shortage: is_short.then(limit) })
    }

    /// These are the owner's as well, from now on.
    pub(super) fn add(&mut self, want: &Want, granted: &[Granted]) {
        if want.handle_max.is_some()
            && let Ok(held) = self.0.entry(want.owner.handle.clone()).or_insert_with(|| Ok(Vec::new()))
        {
            held.extend(granted);
        }
    }
}

/// Every address of a handle in these blocks.
pub(super) fn held_in(
    handle: &HandleId,
    blocks: impl Iterator<Item = model::Cidr>,
    ours: &AffinityOwner,
    seen: &Seen,
) -> Result<Vec<Granted>, Corrupt> {
    let mut held = Vec::new();
    for cidr in blocks {
        let block = match seen.block(&cidr) {
            Sight::There(stored) => &stored.value,
            Sight::Absent | Sight::Going => continue,
            Sight::Broken(corrupt) => return Err(corrupt.clone()),
        };
        let is_borrowed = block.owner().as_ref() != Some(ours);
        let addresses = held_by(block, handle).filter_map(|(ordinal, _)| block.address(ordinal));
        held.extend(addresses.map(|address| Granted { address, block: cidr, is_borrowed, is_new: false }));
    }
    Ok(held)
}
