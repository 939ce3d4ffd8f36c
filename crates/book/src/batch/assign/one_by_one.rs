//! The end of a round on a store without transactions: handles beside each other, then the blocks, then what the members add.
//!
//! ```text
//!   claims ─▶ handle ┐            ┌ addition of one member ─▶ its answer
//!             handle ┼─▶ blocks ──┼ addition
//!             handle ┘            └ addition
//! ```
//!
//! Nobody suffers for another. A member whose handle is refused drops out, and its addresses stay free. A member whose own
//! changes are refused gives its addresses back. When a block is lost to someone else, those who have all their blocks keep
//! them; the others remove their handles and start over.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipam::{Ordered, Parts, Step, Steps};
use model::{Cidr, HandleId, Key};
use store::{Change, StoreError};
use tracing::warn;

use super::finish::{after_commit, put_back, put_off, succeed, try_again};
use super::{Assigning, Planned, new_addresses};
use crate::BookError;
use crate::batch::Unwanted;
use crate::batch::own::{self, Outcome, Own};
use crate::book::{Ground, Inner};
use crate::carry::{Walk, make_beside};
use crate::error::subject;
use crate::make::NotMade;
use crate::patience::Patience;

/// Carries out what was decided and answers.
pub(super) async fn commit(inner: &Arc<Inner>, planned: Vec<Planned>, steps: &Steps, ground: &Ground) {
    let mut round = Round { inner, parts: steps.parts(), walk: Walk::new(&inner.store), planned };
    let before = std::mem::take(&mut round.parts.before);
    if let Err(not_made) = round.walk.steps(&before).await {
        return round.give_up(not_made.error);
    }
    round.write_handles().await;
    if round.planned.is_empty() {
        return inner.remember(round.walk.written);
    }
    let lost = round.write_blocks().await;
    round.walk.housekeeping(&round.parts.rest).await;
    let Round { walk, planned, .. } = round;
    after_commit(inner, &planned, walk.written, ground).await;
    let planned = add(inner, planned).await;
    succeed(inner, planned);
    if let Some(lost) = lost {
        lost.take_back(inner).await;
    }
}

/// Puts handles right that already say what they are to say ([`ipam::Assigned::unchanged_handles`]), and starts over.
pub(super) async fn put_right(inner: &Arc<Inner>, members: Vec<Assigning>, handles: &[HandleId]) {
    let mut next = Vec::new();
    for mut member in members {
        let owner = member.request.owner.clone();
        if !handles.contains(&owner.handle) {
            next.push(member);
            continue;
        }
        inner.forget([Key::Handle(owner.handle.clone())]);
        // Nothing is released: the handle is counted again.
        let unwanted = Unwanted { owner, addresses: Vec::new(), additions: Vec::new(), is_settled: false };
        match unwanted.take_back(inner).await {
            Ok(()) => {
                member.must_read = true;
                next.push(member);
            }
            Err(error) => member.fail(inner, error),
        }
    }
    put_back(inner, next);
}

struct Round<'a> {
    inner: &'a Arc<Inner>,
    parts: Parts,
    walk: Walk,
    /// Those who are still in it.
    planned: Vec<Planned>,
}

/// Those who have lost a block.
struct Lost {
    block: Key,
    /// Each with the handle that was made for it, if none of its blocks was written.
    planned: Vec<(Planned, Option<Change>)>,
    not_made: NotMade,
}

impl Round<'_> {
    /// Nothing was written for any member: whatever claims have been begun, the next attempt goes on with them.
    fn give_up(self, error: StoreError) {
        self.inner.remember(self.walk.written);
        self.inner.forget(subject(&error).cloned());
        let members = self.planned.into_iter().map(|planned| planned.member).collect();
        try_again(self.inner, members, &Arc::new(error));
    }

    /// Members whose handles cannot be written drop out.
    async fn write_handles(&mut self) {
        let outcomes = self.walk.beside(&self.parts.handles).await;
        let (mut left, mut next) = (Vec::new(), Vec::new());
        let mut failed: Vec<(&Key, NotMade)> = Vec::new();
        for (ordered, outcome) in self.parts.handles.iter().zip(outcomes) {
            failed.extend(outcome.err().map(|not_made| (ordered.key(), not_made)));
        }
        let mut free = Vec::new();
        for planned in std::mem::take(&mut self.planned) {
            let key = Key::Handle(planned.member.request.owner.handle.clone());
            let Some(position) = failed.iter().position(|(failed, _)| **failed == key) else {
                left.push(planned);
                continue;
            };
            free.extend(new_addresses(&planned.grant.addresses));
            self.inner.forget([key]);
            next.extend(drop_out(self.inner, planned.member, failed.swap_remove(position).1));
        }
        self.parts.leave_free(&free);
        self.planned = left;
        put_off(self.inner, next);
    }

    /// Members that have all their blocks stay. Gives the others, if a block was lost.
    async fn write_blocks(&mut self) -> Option<Lost> {
        let blocks = std::mem::take(&mut self.parts.blocks);
        let mut written = 0;
        let not_made = loop {
            match self.walk.step(blocks.get(written)?).await {
                Ok(()) => written += 1,
                Err(not_made) => break not_made,
            }
        };
        let unwritten: BTreeSet<Cidr> = blocks[written..].iter().filter_map(block).collect();
        let has_lost = |planned: &mut Planned| planned.new_blocks().any(|block| unwritten.contains(&block));
        let lost: Vec<Planned> = self.planned.extract_if(.., has_lost).collect();
        let handle = |planned: &Planned| {
            let is_simple = planned.new_blocks().all(|block| unwritten.contains(&block));
            self.made_handle(planned).filter(|_| is_simple && !not_made.is_doubtful)
        };
        let planned = lost.into_iter().map(|planned| (handle(&planned), planned));
        let planned = planned.map(|(handle, planned)| (planned, handle)).collect();
        Some(Lost { block: blocks[written].key().clone(), planned, not_made })
    }

    /// What removes the handle that was made for a member; nothing if it was there before.
    fn made_handle(&self, planned: &Planned) -> Option<Change> {
        let key = Key::Handle(planned.member.request.owner.handle.clone());
        let is_its = |ordered: &Ordered| matches!(ordered, Ordered::Step(Step::Create { key: created, .. }) if *created == key);
        let revision = self.walk.revision(&key).filter(|_| self.parts.handles.iter().any(is_its))?;
        Some(Change::delete(key.clone(), revision.clone()))
    }
}

fn block(ordered: &Ordered) -> Option<Cidr> {
    match ordered.key() {
        Key::Block(cidr) => Some(*cidr),
        _ => None,
    }
}

impl Planned {
    fn new_blocks(&self) -> impl Iterator<Item = Cidr> {
        self.grant.addresses.iter().filter(|granted| granted.is_new).map(|granted| granted.block)
    }
}

/// A member whose handle could not be written: answered, or given back because it may try again.
fn drop_out(inner: &Arc<Inner>, mut member: Assigning, not_made: NotMade) -> Option<Assigning> {
    let is_new_owner = !member.request.handle_may_exist && member.granted.is_empty();
    if matches!(not_made.error, StoreError::AlreadyExists { .. }) && is_new_owner && !member.may_have_handle {
        let handle = member.request.owner.handle.clone();
        member.fail(inner, BookError::HandleExists { handle });
        return None;
    }
    member.may_have_handle |= not_made.is_doubtful || not_made.is_uncertain();
    match member.check(inner, &Arc::new(not_made.error)) {
        Ok(()) => Some(member),
        Err(error) => {
            member.fail(inner, error);
            None
        }
    }
}

impl Lost {
    /// Removes what was written for them, and lets those try again who may.
    async fn take_back(self, inner: &Arc<Inner>) {
        let Lost { block, planned, not_made: NotMade { error, .. } } = self;
        let handle = |(planned, _): &(Planned, _)| Key::Handle(planned.member.request.owner.handle.clone());
        inner.forget(planned.iter().map(handle).chain([block]));
        let is_uncertain = matches!(error, StoreError::Uncertain { .. });
        let error = Arc::new(error);
        if !error.is_lost_race() {
            // The store does not answer any more, or refuses: an error now is better than one later.
            let unwanted = planned.iter().map(|(planned, _)| planned.unwanted(!is_uncertain)).collect();
            Unwanted::spawn_all(unwanted, inner);
            for (planned, _) in planned {
                planned.member.fail(inner, BookError::Store(Arc::clone(&error)));
            }
            return;
        }
        let (mut members, mut careful) = (Vec::new(), Vec::new());
        let (simple, others): (Vec<_>, Vec<_>) =
            planned.into_iter().partition(|(_, handle)| handle.is_some());
        let deletions: Vec<Change> = simple.iter().filter_map(|(_, handle)| handle.clone()).collect();
        let outcomes = make_beside(&inner.store, deletions).await;
        for ((planned, _), outcome) in simple.into_iter().zip(outcomes) {
            match outcome {
                Ok(_) | Err(NotMade { error: StoreError::NotFound { .. }, .. }) => {
                    members.push(planned.member)
                }
                Err(_) => careful.push(planned),
            }
        }
        for planned in careful.into_iter().chain(others.into_iter().map(|(planned, _)| planned)) {
            match planned.unwanted(true).take_back(inner).await {
                Ok(()) => members.push(planned.member),
                Err(error) => planned.member.fail(inner, error),
            }
        }
        again_after_loss(inner, members, &error);
    }
}

/// A block that someone else has written is read again; the rest of what is remembered may be right.
fn again_after_loss(inner: &Arc<Inner>, members: Vec<Assigning>, error: &Arc<StoreError>) {
    let mut next = Vec::new();
    for mut member in members {
        let had_to_read = member.must_read;
        match member.check(inner, error) {
            Ok(()) => {
                let has_lost_often = member.patience.as_ref().is_some_and(Patience::has_lost_often);
                member.must_read = had_to_read || has_lost_often;
                next.push(member);
            }
            Err(error) => member.fail(inner, error),
        }
    }
    put_off(inner, next);
}

/// Makes the members' own changes. Those who cannot have theirs give everything back and are answered.
async fn add(inner: &Arc<Inner>, planned: Vec<Planned>) -> Vec<Planned> {
    let late = |inner: Arc<Inner>, planned, outcome| async move {
        let left = after_own(&inner, planned, outcome).await;
        succeed(&inner, left.into_iter().collect());
    };
    let mut left = Vec::new();
    for (planned, outcome) in own::make_all(inner, planned, late).await {
        left.extend(after_own(inner, planned, outcome).await);
    }
    left
}

impl Own for Planned {
    fn handle(&self) -> &HandleId {
        &self.member.request.owner.handle
    }

    fn changes(&self) -> Vec<Change> {
        self.additions.iter().map(|addition| addition.change.clone()).collect()
    }

    fn is_retried(&self) -> bool {
        false
    }
}

async fn after_own(inner: &Arc<Inner>, planned: Planned, outcome: Outcome) -> Option<Planned> {
    match outcome {
        Ok(()) => Some(planned),
        Err((_, not_made)) => {
            refuse(inner, planned, not_made).await;
            None
        }
    }
}

/// One member's own records are not as it thought.
async fn refuse(inner: &Arc<Inner>, planned: Planned, not_made: NotMade) {
    let unwanted = planned.unwanted(!not_made.is_uncertain());
    let error = Arc::new(not_made.error);
    let Some(key) = subject(&error).cloned() else {
        unwanted.spawn(inner);
        return planned.member.fail(inner, BookError::Store(error));
    };
    if let Err(error) = unwanted.take_back(inner).await {
        warn!("{}: {error}", planned.member.request.owner.handle);
    }
    planned.member.fail(inner, BookError::Addition { key, source: Some(error) });
}
