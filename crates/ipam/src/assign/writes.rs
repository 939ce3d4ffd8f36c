//! The records that change with an assignment, in the order that [`crate::step`] explains.

use std::collections::BTreeMap;

use model::ipam::{AffinityState, Block, Handle};
use model::{AffinityOwner, Cidr, HandleId, Key, Kind};

use super::Surroundings;
use super::search::{Found, How};
use crate::affinity::{affinity_value, begin_claim, finish_claim};
use crate::block::count_write;
use crate::books::count_by_handle;
use crate::{Step, Steps, Stored};

/// Collects what an assignment changes.
pub(super) struct Writes<'a> {
    surroundings: &'a Surroundings,
    owner: AffinityOwner,
    /// How each block was come by, and the block with its addresses taken.
    blocks: Vec<(Found, Block)>,
    /// As they will be, and as they were read.
    handles: BTreeMap<HandleId, (Handle, Option<Stored<Handle>>)>,
    stale: Vec<(Cidr, String)>,
}

impl How {
    /// How many changes the use of a block costs at most.
    pub(super) fn changes_max(&self) -> usize {
        match self {
            How::Borrow => 1,
            How::Own | How::Claim => 2,
            How::Reclaim { .. } => 3,
        }
    }
}

impl<'a> Writes<'a> {
    pub(super) fn new(surroundings: &'a Surroundings, owner: AffinityOwner) -> Writes<'a> {
        Writes { surroundings, owner, blocks: Vec::new(), handles: BTreeMap::new(), stale: Vec::new() }
    }

    pub(super) fn add_handle(&mut self, id: HandleId, known: Option<&Stored<Handle>>) {
        self.handles.entry(id).or_insert_with(|| {
            let value = known.map_or_else(Handle::default, |stored| stored.value.clone());
            (value, known.cloned())
        });
    }

    pub(super) fn add_block(&mut self, found: Found, mut taken: Block) {
        count_write(&mut taken);
        self.blocks.push((found, taken));
    }

    /// Affinities of ours for blocks that are another's: the block is right.
    pub(super) fn remove_stale<'b>(&mut self, blocks: impl Iterator<Item = &'b Cidr>, changes_max: usize) {
        let is_taken_over = |block: &Cidr| {
            self.blocks.iter().any(|(found, _)| found.block.cidr == *block && found.how != How::Borrow)
        };
        let known = blocks.filter(|block| !is_taken_over(block)).filter_map(|block| {
            self.surroundings.affinity(block).map(|affinity| (*block, affinity.revision.clone()))
        });
        self.stale = known.take(changes_max).collect();
    }

    /// The steps, and the handles that would be written as they are ([`super::Assigned::unchanged_handles`]).
    pub(super) fn steps(mut self) -> (Steps, Vec<HandleId>) {
        let (mut steps, mut unchanged) = (Steps::default(), Vec::new());
        if !self.blocks.is_empty() {
            steps.push(self.surroundings.settings_step());
        }
        self.require_pools(&mut steps);
        for (found, _) in &self.blocks {
            self.begin(found, &mut steps);
        }
        self.count_addresses();
        self.blocks.sort_by_key(|(_, taken)| taken.cidr);
        for (id, (handle, known)) in std::mem::take(&mut self.handles) {
            if known.as_ref().is_some_and(|known| known.value == handle) {
                unchanged.push(id.clone());
            }
            steps.put(Key::Handle(id), handle.encode(), known.map(|known| known.revision));
        }
        for (found, taken) in &self.blocks {
            match &found.revision {
                Some(revision) => steps.put(taken.key(), taken.encode(), Some(revision.clone())),
                None => steps.again(taken.key(), taken.encode()),
            }
        }
        for (found, _) in &self.blocks {
            self.finish(found, &mut steps);
        }
        for (block, revision) in &self.stale {
            steps.push(Step::Delete { key: self.affinity_key(*block), revision: revision.clone() });
        }
        (steps, unchanged)
    }

    fn require_pools(&self, steps: &mut Steps) {
        let mut pools: Vec<usize> = self.blocks.iter().map(|(found, _)| found.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        for position in pools {
            let pool = &self.surroundings.pools[position];
            let key = Key::cluster(Kind::IpPool, &pool.value.name);
            steps.push(Step::Require { key, revision: pool.revision.clone() });
        }
    }

    /// Everything that comes before the addresses are taken.
    fn begin(&self, found: &Found, steps: &mut Steps) {
        let known = self.surroundings.affinity(&found.block.cidr);
        match &found.how {
            How::Borrow => return,
            How::Own => {
                if self.surroundings.is_confirmed(&found.block.cidr) {
                    return;
                }
            }
            How::Claim => {}
            How::Reclaim { from, affinity } => {
                let key = Key::Affinity { owner: from.clone(), block: found.block.cidr };
                steps.push(match affinity {
                    Some(stored) => Step::Update {
                        key,
                        value: affinity_value(&stored.value, AffinityState::PendingDeletion),
                        revision: stored.revision.clone(),
                    },
                    None => Step::RequireAbsent { key },
                });
            }
        }
        begin_claim(self.affinity_key(found.block.cidr), known, steps);
        if found.how == How::Claim {
            // Empty at first: a handle is only ever written for a block that is there. See `recover`.
            steps.put(found.block.key(), found.block.encode(), None);
        }
    }

    /// Everything that comes after the addresses are taken.
    fn finish(&self, found: &Found, steps: &mut Steps) {
        if found.how == How::Borrow {
            return;
        }
        if let How::Reclaim { from, affinity: Some(_) } = &found.how {
            steps.remove(Key::Affinity { owner: from.clone(), block: found.block.cidr });
        }
        let known = self.surroundings.affinity(&found.block.cidr);
        let is_new = found.how == How::Claim;
        finish_claim(self.affinity_key(found.block.cidr), known, is_new, steps);
    }

    /// Counted, not added up: a count that was wrong is right from now on.
    fn count_addresses(&mut self) {
        for (_, taken) in &self.blocks {
            let block = taken.cidr.to_string();
            for (id, count) in count_by_handle(taken) {
                if let Some((handle, _)) = self.handles.get_mut(id) {
                    handle.block.insert(block.clone(), count);
                }
            }
        }
    }

    fn affinity_key(&self, block: Cidr) -> Key {
        Key::Affinity { owner: self.owner.clone(), block }
    }
}
