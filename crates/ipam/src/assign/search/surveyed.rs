//! A search through a crowded pool: with a survey of the blocks that exist, what is left to be looked at is only what may be of use.

use std::collections::{BTreeSet, VecDeque};

use model::Cidr;

use super::Search;
use crate::assign::survey::{Survey, may_change_hands, may_lend};
use crate::{BlockOrder, Surroundings};

/// What a survey has left to do, in the order of the walk.
#[derive(Debug)]
pub(super) struct Pending {
    /// Every block that exists and was not known before.
    existing: BTreeSet<Cidr>,
    /// May be empty, and so may become the node's.
    to_take_over: VecDeque<Cidr>,
    to_borrow: VecDeque<Cidr>,
    /// As soon as enough empty blocks are found, they are taken over.
    may_stop_early: bool,
}

impl Search {
    /// Whether it is time to ask for all blocks that exist.
    pub(super) fn needs_survey(&self) -> bool {
        self.reads_one_by_one
            && self.surveyed.is_none()
            && self.own.is_empty()
            && self.may_walk()
            && !self.walk.is_empty()
            && (self.surveys_first || self.walked >= super::WALKED_MAX)
    }

    pub(super) fn survey(&self) -> Survey {
        let pools = self.pools.iter().map(|(_, pool, size, _)| (*pool, *size)).collect();
        Survey::new(self.version, self.owner.clone(), self.reserved.clone(), pools, self.known.clone())
    }

    pub(in crate::assign) fn show_survey(&mut self, survey: Survey, surroundings: &Surroundings) {
        if survey.version() != self.version {
            return;
        }
        let orders: Vec<BlockOrder> = self
            .pools
            .iter()
            .map(|(_, pool, size, _)| BlockOrder::new(*pool, *size, &self.host, &self.reserved))
            .collect();
        let position = |block: &Cidr| {
            let of_pool = |(pool, order): (usize, &BlockOrder)| Some((pool, order.position_of(block)?));
            orders.iter().enumerate().find_map(of_pool)
        };
        let mut blocks: Vec<_> = survey.into_blocks().into_iter().collect();
        blocks.sort_by_cached_key(|(block, _)| position(block));
        let mut pending = Pending {
            existing: BTreeSet::new(),
            to_take_over: VecDeque::new(),
            to_borrow: VecDeque::new(),
            may_stop_early: true,
        };
        for (block, surveyed) in blocks {
            pending.existing.insert(block);
            if self.may_claim() && surveyed.may_be_of_use(may_change_hands) {
                pending.to_take_over.push_back(block);
            } else if !self.is_strict && surveyed.may_be_of_use(may_lend) {
                pending.to_borrow.push_back(block);
            } else {
                continue;
            }
            if let Some(answer) = surveyed.answer {
                self.take_in_block(block, *answer, surroundings);
            }
        }
        self.look = 1;
        self.surveyed = Some(pending);
    }

    /// Claims blocks that did not exist at the time of the survey. If another node was faster, the commit fails.
    pub(super) fn claim_absent(&mut self, surroundings: &Surroundings) {
        while self.surveyed.is_some() && self.own.is_empty() && self.may_claim() && !self.has_enough() {
            let (Some(order), Some(pending)) = (self.walk.front_mut(), &self.surveyed) else { return };
            let is_absent = |block: &Cidr| !self.known.contains(block) && !pending.existing.contains(block);
            let Some(block) = order.find(is_absent) else {
                self.walk.pop_front();
                continue;
            };
            let pool = self.pools.iter().find(|(_, pool, ..)| pool.contains_cidr(&block));
            if let Some(&(pool, ..)) = pool {
                self.held += 1;
                self.claim(block, pool, surroundings);
            }
        }
    }

    /// What to look at next of what the survey has shown.
    pub(super) fn next_surveyed(&mut self) -> Vec<Cidr> {
        let has_enough_to_take_over = self.can_take_over_enough();
        let Some(pending) = &mut self.surveyed else { return Vec::new() };
        if self.is_walked && !pending.to_take_over.is_empty() {
            // Some of those that were found could not be had: the others are looked at after all.
            (self.is_walked, pending.may_stop_early) = (false, false);
        }
        let may_stop = pending.may_stop_early && has_enough_to_take_over;
        let queue = match (pending.to_take_over.is_empty() || may_stop, self.is_walked) {
            (false, _) => &mut pending.to_take_over,
            (true, true) => &mut pending.to_borrow,
            (true, false) => return Vec::new(),
        };
        let count = self.look.min(queue.len());
        self.look = super::grown(self.look);
        queue.drain(..count).collect()
    }

    /// Whether the survey has shown more that may help.
    pub(super) fn has_more_surveyed(&self) -> bool {
        let is_left = |pending: &Pending| !pending.to_take_over.is_empty() || !pending.to_borrow.is_empty();
        self.surveyed.as_ref().is_some_and(is_left) && !self.has_enough()
    }

    fn can_take_over_enough(&self) -> bool {
        let found: usize = self.found.iter().map(|found| found.free).sum();
        let empty = self.others.iter().filter(|other| other.is_reclaimable).map(|other| other.found.free);
        found + empty.sum::<usize>() >= self.needed
    }
}
