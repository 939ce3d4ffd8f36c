//! One round of releases on a store without transactions: the members' own changes first, then the blocks, then the handles.
//!
//! An endpoint goes before its address is free, so no address ever belongs to two. A member whose own changes are refused has lost
//! nothing. Once the blocks are written the addresses are free; a handle that cannot be removed then counts too much, and its
//! member reads and tries again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipam::{ReleaseItem, Released};
use model::{Cidr, HandleId, Key};
use store::{Change, StoreError};
use tracing::warn;

use super::{GivenBack, Releasing, Together, decide, fail_all, put_back, put_off, try_again};
use crate::BookError;
use crate::batch::own::{self, Outcome, Own};
use crate::book::{Inner, ReleaseGround};
use crate::carry::Walk;
use crate::error::subject;
use crate::look::Reader;
use crate::make::NotMade;

pub(super) async fn release_together(
    inner: &Arc<Inner>,
    together: Together,
    ground: &ReleaseGround,
    reader: &mut Reader<'_>,
) {
    let (members, items): (Vec<_>, Vec<_>) = together.into_iter().unzip();
    let items: BTreeMap<_, _> =
        members.iter().map(|member| member.request.handle.clone()).zip(items).collect();
    let members = add(inner, members).await;
    if members.is_empty() {
        return;
    }
    let items: Vec<Vec<ReleaseItem>> =
        members.iter().map(|member| items.get(&member.request.handle).cloned().unwrap_or_default()).collect();
    let released = match decide(inner, &items, ground, reader).await {
        Ok(released) => released,
        Err(BookError::Store(error)) => return try_again(inner, members, &error),
        Err(error) => return fail_all(members, &error),
    };
    for corrupt in &released.corrupt {
        warn!("nothing is released into it: {corrupt}");
    }
    release(inner, members, &items, released, ground).await;
}

async fn release(
    inner: &Arc<Inner>,
    mut members: Vec<Releasing>,
    items: &[Vec<ReleaseItem>],
    released: Released,
    ground: &ReleaseGround,
) {
    let parts = released.steps.parts();
    let mut walk = Walk::new(&inner.store);
    let stopped = walk.steps(&parts.before).await.err();
    let freed = freed(&released, &walk, stopped.is_some());
    for (member, items) in members.iter_mut().zip(items) {
        let of_member = items.iter().map(|item| item.address).filter(|address| freed.contains(address));
        member.freed.extend(of_member);
    }
    if let Some(NotMade { error, .. }) = stopped {
        inner.remember(walk.written);
        let error = Arc::new(error);
        return again(inner, members.into_iter().map(|member| (member, Arc::clone(&error))));
    }
    let outcomes = walk.beside(&parts.handles).await;
    inner.remember(walk.written);
    inner.give_up_emptied(&released.emptied, &ground.pools).await;
    let keys = parts.handles.iter().map(|ordered| ordered.key().clone());
    let mut failed: BTreeMap<Key, StoreError> = BTreeMap::new();
    for (key, outcome) in keys.zip(outcomes) {
        match outcome {
            // Whoever removed it has done the same.
            Ok(()) | Err(NotMade { error: StoreError::NotFound { .. }, .. }) => {}
            Err(not_made) => drop(failed.insert(key, not_made.error)),
        }
    }
    let mut next = Vec::new();
    for member in members {
        match failed.remove(&Key::Handle(member.request.handle.clone())) {
            None => member.answer(Ok(GivenBack::default())),
            Some(error) => next.push((member, Arc::new(error))),
        }
    }
    again(inner, next);
}

/// What is free now: everything, unless a block was lost; then what is in the blocks before it.
fn freed(released: &Released, walk: &Walk, is_stopped: bool) -> BTreeSet<IpAddr> {
    let written: BTreeSet<Cidr> = walk
        .written
        .iter()
        .filter_map(|written| match written.key {
            Key::Block(cidr) => Some(cidr),
            _ => None,
        })
        .collect();
    let is_free = |address: &IpAddr| !is_stopped || written.iter().any(|block| block.contains(*address));
    released.addresses.iter().copied().filter(is_free).collect()
}

/// Makes the members' own changes. Gives those who have them; the others are answered, or try again.
pub(super) async fn add(inner: &Arc<Inner>, members: Vec<Releasing>) -> Vec<Releasing> {
    let late = |inner: Arc<Inner>, member, outcome| async move {
        // Its turn has passed: it goes with the next.
        let left = after_own(&inner, member, outcome);
        put_back(&inner, left.into_iter().collect());
    };
    let known = own::make_all(inner, members, late).await;
    known.into_iter().filter_map(|(member, outcome)| after_own(inner, member, outcome)).collect()
}

impl Own for Releasing {
    fn handle(&self) -> &HandleId {
        &self.request.handle
    }

    fn changes(&self) -> Vec<Change> {
        self.additions().collect()
    }

    fn is_retried(&self) -> bool {
        self.may_be_done
    }
}

/// A member whose own changes are made.
fn after_own(inner: &Arc<Inner>, mut member: Releasing, outcome: Outcome) -> Option<Releasing> {
    let Err((made, not_made)) = outcome else {
        member.request.additions.clear();
        return Some(member);
    };
    member.request.additions.drain(..made);
    let error = Arc::new(not_made.error);
    if member.has_done(&error) {
        put_back(inner, vec![member]);
    } else if let Some(key) = subject(&error).cloned() {
        member.answer(Err(BookError::Addition { key, source: Some(error) }));
    } else {
        again(inner, [(member, error)]);
    }
    None
}

/// Lets those try again who may. What was lost is read again; the rest of what is remembered may be right.
fn again(inner: &Arc<Inner>, members: impl IntoIterator<Item = (Releasing, Arc<StoreError>)>) {
    let mut next = Vec::new();
    for (mut member, error) in members {
        inner.forget(subject(&error).cloned());
        member.may_be_done |= matches!(*error, StoreError::Uncertain { .. });
        match member.patience.check_shared(&error) {
            Ok(()) => {
                member.must_read |= !error.is_lost_race() || member.patience.has_lost_often();
                next.push(member);
            }
            Err(error) => member.answer(Err(error)),
        }
    }
    put_off(inner, next);
}
