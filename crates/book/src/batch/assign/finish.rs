//! The end of a round: additions, the commit, and what each member is told.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipam::{AssignError, Assigned, Grant, Steps};
use model::{IpVersion, Key};
use store::{Change, StoreError};
use tracing::warn;

use super::plan::Plan;
use super::{Assigning, Planned, new_addresses, one_by_one};
use crate::BookError;
use crate::batch::{Job, Unwanted};
use crate::book::{Ground, Inner};
use crate::carry::{Commit, Order, Written};
use crate::error::subject;
use crate::patience::Patience;
use crate::warm::scout;

/// Commits what was decided and answers.
pub(super) async fn grant(
    inner: &Arc<Inner>,
    members: Vec<Assigning>,
    assigned: Assigned,
    ground: &Ground,
    required: Vec<Change>,
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
    if !inner.is_atomic() && !assigned.unchanged_handles.is_empty() {
        return one_by_one::put_right(inner, members, &assigned.unchanged_handles).await;
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
        if inner.is_atomic() {
            commit(inner, planned, &assigned.steps, ground, required).await;
        } else {
            one_by_one::commit(inner, planned, &assigned.steps, ground).await;
        }
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
    requires: Vec<Change>,
) {
    let additions = planned.iter().flat_map(|planned| &planned.additions);
    let additions = additions.map(|addition| addition.change.clone()).collect();
    let commit = Commit { requires, steps: Some(steps), additions, order: Order::StepsFirst };
    match commit.carry_out(&inner.store).await {
        Ok(written) => {
            after_commit(inner, &planned, written, ground).await;
            succeed(inner, planned);
        }
        Err(stopped) => stop(inner, planned, steps, stopped.error),
    }
}

/// Remembers what was written, and sees to the node's other blocks.
pub(super) async fn after_commit(
    inner: &Arc<Inner>,
    planned: &[Planned],
    written: Vec<Written>,
    ground: &Ground,
) {
    let has_claimed = written.iter().any(|written| matches!(written.key, Key::Affinity { .. }));
    inner.remember(written);
    let Some(first) = planned.first() else { return };
    if has_claimed {
        scout::look_ahead(inner, &first.member.request, &ground.scene);
    }
    inner.give_up_deselected(&first.member.request.block_owner(), &ground.scene).await;
}

pub(super) fn succeed(inner: &Arc<Inner>, planned: Vec<Planned>) {
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
fn stop(inner: &Arc<Inner>, planned: Vec<Planned>, steps: &Steps, error: StoreError) {
    let error = Arc::new(error);
    let is_uncertain = matches!(*error, StoreError::Uncertain { .. });
    if let Some(key) = subject(&error)
        && let Some(position) = planned.iter().position(|planned| planned.is_about(key))
    {
        return refuse_one(inner, planned, position, error);
    }
    let mut members = Vec::new();
    for planned in planned {
        let plan = is_uncertain.then(|| Plan::new(&planned, steps));
        let mut member = planned.member;
        member.plans.extend(plan);
        members.push(member);
    }
    if let Some(key) = subject(&error) {
        inner.forget([key.clone()]);
    }
    try_again(inner, members, &error);
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
    pub(super) fn unwanted(&self, is_settled: bool) -> Unwanted {
        let addresses = new_addresses(&self.grant.addresses);
        let owner = self.member.request.owner.clone();
        Unwanted { owner, addresses, additions: self.additions.clone(), is_settled }
    }
}

/// Lets those try again who have patience left, after a moment.
pub(super) fn try_again(inner: &Arc<Inner>, members: Vec<Assigning>, error: &Arc<StoreError>) {
    let mut next = Vec::new();
    for mut member in members {
        match member.check(inner, error) {
            Ok(()) => next.push(member),
            Err(error) => member.fail(inner, error),
        }
    }
    put_off(inner, next);
}

/// Has them decided again, on what the store says.
pub(super) fn read_first(inner: &Arc<Inner>, mut members: Vec<Assigning>) {
    members.iter_mut().for_each(|member| member.must_read = true);
    put_back(inner, members);
}

pub(super) fn put_back(inner: &Arc<Inner>, members: Vec<Assigning>) {
    inner.put_back(members.into_iter().map(|member| Job::Assign(Box::new(member))).collect());
}

/// They failed together, and try again together.
pub(super) fn put_off(inner: &Arc<Inner>, members: Vec<Assigning>) {
    let delay = members.iter().filter_map(|member| member.patience.as_ref()).map(Patience::delay).min();
    let jobs = members.into_iter().map(|member| Job::Assign(Box::new(member))).collect();
    inner.put_off(jobs, delay.unwrap_or_default());
}

pub(super) fn fail_all(inner: &Arc<Inner>, members: Vec<Assigning>, error: &BookError) {
    members.into_iter().for_each(|member| member.fail(inner, error.clone()));
}
