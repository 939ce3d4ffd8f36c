//! One round for requests for addresses that go together: one decision, one commit.

mod finish;
pub(super) mod one_by_one;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ipam::{Answer, AssignError, Assignment, Corrupt, Grant, Granted, Request, Stored, Surroundings, Want};
use model::ipam::{Affinity, Handle};
use model::{Cidr, HandleId, Key};
use store::StoreError;
use tokio::sync::oneshot;

use self::finish::{fail_all, grant, put_back, read_first, try_again};
use self::plan::{Plan, settled_plans};
use super::Unwanted;
use crate::book::{Ground, Inner};
use crate::look::Reader;
use crate::patience::Patience;
use crate::request::AssignRequest;
use crate::scene::{Scene, understand_affinity};
use crate::warm::Warm;
use crate::{Addition, BookError};

/// Blocks of a node that are read at once, in case the first ones are full.
const BLOCKS_AHEAD: usize = 64;

/// Someone who waits for addresses.
#[derive(Debug)]
pub(crate) struct Assigning {
    pub(crate) request: AssignRequest,
    answer: oneshot::Sender<Result<Grant, BookError>>,
    patience: Option<Patience>,
    /// What is remembered has failed us: decide on what the store says now.
    must_read: bool,
    /// Got by earlier commits, where one is not enough.
    granted: Vec<Granted>,
    /// Commits whose answer was lost. At most one of them happened: all create or replace the owner's handle.
    plans: Vec<Plan>,
    /// On a store without transactions: whether its handle was made is not known.
    may_have_handle: bool,
    /// When to try again, if it has to.
    pub(super) due: Option<Instant>,
    /// Affinities that were in the way of a claim. A list by label does not show those that Calico before 3.31 has written.
    unlisted: BTreeMap<Cidr, Stored<Affinity>>,
}

/// A member with what the next commit gives it.
#[derive(Debug)]
struct Planned {
    member: Assigning,
    grant: Grant,
    additions: Vec<Addition>,
}

impl Assigning {
    pub(crate) fn new(
        request: AssignRequest,
        answer: oneshot::Sender<Result<Grant, BookError>>,
    ) -> Assigning {
        Assigning {
            request,
            answer,
            patience: None,
            must_read: false,
            granted: Vec::new(),
            plans: Vec::new(),
            may_have_handle: false,
            due: None,
            unlisted: BTreeMap::new(),
        }
    }

    fn want(&self, handle: Option<Stored<Handle>>) -> Want {
        Want {
            owner: self.request.owner.clone(),
            handle,
            v4: self.request.v4,
            v6: self.request.v6,
            accepts_fewer: self.request.accepts_fewer,
            handle_max: self.request.handle_max,
            extra_changes: self.request.additions.count,
        }
    }

    /// What this owner may have got without knowing.
    fn unwanted(&self) -> Option<Unwanted> {
        let planned = self.plans.iter().flat_map(|plan| &plan.addresses).map(|(granted, _)| granted);
        let addresses = new_addresses(self.granted.iter().chain(planned));
        let additions: Vec<_> = self.plans.iter().flat_map(|plan| plan.additions.clone()).collect();
        let owner = self.request.owner.clone();
        let has_any = !addresses.is_empty() || !additions.is_empty() || self.may_have_handle;
        has_any.then_some(Unwanted { owner, addresses, additions, is_settled: false })
    }

    fn fail(self, inner: &Arc<Inner>, error: BookError) {
        if let Some(unwanted) = self.unwanted() {
            unwanted.spawn(inner);
        }
        let _ = self.answer.send(Err(error));
    }

    /// Answers; gives back what was got if nobody listens any more.
    fn succeed(mut self, inner: &Arc<Inner>, grant: Grant, additions: Vec<Addition>) {
        let known: BTreeSet<_> = self.granted.iter().map(|granted| granted.address).collect();
        self.granted.extend(grant.addresses.into_iter().filter(|granted| !known.contains(&granted.address)));
        let grant = Grant { addresses: self.granted, shortage: grant.shortage };
        if let Err(Ok(grant)) = self.answer.send(Ok(grant)) {
            let addresses = new_addresses(&grant.addresses);
            let owner = self.request.owner;
            Unwanted { owner, addresses, additions, is_settled: true }.spawn(inner);
        }
    }

    /// Whether it may try again after this error.
    fn check(&mut self, inner: &Inner, error: &Arc<StoreError>) -> Result<(), BookError> {
        self.must_read = true;
        self.note_unlisted(error);
        let limit = inner.settings.patience;
        let patience = self.patience.get_or_insert_with(|| Patience::new(limit));
        // A store that lost an answer is often away for a moment. What it did is worth waiting for.
        if !self.plans.is_empty() && matches!(**error, StoreError::Unreachable { .. }) && patience.lose() {
            return Ok(());
        }
        patience.check_shared(error)
    }
}

impl Assigning {
    fn note_unlisted(&mut self, error: &StoreError) {
        let own = self.request.block_owner();
        let is_own = |key: &Key| matches!(key, Key::Affinity { owner, .. } if *owner == own);
        match error {
            StoreError::AlreadyExists { existing: found } | StoreError::Conflict { current: found }
                if is_own(&found.key) =>
            {
                self.unlisted.extend(understand_affinity(found));
            }
            StoreError::NotFound { key: key @ Key::Affinity { block, .. } } if is_own(key) => {
                self.unlisted.remove(block);
            }
            _ => {}
        }
    }
}

/// What is to be given back if nobody wants it: not what the handle had before.
fn new_addresses<'a>(granted: impl IntoIterator<Item = &'a Granted>) -> Vec<IpAddr> {
    granted.into_iter().filter(|granted| granted.is_new).map(|granted| granted.address).collect()
}

pub(super) async fn serve(inner: &Arc<Inner>, members: Vec<Assigning>) {
    let (mut members, gone): (Vec<_>, Vec<_>) =
        members.into_iter().partition(|member| !member.answer.is_closed());
    gone.iter().filter_map(Assigning::unwanted).for_each(|unwanted| unwanted.spawn(inner));
    let must_read = members.iter().any(|member| member.must_read);
    if must_read && !inner.is_atomic() {
        // Where each record costs a request, not everyone has to read what one of them must.
        let others = members.extract_if(.., |member| !member.must_read).collect();
        put_back(inner, others);
    }
    if members.is_empty() {
        return;
    }
    for member in &mut members {
        member.patience.get_or_insert_with(|| Patience::new(inner.settings.patience));
    }
    match inner.ground(&members[0].request, &handles(&members), must_read).await {
        Ok(ground) => decide(inner, members, &ground).await,
        Err(BookError::Store(error)) => try_again(inner, members, &error),
        Err(error) => fail_all(inner, members, &error),
    }
}

fn handles(members: &[Assigning]) -> Vec<HandleId> {
    members.iter().map(|member| member.request.owner.handle.clone()).collect()
}

async fn decide(inner: &Arc<Inner>, members: Vec<Assigning>, ground: &Ground) {
    let required = match inner.required(&ground.scene.lock) {
        Ok(required) => required,
        Err(error) if !ground.is_remembered => return fail_all(inner, members, &error),
        Err(_) => return read_first(inner, members),
    };
    let (members, wants) = match sort(inner, members, ground).await {
        Ok(sorted) => sorted,
        Err((members, error)) => return try_again(inner, members, &Arc::new(error)),
    };
    let Some(first) = members.first() else { return };
    let request = group_request(inner, &first.request, wants, &ground.scene, required.len());
    let mut reader = reader(inner, ground);
    let decided = match Assignment::new(request, surroundings(inner, ground, &members)) {
        Ok(mut assignment) => reader.decide(&mut assignment).await,
        Err(error) => Err(error.into()),
    };
    match decided {
        Ok(assigned) => {
            let is_remembered = ground.is_remembered || reader.has_recalled;
            grant(inner, members, assigned, ground, required, is_remembered).await;
        }
        // What is remembered may be out of date; before anyone is refused, the store is asked.
        Err(_) if ground.is_remembered => read_first(inner, members),
        Err(BookError::Store(error)) => try_again(inner, members, &error),
        Err(error) => fail_all(inner, members, &error),
    }
}

/// What is wanted, in the words of the decision, for a commit that requires so many other records.
pub(crate) fn group_request(
    inner: &Inner,
    first: &AssignRequest,
    wants: Vec<Want>,
    scene: &Scene,
    required: usize,
) -> Request {
    Request {
        host: first.host.clone(),
        wants,
        purpose: first.purpose,
        pools_v4: first.pools_v4.clone(),
        pools_v6: first.pools_v6.clone(),
        node_labels: scene.node_labels.clone(),
        namespace_labels: first.namespace_labels.clone(),
        blocks_max: first.blocks_max,
        host_reserve: first.host_reserve,
        changes_max: inner.changes_max() - required,
        reads_one_by_one: !inner.is_atomic(),
        surveys_first: inner.warm.as_ref().is_some_and(Warm::is_crowded),
    }
}

fn reader<'a>(inner: &'a Inner, ground: &Ground) -> Reader<'a> {
    // Where several records cannot be read at once, each costs as much as the first.
    let ahead = if inner.is_atomic() { BLOCKS_AHEAD } else { 0 };
    let own = ground.scene.affinities.iter().take(ahead).map(|(block, _)| Key::Block(*block));
    let reader = Reader::new(&inner.store).reading_ahead(own);
    reader.with_memory(inner.warm.as_ref(), ground.is_remembered)
}

/// What the decision starts from. Blocks that are known to be full come last: there is no use in looking at them first.
fn surroundings(inner: &Inner, ground: &Ground, members: &[Assigning]) -> Surroundings {
    let mut surroundings = ground.scene.surroundings(inner.now());
    for (block, affinity) in members.iter().flat_map(|member| &member.unlisted) {
        if !surroundings.affinities.iter().any(|(known, _)| known == block) {
            surroundings.affinities.push((*block, affinity.clone()));
        }
    }
    if let Some(warm) = inner.warm.as_ref().filter(|_| ground.is_remembered) {
        surroundings.affinities.sort_by_key(|(block, _)| warm.is_full(block));
        surroundings.unclaimed = warm.unclaimed();
    }
    surroundings
}

/// Answers those who are done or cannot be helped; the others, with what they want.
async fn sort(
    inner: &Arc<Inner>,
    members: Vec<Assigning>,
    ground: &Ground,
) -> Result<(Vec<Assigning>, Vec<Want>), (Vec<Assigning>, StoreError)> {
    let settled = match settled_plans(inner, &members, ground).await {
        Ok(settled) => settled,
        Err(error) => return Err((members, error)),
    };
    let (mut left, mut wants) = (Vec::new(), Vec::new());
    for (mut member, settled) in members.into_iter().zip(settled) {
        if let Some(plan) = settled {
            member.plans.clear();
            let addresses = plan.addresses.into_iter().map(|(granted, _)| granted).collect();
            member.succeed(inner, Grant { addresses, shortage: None }, plan.additions);
            continue;
        }
        match usable_handle(&member, ground) {
            Ok(handle) => {
                wants.push(member.want(handle));
                left.push(member);
            }
            Err(error) => member.fail(inner, error),
        }
    }
    Ok((left, wants))
}

fn usable_handle(member: &Assigning, ground: &Ground) -> Result<Option<Stored<Handle>>, BookError> {
    let handle = &member.request.owner.handle;
    let broken = |reason: String| Corrupt { key: Key::Handle(handle.clone()), contradictions: vec![reason] };
    match ground.handles.get(handle) {
        None | Some(Answer::Absent) => Ok(None),
        Some(Answer::Handle(stored)) if stored.value.deleted => {
            Err(AssignError::HandleGoing { handle: handle.clone() }.into())
        }
        Some(Answer::Handle(_)) if !member.request.handle_may_exist && member.granted.is_empty() => {
            Err(BookError::HandleExists { handle: handle.clone() })
        }
        Some(Answer::Handle(stored)) => Ok(Some(stored.clone())),
        Some(Answer::Unreadable(reason)) => Err(broken(reason.clone()).into()),
        Some(_) => Err(broken("it is not a handle".to_owned()).into()),
    }
}
