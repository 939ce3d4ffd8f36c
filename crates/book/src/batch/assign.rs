//! One round for requests for addresses that go together: one decision, one commit.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipam::{
    Answer, AssignError, Assigned, Assignment, Corrupt, Grant, Granted, Request, Steps, Stored, Surroundings,
    Want,
};
use model::ipam::{Block, Handle};
use model::{IpVersion, Key};
use store::{MAX_CHANGES, StoreError};
use tokio::sync::oneshot;
use tracing::warn;

use super::{Job, Unwanted};
use crate::book::{Ground, Inner};
use crate::carry::{Commit, Stopped};
use crate::error::subject;
use crate::look::Reader;
use crate::patience::Patience;
use crate::request::AssignRequest;
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
}

/// What one commit was to give, each address with the number of its allocation.
#[derive(Clone, Debug)]
struct Plan {
    addresses: Vec<(Granted, u64)>,
    additions: Vec<Addition>,
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
        let has_any = !addresses.is_empty() || !additions.is_empty();
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
        let limit = inner.settings.patience;
        let patience = self.patience.get_or_insert_with(|| Patience::new(limit));
        // A store that lost an answer is often away for a moment. What it did is worth waiting for.
        if !self.plans.is_empty() && matches!(**error, StoreError::Unreachable { .. }) && patience.lose() {
            return Ok(());
        }
        patience.check_shared(error)
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
    if !inner.is_atomic() && members.len() > 1 {
        // Where several records cannot be written at once, a failure in the middle would be everyone's.
        put_back(inner, members.split_off(1));
    }
    if members.is_empty() {
        return;
    }
    for member in &mut members {
        member.patience.get_or_insert_with(|| Patience::new(inner.settings.patience));
    }
    let must_read = members.iter().any(|member| member.must_read);
    match inner.ground(&members[0].request, &handles(&members), must_read).await {
        Ok(ground) => decide(inner, members, &ground).await,
        Err(BookError::Store(error)) => try_again(inner, members, &error).await,
        Err(error) => fail_all(inner, members, &error),
    }
}

fn handles(members: &[Assigning]) -> Vec<String> {
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
        Err((members, error)) => return try_again(inner, members, &Arc::new(error)).await,
    };
    let Some(first) = members.first() else { return };
    let changes_max = MAX_CHANGES - required.len();
    let request = group_request(&first.request, wants, ground, changes_max);
    let mut reader = reader(inner, ground);
    let decided = match Assignment::new(request, surroundings(inner, ground)) {
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
        Err(BookError::Store(error)) => try_again(inner, members, &error).await,
        Err(error) => fail_all(inner, members, &error),
    }
}

/// What is wanted, in the words of the decision.
pub(crate) fn group_request(
    first: &AssignRequest,
    wants: Vec<Want>,
    ground: &Ground,
    changes_max: usize,
) -> Request {
    Request {
        host: first.host.clone(),
        wants,
        purpose: first.purpose,
        pools_v4: first.pools_v4.clone(),
        pools_v6: first.pools_v6.clone(),
        node_labels: ground.scene.node_labels.clone(),
        namespace_labels: first.namespace_labels.clone(),
        blocks_max: first.blocks_max,
        host_reserve: first.host_reserve,
        changes_max,
    }
}

fn reader<'a>(inner: &'a Inner, ground: &Ground) -> Reader<'a> {
    let own = ground.scene.affinities.iter().take(BLOCKS_AHEAD).map(|(block, _)| Key::Block(*block));
    let reader = Reader::new(&*inner.store).reading_ahead(own);
    reader.with_memory(inner.warm.as_ref(), ground.is_remembered)
}

/// What the decision starts from. Blocks that are known to be full come last: there is no use in looking at them first.
fn surroundings(inner: &Inner, ground: &Ground) -> Surroundings {
    let mut surroundings = ground.scene.surroundings(inner.now());
    if let Some(warm) = inner.warm.as_ref().filter(|_| ground.is_remembered) {
        surroundings.affinities.sort_by_key(|(block, _)| warm.is_full(block));
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

/// For each member, the commit that happened after all, if one did.
async fn settled_plans(
    inner: &Inner,
    members: &[Assigning],
    ground: &Ground,
) -> Result<Vec<Option<Plan>>, StoreError> {
    let has_handle = |member: &Assigning| {
        matches!(ground.handles.get(&member.request.owner.handle), Some(Answer::Handle(_)))
    };
    let mut settled = Vec::new();
    let mut reader = Reader::new(&*inner.store);
    for member in members {
        let mut found = None;
        for plan in member.plans.iter().filter(|_| has_handle(member)) {
            let keys = plan.addresses.iter().map(|(granted, _)| Key::Block(granted.block)).collect();
            let blocks: BTreeMap<Key, Answer> = reader.look(keys).await?.into_iter().collect();
            if plan.has_happened(&member.request.owner.handle, &blocks) {
                found = Some(plan.clone());
            }
        }
        settled.push(found);
    }
    Ok(settled)
}

impl Plan {
    /// What the commit was to give, read from the blocks that it was to write.
    fn new(planned: &Planned, steps: &Steps) -> Plan {
        let mut blocks = BTreeMap::new();
        for step in steps.atomic() {
            if let (Key::Block(cidr), ipam::Step::Create { value, .. } | ipam::Step::Update { value, .. }) =
                (step.key().clone(), &step)
                && let Ok(block) = Block::decode(&cidr, value)
            {
                blocks.insert(cidr, block);
            }
        }
        let number = |granted: &Granted| {
            let block = blocks.get(&granted.block)?;
            Some((*granted, block.sequence_of(block.ordinal(granted.address)?)))
        };
        let addresses = planned.grant.addresses.iter().filter_map(number).collect();
        Plan { addresses, additions: planned.additions.clone() }
    }

    fn has_happened(&self, handle: &str, blocks: &BTreeMap<Key, Answer>) -> bool {
        let is_there = |(granted, number): &(Granted, u64)| {
            let Some(Answer::Block(stored)) = blocks.get(&Key::Block(granted.block)) else { return false };
            let Some(ordinal) = stored.value.ordinal(granted.address) else { return false };
            let holder = stored.value.attribute(ordinal).and_then(|attribute| attribute.handle());
            holder == Some(handle) && stored.value.sequence_of(ordinal) == *number
        };
        !self.addresses.is_empty() && self.addresses.iter().all(is_there)
    }
}

/// Commits what was decided and answers.
async fn grant(
    inner: &Arc<Inner>,
    members: Vec<Assigning>,
    assigned: Assigned,
    ground: &Ground,
    required: Vec<store::Change>,
    is_remembered: bool,
) {
    let is_refusal =
        |grant: &Grant| grant.shortage.as_ref().is_some_and(|shortage| *shortage != AssignError::NextCommit);
    if is_remembered && assigned.grants.iter().any(is_refusal) {
        return read_first(inner, members);
    }
    for corrupt in &assigned.corrupt {
        warn!("not used: {corrupt}");
    }
    let mut planned = Vec::new();
    let mut unplanned = Vec::new();
    for (member, grant) in members.into_iter().zip(assigned.grants) {
        if grant.addresses.is_empty() {
            unplanned.push((member, grant));
        } else {
            planned.push((member, grant));
        }
    }
    let (planned, failed) = with_additions(planned);
    if !failed.is_empty() {
        // Their addresses are in the decision: the others need a new one.
        failed.into_iter().for_each(|(member, error)| member.fail(inner, error));
        let others = planned.into_iter().map(|planned| planned.member);
        return put_back(inner, others.chain(unplanned.into_iter().map(|(member, _)| member)).collect());
    }
    if !planned.is_empty() {
        commit(inner, planned, &assigned.steps, ground, required).await;
    }
    refuse(inner, unplanned);
}

type Refused = (Assigning, BookError);

/// What the members add. Of two who want to change the same record only the first can succeed.
fn with_additions(members: Vec<(Assigning, Grant)>) -> (Vec<Planned>, Vec<Refused>) {
    let (mut planned, mut failed, mut keys) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (member, grant) in members {
        match member.request.additions.make(&grant.addresses) {
            Ok(additions) => match additions.iter().find(|addition| keys.contains(addition.key())) {
                Some(addition) => {
                    let key = addition.key().clone();
                    failed.push((member, BookError::Addition { key, source: None }));
                }
                None => {
                    keys.extend(additions.iter().map(|addition| addition.key().clone()));
                    planned.push(Planned { member, grant, additions });
                }
            },
            Err(error) => failed.push((member, error)),
        }
    }
    (planned, failed)
}

fn refuse(inner: &Arc<Inner>, members: Vec<(Assigning, Grant)>) {
    let mut next = Vec::new();
    for (member, grant) in members {
        match grant.shortage {
            Some(AssignError::NextCommit) => next.push(member),
            Some(shortage) if !member.request.accepts_fewer => member.fail(inner, shortage.into()),
            shortage => member.succeed(inner, Grant { addresses: Vec::new(), shortage }, Vec::new()),
        }
    }
    put_back(inner, next);
}

async fn commit(
    inner: &Arc<Inner>,
    planned: Vec<Planned>,
    steps: &Steps,
    ground: &Ground,
    requires: Vec<store::Change>,
) {
    let additions = planned.iter().flat_map(|planned| &planned.additions);
    let additions = additions.map(|addition| addition.change.clone()).collect();
    let commit = Commit { requires, steps: Some(steps), additions, rest_may_fail: true };
    match commit.carry_out(&*inner.store).await {
        Ok(written) => {
            inner.remember(written);
            if let Some(first) = planned.first() {
                inner.give_up_deselected(&first.member.request.block_owner(), &ground.scene).await;
            }
            succeed(inner, planned);
        }
        Err(stopped) => stop(inner, planned, steps, stopped).await,
    }
}

fn succeed(inner: &Arc<Inner>, planned: Vec<Planned>) {
    let mut next = Vec::new();
    for Planned { mut member, grant, additions } in planned {
        if grant.shortage != Some(AssignError::NextCommit) || member.request.additions.count > 0 {
            member.succeed(inner, grant, additions);
            continue;
        }
        for granted in grant.addresses.into_iter().filter(|granted| granted.is_new) {
            match IpVersion::of(granted.address) {
                IpVersion::V4 => member.request.v4 -= 1,
                IpVersion::V6 => member.request.v6 -= 1,
            }
            member.granted.push(granted);
        }
        // The handle is there now.
        member.must_read = true;
        next.push(member);
    }
    put_back(inner, next);
}

/// The commit has not happened, or nobody knows.
async fn stop(inner: &Arc<Inner>, planned: Vec<Planned>, steps: &Steps, stopped: Stopped) {
    let Stopped { error, is_partial } = stopped;
    let error = Arc::new(error);
    let is_uncertain = matches!(*error, StoreError::Uncertain { .. });
    if is_partial {
        for planned in &planned {
            planned.unwanted(!is_uncertain).take_back(inner, &error).await;
        }
    }
    if let Some(key) = subject(&error)
        && let Some(position) = planned.iter().position(|planned| planned.is_about(key))
    {
        return refuse_one(inner, planned, position, error);
    }
    let mut members = Vec::new();
    for planned in planned {
        let plan = (is_uncertain && !is_partial).then(|| Plan::new(&planned, steps));
        let mut member = planned.member;
        member.plans.extend(plan);
        members.push(member);
    }
    if let Some(key) = subject(&error) {
        inner.forget([key.clone()]);
    }
    try_again(inner, members, &error).await;
}

/// One member's own records were in the way; everything before them was as it should be.
fn refuse_one(inner: &Arc<Inner>, planned: Vec<Planned>, position: usize, error: Arc<StoreError>) {
    let mut others = Vec::new();
    for (index, planned) in planned.into_iter().enumerate() {
        if index != position {
            others.push(planned.member);
            continue;
        }
        let mut member = planned.member;
        if let Some(key) =
            subject(&error).filter(|key| **key != Key::Handle(member.request.owner.handle.clone()))
        {
            let (key, source) = (key.clone(), Some(Arc::clone(&error)));
            member.fail(inner, BookError::Addition { key, source });
        } else {
            match member.check(inner, &error) {
                Ok(()) => others.push(member),
                Err(error) => member.fail(inner, error),
            }
        }
    }
    put_back(inner, others);
}

impl Planned {
    fn is_about(&self, key: &Key) -> bool {
        *key == Key::Handle(self.member.request.owner.handle.clone())
            || self.additions.iter().any(|addition| addition.key() == key)
    }

    /// What a store that writes record by record may have given this member before it stopped.
    fn unwanted(&self, is_settled: bool) -> Unwanted {
        let addresses = new_addresses(&self.grant.addresses);
        let owner = self.member.request.owner.clone();
        Unwanted { owner, addresses, additions: self.additions.clone(), is_settled }
    }
}

/// Lets those try again who have patience left, after a moment.
async fn try_again(inner: &Arc<Inner>, members: Vec<Assigning>, error: &Arc<StoreError>) {
    let mut next = Vec::new();
    for mut member in members {
        match member.check(inner, error) {
            Ok(()) => next.push(member),
            Err(error) => member.fail(inner, error),
        }
    }
    let delay = next.iter().filter_map(|member| member.patience.as_ref()).map(Patience::delay).min();
    put_back(inner, next);
    tokio::time::sleep(delay.unwrap_or_default()).await;
}

/// Has them decided again, on what the store says.
fn read_first(inner: &Arc<Inner>, mut members: Vec<Assigning>) {
    members.iter_mut().for_each(|member| member.must_read = true);
    put_back(inner, members);
}

fn put_back(inner: &Arc<Inner>, members: Vec<Assigning>) {
    inner.queue.put_back(members.into_iter().map(|member| Job::Assign(Box::new(member))).collect());
}

fn fail_all(inner: &Arc<Inner>, members: Vec<Assigning>, error: &BookError) {
    members.into_iter().for_each(|member| member.fail(inner, error.clone()));
}
