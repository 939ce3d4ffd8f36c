//! Looking for blocks with free addresses, for one IP version.

mod surveyed;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::ipam::{Affinity, AffinityState, Block};
use model::{AffinityOwner, Cidr, IpVersion, Key};

use self::surveyed::Pending;
use super::survey::Survey;
use super::{AssignError, Request, Surroundings, Version, blocks_limit};
use crate::ask::{Seen, Sight, sight_block};
use crate::block::{
    free_cooled, free_count, hand_over, is_claim_older_than, is_empty, is_of_windows, new_block,
};
use crate::{Answer, BlockOrder, Corrupt, HostReserve, Reservations, Stored};

/// The first look is at one block; each next one is at so many times more, up to the maximum. The maximum keeps a
/// look within one round trip of etcd, which takes 128 reads at once.
const LOOK_GROWTH: usize = 4;
/// A look for blocks that nobody has is at so many at least: one round trip is enough then, unless most of the pool is
/// used up. Blocks that are not there cost nothing to read; in a crowded pool more than these would.
const LOOK_UNCLAIMED_MIN: usize = 4;
const LOOK_MAX: usize = 64;

/// After so many blocks that were looked at one by one, all that exist are asked for at once: the pool is crowded, or nothing may be
/// claimed. Three looks.
const WALKED_MAX: usize = 1 + LOOK_GROWTH + LOOK_GROWTH * LOOK_GROWTH;

/// How long a block stays its owner's, though empty, before another node may take it over. Calico's number.
const CLAIM_SECONDS_MIN: i64 = 60;

/// A block that addresses may be taken from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) how: How,
    /// As it is when the taking starts: a new or taken-over block is our node's already.
    pub(super) block: Block,
    /// None for a block that is new.
    pub(super) revision: Option<String>,
    pub(super) free: usize,
    /// The position of its pool.
    pub(super) pool: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum How {
    /// The block is our node's.
    Own,
    /// There is no block yet.
    Claim,
    /// The block is another's, and empty. With the other's affinity, if there is one.
    Reclaim { from: AffinityOwner, affinity: Option<Stored<Affinity>> },
    /// The block is another's, and stays so.
    Borrow,
}

/// A block of another's, and what may be done with it.
#[derive(Debug)]
struct Other {
    found: Found,
    is_reclaimable: bool,
    is_lent: bool,
}

/// What a search needs to go on.
#[derive(Debug)]
pub(super) enum Wanted {
    /// These records; none when the search is over.
    Records(Vec<Key>),
    /// All blocks that exist.
    Survey(Box<Survey>),
}

#[derive(Debug)]
pub(super) struct Search {
    pub(super) version: IpVersion,
    host: String,
    owner: AffinityOwner,
    reserved: Reservations,
    needed: usize,
    /// Positions of the chosen pools and their names.
    pools: Vec<(usize, Cidr, u8, String)>,
    limit: usize,
    claims_on: bool,
    is_strict: bool,
    reserve: Option<HostReserve>,
    /// More blocks than that cannot be in one commit.
    blocks_useful: usize,
    /// Blocks that count against the limit.
    held: usize,
    own: VecDeque<Cidr>,
    /// Blocks that need no look before they are claimed.
    unclaimed: VecDeque<Cidr>,
    walk: VecDeque<BlockOrder>,
    known: BTreeSet<Cidr>,
    look: usize,
    /// Every block that is looked at costs a request of its own.
    reads_one_by_one: bool,
    /// The node's own blocks have been looked at.
    is_walking: bool,
    /// How many blocks were looked at that are not known to be the node's.
    walked: usize,
    /// All blocks that exist are asked for before any is looked at.
    surveys_first: bool,
    surveyed: Option<Pending>,
    asked: Vec<Cidr>,
    answers: BTreeMap<Cidr, Sight<Block>>,
    found: Vec<Found>,
    /// Blocks of others with something free in them.
    others: Vec<Other>,
    affinities: Seen,
    is_walked: bool,
    /// Affinities of ours whose block is another's.
    pub(super) stale: Vec<Cidr>,
    pub(super) corrupt: Vec<Corrupt>,
}

impl Search {
    pub(super) fn new(
        version: IpVersion,
        needed: usize,
        chosen: Vec<usize>,
        request: &Request,
        surroundings: &Surroundings,
        reserved: &Reservations,
    ) -> Search {
        let describe = |position: usize| {
            let pool = &surroundings.pools[position].value;
            (position, pool.cidr, pool.block_size, pool.name.clone())
        };
        let pools: Vec<_> = chosen.into_iter().map(describe).collect();
        let is_chosen = |block: &Cidr| pools.iter().any(|(_, pool, ..)| pool.contains_cidr(block));
        let order = |(_, pool, block_size, _): &(usize, Cidr, u8, String)| {
            BlockOrder::new(*pool, *block_size, &request.host, reserved)
        };
        let walk = pools.iter().map(order).collect();
        let live = || {
            surroundings.affinities.iter().filter(|(block, known)| is_chosen(block) && !known.value.deleted)
        };
        Search {
            version,
            host: request.host.clone(),
            owner: request.block_owner(),
            reserved: reserved.clone(),
            needed,
            limit: blocks_limit(&surroundings.settings(), request.blocks_max),
            claims_on: surroundings.settings().auto_allocate_blocks,
            is_strict: surroundings.settings().strict_affinity || request.host_reserve.is_some(),
            reserve: request.host_reserve,
            blocks_useful: request.changes_max.max(1),
            held: live().count(),
            own: live()
                // A state of a newer release than this one is not for us to change.
                .filter(|(_, known)| !matches!(known.value.state, AffinityState::Other(_)))
                .map(|(block, _)| *block)
                .filter(|block| !reserved.covers(block))
                .collect(),
            unclaimed: surroundings.unclaimed.iter().copied().collect(),
            walk,
            known: surroundings.affinities.iter().map(|(block, _)| *block).collect(),
            look: 1,
            reads_one_by_one: request.reads_one_by_one,
            is_walking: false,
            walked: 0,
            surveys_first: request.surveys_first,
            surveyed: None,
            pools,
            asked: Vec::new(),
            answers: BTreeMap::new(),
            found: Vec::new(),
            others: Vec::new(),
            affinities: Seen::default(),
            is_walked: false,
            stale: Vec::new(),
            corrupt: Vec::new(),
        }
    }

    /// What to look at next.
    pub(super) fn poll(&mut self, surroundings: &Surroundings) -> Wanted {
        loop {
            let missing = self.asked.iter().filter(|block| !self.answers.contains_key(block));
            let missing: Vec<Key> = missing.map(|block| Key::Block(*block)).collect();
            if !missing.is_empty() {
                return Wanted::Records(missing);
            }
            self.take_in_answers(surroundings);
            self.claim_unclaimed(surroundings);
            self.claim_absent(surroundings);
            if self.has_enough() {
                return Wanted::Records(Vec::new());
            }
            if self.needs_survey() {
                return Wanted::Survey(Box::new(self.survey()));
            }
            self.asked = self.next_blocks();
            if self.asked.is_empty() {
                let keys = self.reclaim(surroundings);
                if !keys.is_empty() || !self.has_more_surveyed() {
                    return Wanted::Records(keys);
                }
            }
        }
    }

    pub(super) fn show(&mut self, key: &Key, answer: &Answer, surroundings: &Surroundings) {
        match key {
            Key::Block(cidr) if self.asked.contains(cidr) => {
                self.take_in_block(*cidr, answer.clone(), surroundings);
            }
            Key::Affinity { block, .. } if block.version() == self.version => {
                self.affinities.show(key, answer.clone());
            }
            _ => {}
        }
    }

    fn take_in_block(&mut self, cidr: Cidr, answer: Answer, surroundings: &Surroundings) {
        let mut sight = sight_block(cidr, answer);
        if let Sight::There(stored) = &mut sight {
            free_cooled(&mut stored.value, surroundings.now, surroundings.settings().ip_cooldown_seconds);
        }
        self.answers.insert(cidr, sight);
    }

    /// The blocks to take from, best first.
    pub(super) fn usable(&self) -> Vec<Found> {
        let mut usable = self.found.clone();
        if !self.is_strict {
            usable.extend(self.lent().cloned());
        }
        usable
    }

    /// Why there are not enough addresses.
    pub(super) fn shortage(&self) -> AssignError {
        let (host, version) = (self.host.clone(), Version(self.version));
        if !self.claims_on {
            return AssignError::ClaimsOff { host, version };
        }
        if self.held >= self.limit {
            return AssignError::BlockLimit { host, version, blocks: self.held };
        }
        let pools = self.pools.iter().map(|(.., name)| name.clone()).collect();
        AssignError::Exhausted { host, version, pools, corrupt: self.corrupt.clone() }
    }

    fn may_claim(&self) -> bool {
        self.claims_on && self.held < self.limit
    }

    /// Whether blocks that are not known to be the node's may be of use.
    fn may_walk(&self) -> bool {
        self.may_claim() || !self.is_strict
    }

    fn has_enough(&self) -> bool {
        let found: usize = self.found.iter().map(|found| found.free).sum();
        // While a block of one's own may still turn up, those of others are not good enough.
        let may_have_own = self.may_claim() && !(self.surveyed.is_some() && self.is_walked);
        let is_last_resort = !self.is_strict && !may_have_own && self.own.is_empty();
        let others: usize = if is_last_resort { self.lent().map(|found| found.free).sum() } else { 0 };
        found + others >= self.needed || self.found.len() >= self.blocks_useful
    }

    /// What can be borrowed from.
    fn lent(&self) -> impl Iterator<Item = &Found> {
        self.others.iter().filter(|other| other.is_lent).map(|other| &other.found)
    }

    fn next_blocks(&mut self) -> Vec<Cidr> {
        let own = self.look.min(self.own.len());
        let mut blocks: Vec<Cidr> = self.own.drain(..own).collect();
        if blocks.is_empty() && self.surveyed.is_some() {
            return self.next_surveyed();
        }
        if blocks.is_empty() && self.may_walk() {
            if !std::mem::replace(&mut self.is_walking, true) {
                self.look = if self.reads_one_by_one { 1 } else { self.look.max(LOOK_UNCLAIMED_MIN) };
            }
            while blocks.len() < self.look {
                let Some(order) = self.walk.front_mut() else { break };
                match order.find(|block| !self.known.contains(block)) {
                    Some(block) => blocks.push(block),
                    None => {
                        self.walk.pop_front();
                    }
                }
            }
        }
        if self.is_walking && self.reads_one_by_one {
            self.walked += blocks.len();
            self.known.extend(&blocks);
        }
        self.look = grown(self.look);
        blocks
    }

    fn take_in_answers(&mut self, surroundings: &Surroundings) {
        for cidr in std::mem::take(&mut self.asked) {
            let Some(sight) = self.answers.remove(&cidr) else { continue };
            let Some(pool) = self.pools.iter().find(|(_, pool, ..)| pool.contains_cidr(&cidr)) else {
                continue;
            };
            let (pool, is_pools_size) = (pool.0, pool.2 == cidr.prefix_len());
            let is_known = surroundings.affinity(&cidr).is_some();
            match sight {
                Sight::Absent if is_pools_size && (is_known || self.may_claim()) => {
                    self.held += usize::from(!is_known);
                    self.claim(cidr, pool, surroundings);
                }
                Sight::Absent | Sight::Going => {}
                Sight::Broken(corrupt) => self.corrupt.push(corrupt),
                Sight::There(stored) => self.take_in(stored, pool, is_known, surroundings),
            }
        }
    }

    fn claim(&mut self, cidr: Cidr, pool: usize, surroundings: &Surroundings) {
        let block = new_block(cidr, &self.owner, self.reserve.as_ref(), surroundings.now);
        let free = free_count(&block, &self.reserved);
        self.found.push(Found { how: How::Claim, block, revision: None, free, pool });
    }

    /// Claims blocks that are said not to be there, once the node's own are not enough.
    fn claim_unclaimed(&mut self, surroundings: &Surroundings) {
        while self.own.is_empty() && self.may_claim() && !self.has_enough() {
            let Some(cidr) = self.unclaimed.pop_front() else { return };
            // Other pools wait until the first one is known to have nothing left.
            let Some(&(pool, network, size, _)) = self.pools.first() else { return };
            let is_pools = network.contains_cidr(&cidr) && size == cidr.prefix_len();
            if is_pools && !self.reserved.covers(&cidr) && self.known.insert(cidr) {
                self.held += 1;
                self.claim(cidr, pool, surroundings);
            }
        }
    }

    fn take_in(&mut self, stored: Stored<Block>, pool: usize, is_known: bool, surroundings: &Surroundings) {
        let Stored { value: block, revision } = stored;
        let is_ours = block.owner().as_ref() == Some(&self.owner);
        if is_ours && !is_known {
            self.held += 1;
        }
        if !is_ours && is_known {
            self.stale.push(block.cidr);
            self.held -= 1;
        }
        let free = free_count(&block, &self.reserved);
        if free == 0 {
            return;
        }
        let is_reclaimable = matches!(block.owner(), Some(AffinityOwner::Host(_)))
            && is_empty(&block)
            && is_claim_older_than(&block, CLAIM_SECONDS_MIN, surroundings.now);
        let is_lent = !is_of_windows(&block);
        let how = if is_ours { How::Own } else { How::Borrow };
        let found = Found { how, block, revision: Some(revision), free, pool };
        if is_ours {
            self.found.push(found);
        } else {
            self.remember(Other { found, is_reclaimable, is_lent });
        }
    }

    /// Only as many blocks of others are kept in mind as could be needed.
    fn remember(&mut self, other: Other) {
        let is_missing = |is_fit: fn(&&Other) -> bool| {
            let known: usize = self.others.iter().filter(is_fit).map(|other| other.found.free).sum();
            is_fit(&&other) && known < self.needed
        };
        if is_missing(|other| other.is_reclaimable) || is_missing(|other| other.is_lent) {
            self.others.push(other);
        }
    }

    /// The pools have nothing unclaimed left: takes over empty blocks of others.
    fn reclaim(&mut self, surroundings: &Surroundings) -> Vec<Key> {
        if self.is_walked {
            return Vec::new();
        }
        let chosen = self.reclaimable();
        let keys = chosen.iter().map(|(owner, block)| Key::Affinity { owner: owner.clone(), block: *block });
        if let Err(missing) = self.affinities.need(keys) {
            return missing;
        }
        self.is_walked = true;
        for (from, cidr) in chosen {
            let affinity = match self.affinities.affinity(&from, &cidr) {
                Sight::Absent => None,
                Sight::There(stored) => Some(stored.clone()),
                Sight::Going | Sight::Broken(_) => {
                    // Someone is at it.
                    let chosen = self.others.iter_mut().find(|other| other.found.block.cidr == cidr);
                    chosen.into_iter().for_each(|other| other.is_reclaimable = false);
                    continue;
                }
            };
            let Some(position) = self.others.iter().position(|other| other.found.block.cidr == cidr) else {
                continue;
            };
            let mut found = self.others.remove(position).found;
            hand_over(&mut found.block, &self.owner, self.reserve.as_ref(), surroundings.now);
            found.free = free_count(&found.block, &self.reserved);
            found.how = How::Reclaim { from, affinity };
            self.found.push(found);
            self.held += 1;
        }
        Vec::new()
    }

    /// As many empty blocks of others as are needed and may be had.
    fn reclaimable(&self) -> Vec<(AffinityOwner, Cidr)> {
        let mut missing = self.needed.saturating_sub(self.found.iter().map(|found| found.free).sum());
        let mut chosen = Vec::new();
        if !self.claims_on {
            return chosen;
        }
        for Other { found, is_reclaimable, .. } in &self.others {
            if missing == 0 || self.held + chosen.len() >= self.limit {
                break;
            }
            if let (true, Some(owner)) = (*is_reclaimable, found.block.owner()) {
                missing = missing.saturating_sub(found.free);
                chosen.push((owner, found.block.cidr));
            }
        }
        chosen
    }
}

fn grown(look: usize) -> usize {
    (look * LOOK_GROWTH).min(LOOK_MAX)
}
