//! Giving the addresses that were found to those who want them, as far as one commit goes.

use std::collections::BTreeSet;

use model::HandleId;

use super::holdings::Holdings;
use super::search::{Found, Search};
use super::writes::Writes;
use super::{AssignError, Assigned, Grant, Granted, Request, Surroundings, Want};
use crate::Reservations;
use crate::block::take;

/// The addresses found for one IP version.
struct Pile {
    blocks: Vec<Open>,
    shortage: AssignError,
    version: model::IpVersion,
}

struct Open {
    found: Found,
    block: model::ipam::Block,
    left: usize,
    is_used: bool,
}

/// So many addresses from that block of that pile.
#[derive(Clone, Copy)]
struct Pick {
    pile: usize,
    block: usize,
    count: usize,
}

/// What has been spent of the commit's changes.
#[derive(Default)]
struct Budget {
    handles: BTreeSet<HandleId>,
    pools: BTreeSet<usize>,
    changes: usize,
}

/// What would be spent if one more want is served.
#[derive(Clone)]
struct Bill<'a> {
    budget: &'a Budget,
    /// In all, what was spent before included.
    changes: usize,
    has_handle: bool,
    pools: Vec<usize>,
}

pub(super) fn grant(
    request: &Request,
    surroundings: &Surroundings,
    reserved: &Reservations,
    searches: &[Search],
    mut holdings: Holdings,
) -> Assigned {
    let mut piles: Vec<Pile> = searches.iter().map(Pile::new).collect();
    let mut writes = Writes::new(surroundings, request.block_owner());
    let mut budget = Budget::default();
    let mut grants: Vec<Grant> = Vec::new();
    for want in &request.wants {
        let is_full = grants.iter().any(|grant| grant.shortage == Some(AssignError::NextCommit));
        grants.push(if is_full {
            Grant { addresses: Vec::new(), shortage: Some(AssignError::NextCommit) }
        } else {
            let (mut addresses, picks, shortage) =
                pick(want, &piles, &holdings, &mut budget, request.changes_max);
            let new = take_picked(want, &picks, &mut piles, reserved);
            if !new.is_empty() {
                writes.add_handle(want.owner.handle.clone(), want.handle.as_ref());
            }
            holdings.add(want, &new);
            addresses.extend(new);
            Grant { addresses, shortage }
        });
    }
    let used = piles.into_iter().flat_map(|pile| pile.blocks).filter(|open| open.is_used);
    used.for_each(|open| writes.add_block(open.found, open.block));
    let stale = searches.iter().flat_map(|search| &search.stale);
    writes.remove_stale(stale, request.changes_max.saturating_sub(budget.changes));
    let corrupt = searches.iter().flat_map(|search| search.corrupt.clone()).collect();
    let (steps, unchanged_handles) = writes.steps();
    Assigned { grants, steps, corrupt, unchanged_handles }
}

impl Pile {
    fn new(search: &Search) -> Pile {
        let open =
            |found: Found| Open { block: found.block.clone(), left: found.free, found, is_used: false };
        Pile {
            blocks: search.usable().into_iter().map(open).collect(),
            shortage: search.shortage(),
            version: search.version,
        }
    }
}

/// Which addresses a want has already, where new ones come from, and why not all of them.
fn pick(
    want: &Want,
    piles: &[Pile],
    holdings: &Holdings,
    budget: &mut Budget,
    changes_max: usize,
) -> (Vec<Granted>, Vec<Pick>, Option<AssignError>) {
    let mut bill = Bill::new(budget, want.extra_changes);
    let (mut again, mut picks, mut shortage) = (Vec::new(), Vec::new(), None);
    for (position, pile) in piles.iter().enumerate() {
        let share = match holdings.share(want, pile.version) {
            Ok(share) => share,
            Err(corrupt) => return (Vec::new(), Vec::new(), Some(corrupt)),
        };
        again.extend(share.again);
        shortage = shortage.or(share.shortage);
        let mut missing = share.new;
        for (index, open) in pile.blocks.iter().enumerate() {
            let count = missing.min(open.left);
            if count == 0 {
                continue;
            }
            let is_picked = picks.iter().any(|pick: &Pick| (pick.pile, pick.block) == (position, index));
            let with_block = bill.with(&want.owner.handle, open, is_picked);
            if with_block.changes > changes_max {
                shortage = Some(AssignError::NextCommit);
                break;
            }
            bill = with_block;
            picks.push(Pick { pile: position, block: index, count });
            missing -= count;
        }
        if missing > 0 {
            shortage = shortage.or_else(|| Some(pile.shortage.clone()));
        }
    }
    let has_nothing = picks.is_empty() && again.is_empty();
    if bill.changes > changes_max {
        shortage = Some(AssignError::NextCommit);
    }
    if shortage.is_some() && (has_nothing || !want.accepts_fewer) {
        let is_hopeless = shortage == Some(AssignError::NextCommit) && budget.changes == 0;
        let too_large = is_hopeless.then(|| AssignError::TooLarge { addresses: want.v4 + want.v6 });
        return (Vec::new(), Vec::new(), too_large.or(shortage));
    }
    if !has_nothing {
        let Bill { changes, has_handle, pools, .. } = bill;
        budget.pay(changes, pools, has_handle.then(|| want.owner.handle.clone()));
    }
    (again, picks, shortage)
}

impl Budget {
    fn pay(&mut self, changes: usize, pools: Vec<usize>, handle: Option<HandleId>) {
        self.changes = changes;
        self.pools.extend(pools);
        self.handles.extend(handle);
    }
}

impl<'a> Bill<'a> {
    fn new(budget: &'a Budget, extra_changes: usize) -> Bill<'a> {
        Bill { budget, changes: budget.changes + extra_changes, has_handle: false, pools: Vec::new() }
    }

    /// What is spent when a block is used as well.
    fn with(&self, handle: &HandleId, open: &Open, is_picked: bool) -> Bill<'a> {
        let (mut bill, budget, pool) = (self.clone(), self.budget, open.found.pool);
        bill.changes += usize::from(!bill.has_handle && !budget.handles.contains(handle));
        bill.has_handle = true;
        // The settings are relied on as soon as anything is.
        bill.changes += usize::from(budget.pools.is_empty() && bill.pools.is_empty());
        if !budget.pools.contains(&pool) && !bill.pools.contains(&pool) {
            bill.pools.push(pool);
            bill.changes += 1;
        }
        if !open.is_used && !is_picked {
            bill.changes += open.found.how.changes_max();
        }
        bill
    }
}

fn take_picked(want: &Want, picks: &[Pick], piles: &mut [Pile], reserved: &Reservations) -> Vec<Granted> {
    let mut granted = Vec::new();
    for pick in picks {
        let open = &mut piles[pick.pile].blocks[pick.block];
        open.is_used = true;
        open.left -= pick.count;
        let block = open.block.cidr;
        let is_borrowed = open.found.how == super::search::How::Borrow;
        let addresses = take(&mut open.block, &want.owner, pick.count, reserved);
        let new = |address| Granted { address, block, is_borrowed, is_new: true };
        granted.extend(addresses.into_iter().map(new));
    }
    granted
}
