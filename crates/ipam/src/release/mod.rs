//! Giving addresses back. No pool is asked for permission, and a pool that has changed or gone stops nothing.

mod by_address;
mod by_handle;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use model::ipam::{Block, Handle};
use model::{AffinityOwner, Cidr, HandleId, Key};

pub(crate) use by_address::locate;
pub use by_address::{AddressLookup, AddressRelease, Allocation, ReleaseItem, Unreleased, Why};
pub use by_handle::{HandleRelease, release_handle};

use crate::affinity::give_up;
use crate::ask::{Seen, Sight};
use crate::block::{count_write, free_cooled, give_back, held_by, is_empty};
use crate::{Corrupt, Step, Steps, Stored};

/// What a release does, once all its steps have happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Released {
    pub addresses: Vec<IpAddr>,
    pub steps: Steps,
    /// Blocks of nodes in which no address is left. Whether the node should keep them is for
    /// [`crate::deselected_blocks`] to say.
    pub emptied: Vec<(AffinityOwner, Cidr)>,
    /// What was asked for and not done, each with the reason. The others are not held up by it.
    pub unreleased: Vec<Unreleased>,
    /// Records that contradict themselves: nothing was released into them.
    pub corrupt: Vec<Corrupt>,
    /// Items for which the commit had no room any more.
    pub later: Vec<ReleaseItem>,
}

/// Changes of blocks and handles that go with a release.
#[derive(Default)]
struct Freeing {
    /// By block: as it was read, and as it will be.
    blocks: BTreeMap<Cidr, (Stored<Block>, Block)>,
    /// Blocks in which nothing is freed, but that must stay as they were read.
    relied_on: BTreeMap<Cidr, Steps>,
    addresses: Vec<IpAddr>,
}

impl Freeing {
    /// Gives back these addresses of a block.
    fn free(&mut self, stored: &Stored<Block>, ordinals: &[usize], cooldown_from: Option<Timestamp>) {
        let (_, block) =
            self.blocks.entry(stored.value.cidr).or_insert_with(|| (stored.clone(), stored.value.clone()));
        self.addresses.extend(ordinals.iter().filter_map(|&ordinal| block.address(ordinal)));
        give_back(block, ordinals, cooldown_from);
    }

    /// How many addresses of a block a handle has afterwards.
    fn count(&self, stored: &Stored<Block>, handle: &HandleId) -> usize {
        let block = self.blocks.get(&stored.value.cidr).map_or(&stored.value, |(_, block)| block);
        held_by(block, handle).count()
    }

    /// Affinities that must be known before the blocks can be written: a block of no node goes when it is empty.
    fn affinities_needed(&self) -> impl Iterator<Item = Key> {
        self.blocks.values().filter_map(|(_, block)| match block.owner() {
            Some(owner @ AffinityOwner::Virtual(_)) if is_empty(block) => {
                Some(Key::Affinity { owner, block: block.cidr })
            }
            _ => None,
        })
    }

    /// First the blocks, in their order, then the handles: in between a handle counts too much, which is harmless.
    fn steps(mut self, handles: Vec<(HandleId, Handle, String)>, seen: &Seen) -> Released {
        let (mut steps, mut emptied) = (Steps::default(), Vec::new());
        let order: BTreeSet<Cidr> = self.blocks.keys().chain(self.relied_on.keys()).copied().collect();
        for cidr in order {
            steps.append(self.relied_on.remove(&cidr).unwrap_or_default());
            let Some((stored, mut block)) = self.blocks.remove(&cidr) else { continue };
            if let (true, Some(owner @ AffinityOwner::Host(_))) = (is_empty(&block), block.owner()) {
                emptied.push((owner, block.cidr));
            }
            count_write(&mut block);
            write_block(Stored::new(block, stored.revision), seen, &mut steps);
        }
        for (id, handle, revision) in handles {
            steps.push(handle_step(id, &handle, revision));
        }
        Released { addresses: self.addresses, steps, emptied, ..Released::default() }
    }
}

/// An empty block of nobody goes; one of no node goes together with its affinity.
fn write_block(stored: Stored<Block>, seen: &Seen, steps: &mut Steps) {
    let (key, revision) = (stored.value.key(), stored.revision.clone());
    match stored.value.owner() {
        None if is_empty(&stored.value) => steps.push(Step::Delete { key, revision }),
        Some(owner @ AffinityOwner::Virtual(_)) if is_empty(&stored.value) => {
            match seen.affinity(&owner, &stored.value.cidr) {
                Sight::Absent => steps.append(give_up(&owner, None, &stored)),
                Sight::There(known) => steps.append(give_up(&owner, Some(known), &stored)),
                Sight::Going | Sight::Broken(_) => steps.put(key, stored.value.encode(), Some(revision)),
            }
        }
        _ => steps.put(key, stored.value.encode(), Some(revision)),
    }
}

fn handle_step(id: HandleId, handle: &Handle, revision: String) -> Step {
    let key = Key::Handle(id);
    if handle.block.is_empty() {
        Step::Delete { key, revision }
    } else {
        Step::Update { key, value: handle.encode(), revision }
    }
}

/// Writes the reuse delay down, as of now: frees what has cooled down, and starts the delay anew where a release lies
/// in the future. `None` if there is nothing to write. To be called now and then for blocks with such addresses:
/// assignments do the same, but only for blocks that they take from.
pub fn settle_cooldown(stored: &Stored<Block>, now: Timestamp, cooldown_seconds: i64) -> Option<Steps> {
    let mut block = stored.value.clone();
    if block.deleted || !block.contradictions().is_empty() || !free_cooled(&mut block, now, cooldown_seconds)
    {
        return None;
    }
    count_write(&mut block);
    let mut steps = Steps::default();
    write_block(Stored::new(block, stored.revision.clone()), &Seen::default(), &mut steps);
    Some(steps)
}
