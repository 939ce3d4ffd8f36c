//! All blocks of one IP version at one moment, for a search that would otherwise ask for them one by one.

use std::collections::{BTreeMap, BTreeSet};

use model::ipam::Block;
use model::{AffinityOwner, Cidr, IpVersion};

use crate::ask::{Sight, sight_block};
use crate::block::{free_cooled, free_count, is_empty, is_of_windows};
use crate::{Answer, Reservations};

/// More blocks with something in them are not kept whole: they are looked at again if they are needed.
const KEPT_WHOLE_MAX: usize = 64;

/// What a node can get out of a block that is not its own, for as long as the block is not written. Time alone does not change it:
/// addresses that cool down count as free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// Something in it is free.
    may_lend: bool,
    /// Nothing in it is taken, and its owner is a node.
    may_change_hands: bool,
}

/// What is known about a block that exists.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Surveyed {
    /// `None` if it has to be looked at.
    prospect: Option<Prospect>,
    pub(super) answer: Option<Box<Answer>>,
}

/// What a search wants to know about the blocks that exist. Who drives the decision calls, for every block of the IP version that
/// there is at one moment, one of [`exists`](Survey::exists), [`recall`](Survey::recall) and [`read`](Survey::read), and hands
/// the survey back.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    version: IpVersion,
    owner: AffinityOwner,
    reserved: Reservations,
    /// Networks of the pools that serve, and the size of their blocks.
    pools: Vec<(Cidr, u8)>,
    /// Blocks that the search knows already.
    known: BTreeSet<Cidr>,
    blocks: BTreeMap<Cidr, Surveyed>,
    kept_whole: usize,
}

impl Prospect {
    fn of(block: &Block, reserved: &Reservations) -> Prospect {
        let mut block = block.clone();
        // A delay of nothing: as if everything had cooled down.
        free_cooled(&mut block, jiff::Timestamp::UNIX_EPOCH, 0);
        let is_nodes = matches!(block.owner(), Some(AffinityOwner::Host(_)));
        Prospect {
            may_lend: !is_of_windows(&block) && free_count(&block, reserved) > 0,
            may_change_hands: is_nodes && is_empty(&block) && free_count(&block, reserved) > 0,
        }
    }

    fn is_any(self) -> bool {
        self.may_lend || self.may_change_hands
    }
}

impl Surveyed {
    /// Whether the block must be looked at by whoever takes over empty blocks, or borrows.
    pub(super) fn may_be_of_use(&self, prospect: impl Fn(Prospect) -> bool) -> bool {
        self.prospect.is_none_or(prospect)
    }
}

pub(super) fn may_change_hands(prospect: Prospect) -> bool {
    prospect.may_change_hands
}

pub(super) fn may_lend(prospect: Prospect) -> bool {
    prospect.may_lend
}

impl Survey {
    pub(super) fn new(
        version: IpVersion,
        owner: AffinityOwner,
        reserved: Reservations,
        pools: Vec<(Cidr, u8)>,
        known: BTreeSet<Cidr>,
    ) -> Survey {
        Survey { version, owner, reserved, pools, known, blocks: BTreeMap::new(), kept_whole: 0 }
    }

    pub fn version(&self) -> IpVersion {
        self.version
    }

    /// What prospects depend on besides blocks: those that were found under others are worth nothing.
    pub fn reserved(&self) -> &Reservations {
        &self.reserved
    }

    /// Whether the search can use the block, so that it matters what is in it.
    pub fn wants(&self, block: &Cidr) -> bool {
        let is_pools = |(pool, size): &(Cidr, u8)| *size == block.prefix_len() && pool.contains_cidr(block);
        !self.known.contains(block) && self.pools.iter().any(is_pools) && !self.reserved.covers(block)
    }

    /// The block exists. More is not known.
    pub fn exists(&mut self, block: Cidr) {
        self.put(block, None, None);
    }

    /// The block exists, and was not written since this was found out.
    pub fn recall(&mut self, block: Cidr, prospect: Prospect) {
        self.put(block, Some(prospect), None);
    }

    /// The block is this. Gives what is worth remembering of it, with its revision.
    pub fn read(&mut self, block: Cidr, answer: Answer) -> Option<Prospect> {
        let prospect = self.prospect(block, &answer);
        let is_kept = prospect.is_none_or(Prospect::is_any) && self.kept_whole < KEPT_WHOLE_MAX;
        let is_kept = is_kept && self.wants(&block);
        self.kept_whole += usize::from(is_kept);
        self.put(block, prospect, is_kept.then(|| Box::new(answer)));
        prospect
    }

    /// What is worth remembering of a block that was read, with its revision.
    pub fn prospect(&self, block: Cidr, answer: &Answer) -> Option<Prospect> {
        match sight_block(block, answer.clone()) {
            Sight::There(stored) if stored.value.owner().as_ref() != Some(&self.owner) => {
                Some(Prospect::of(&stored.value, &self.reserved))
            }
            _ => None,
        }
    }

    fn put(&mut self, block: Cidr, prospect: Option<Prospect>, answer: Option<Box<Answer>>) {
        if self.wants(&block) {
            self.blocks.insert(block, Surveyed { prospect, answer });
        }
    }

    pub(super) fn into_blocks(self) -> BTreeMap<Cidr, Surveyed> {
        self.blocks
    }
}
