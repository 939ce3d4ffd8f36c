//! One round for handles that give back what they hold: every block is written once, in one commit.

pub(super) mod one_by_one;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipam::{AddressRelease, Answer, Corrupt, HandleRelease, ReleaseItem, Released, Stored, held_by};
use model::ipam::Handle;
use model::{Cidr, HandleId, Key};
use store::{Change, StoreError};
use tokio::sync::oneshot;
use tracing::warn;

use super::Job;
use crate::BookError;
use crate::book::{Inner, ReleaseGround};
use crate::carry::Commit;
use crate::error::subject;
use crate::look::Reader;
use crate::patience::Patience;
use crate::request::HandleRequest;

/// What became of a handle's addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GivenBack {
    pub addresses: Vec<IpAddr>,
    /// Records that contradict themselves: nothing was released into them.
    pub corrupt: Vec<Corrupt>,
}

/// Someone who gives something back.
#[derive(Debug)]
pub(crate) struct Releasing {
    pub(crate) request: HandleRequest,
    answer: oneshot::Sender<Result<GivenBack, BookError>>,
    patience: Patience,
    /// What is remembered has failed us: decide on what the store says now.
    must_read: bool,
    /// The answer to an earlier commit was lost: what it was to change may have changed.
    may_be_done: bool,
    /// Released by earlier rounds, on a store without transactions.
    freed: Vec<IpAddr>,
    /// When to try again, if it has to.
    pub(super) due: Option<Instant>,
}

/// What a member asks for, in terms of addresses.
enum Meant {
    /// Its handle and the blocks agree: these go together with others'.
    Items(Vec<ReleaseItem>, BTreeSet<Cidr>),
    /// They do not, or cannot be read: a decision of its own puts them right.
    NeedsCare,
}

impl Releasing {
    pub(crate) fn new(
        request: HandleRequest,
        answer: oneshot::Sender<Result<GivenBack, BookError>>,
        patience: Patience,
    ) -> Releasing {
        Releasing {
            request,
            answer,
            patience,
            must_read: false,
            may_be_done: false,
            freed: Vec::new(),
            due: None,
        }
    }

    fn answer(mut self, result: Result<GivenBack, BookError>) {
        let result = result.map(|mut given_back| {
            given_back.addresses.append(&mut self.freed);
            given_back
        });
        // A caller who is gone wanted it done all the same.
        let _ = self.answer.send(result);
    }

    fn additions(&self) -> impl Iterator<Item = Change> {
        self.request.additions.iter().map(|addition| addition.change.clone())
    }

    /// Whether the record that was in the way is as an earlier commit of this member was to leave it. Then that is done.
    fn has_done(&mut self, error: &StoreError) -> bool {
        let (key, found) = match error {
            StoreError::AlreadyExists { existing: found } | StoreError::Conflict { current: found } => {
                (&found.key, Some(&**found))
            }
            StoreError::NotFound { key } => (key, None),
            _ => return false,
        };
        let before = self.request.additions.len();
        if self.may_be_done {
            self.request.additions.retain(|addition| addition.key() != key || !addition.is_done(found));
        }
        self.request.additions.len() < before
    }

    fn meant(&self, ground: &ReleaseGround, blocks: &BTreeMap<Key, Answer>) -> Meant {
        match ground.handles.get(&self.request.handle) {
            None | Some(Answer::Absent) => Meant::Items(Vec::new(), BTreeSet::new()),
            Some(Answer::Handle(stored)) => self.items(stored, blocks).unwrap_or(Meant::NeedsCare),
            Some(_) => Meant::NeedsCare,
        }
    }

    /// `None` if the handle and its blocks do not agree.
    fn items(&self, handle: &Stored<Handle>, blocks: &BTreeMap<Key, Answer>) -> Option<Meant> {
        let (mut items, mut used) = (Vec::new(), BTreeSet::new());
        let known = &handle.value;
        if known.deleted || known.block.is_empty() || known.blocks().count() != known.block.len() {
            return None;
        }
        for cidr in known.blocks() {
            let Some(Answer::Block(stored)) = blocks.get(&Key::Block(cidr)) else { return None };
            let block = &stored.value;
            let held: Vec<_> = held_by(block, &self.request.handle).collect();
            let is_counted = i64::try_from(held.len()) == Ok(known.count(&cidr));
            if !is_counted || block.deleted || block.cidr != cidr || !block.contradictions().is_empty() {
                return None;
            }
            for (ordinal, attribute) in held {
                let (address, number) = (block.address(ordinal)?, block.sequence_of(ordinal));
                if (self.request.is_meant)(address, attribute, number) {
                    used.insert(cidr);
                    let handle = Some(self.request.handle.clone());
                    items.push(ReleaseItem { address, handle, sequence_number: Some(number) });
                }
            }
        }
        Some(Meant::Items(items, used))
    }
}

pub(super) async fn serve(inner: &Arc<Inner>, mut members: Vec<Releasing>) {
    let must_read = members.iter().any(|member| member.must_read);
    if must_read && !inner.is_atomic() {
        // Where each record costs a request, not everyone has to read what one of them must.
        put_back(inner, members.extract_if(.., |member| !member.must_read).collect());
    }
    let handles: Vec<HandleId> = members.iter().map(|member| member.request.handle.clone()).collect();
    let ground = match inner.release_ground(&handles, must_read).await {
        Ok(ground) => ground,
        Err(BookError::Store(error)) => return try_again(inner, members, &error),
        Err(error) => return fail_all(members, &error),
    };
    let required = match inner.required(&ground.lock) {
        Ok(required) => required,
        Err(error) if must_read || !ground.is_remembered => return fail_all(members, &error),
        Err(_) => return read_first(inner, members),
    };
    let mut reader = reader(inner, &ground);
    let blocks = match reader.look(blocks_of(&ground)).await {
        Ok(blocks) => blocks.into_iter().collect(),
        Err(error) => return try_again(inner, members, &Arc::new(error)),
    };
    let changes_max = inner.changes_max() - required.len();
    let (together, careful) = sort(inner, members, &ground, &blocks, changes_max);
    if inner.is_atomic() {
        release_together(inner, together, &ground, &required, &mut reader).await;
        apart(inner, careful, &ground, &required).await;
    } else {
        one_by_one::release_together(inner, together, &ground, &mut reader).await;
        let careful = one_by_one::add(inner, careful).await;
        apart(inner, careful, &ground, &required).await;
    }
}

fn reader<'a>(inner: &'a Inner, ground: &ReleaseGround) -> Reader<'a> {
    let handles = ground.handles.iter().map(|(id, answer)| (Key::Handle(id.clone()), answer.clone()));
    let reader = Reader::new(&inner.store).knowing(handles);
    reader.with_memory(inner.warm.as_ref(), ground.is_remembered)
}

/// Every block that the handles name.
fn blocks_of(ground: &ReleaseGround) -> Vec<Key> {
    let handles = ground.handles.values();
    let blocks = handles.filter_map(|answer| match answer {
        Answer::Handle(stored) => Some(stored.value.blocks()),
        _ => None,
    });
    let blocks: BTreeSet<Cidr> = blocks.flatten().collect();
    blocks.into_iter().map(Key::Block).collect()
}

type Together = Vec<(Releasing, Vec<ReleaseItem>)>;

/// Those who fit into one commit, and those who need one of their own. The others come next.
fn sort(
    inner: &Arc<Inner>,
    members: Vec<Releasing>,
    ground: &ReleaseGround,
    blocks: &BTreeMap<Key, Answer>,
    changes_max: usize,
) -> (Together, Vec<Releasing>) {
    let (mut together, mut careful, mut next) = (Vec::new(), Vec::new(), Vec::new());
    let (mut used, mut changes, mut keys) = (BTreeSet::new(), 0, BTreeSet::new());
    for member in members {
        if let Err(error) = crate::additions::check(&member.request.additions) {
            member.answer(Err(error));
            continue;
        }
        if let Some(addition) = member.request.additions.iter().find(|addition| keys.contains(addition.key()))
        {
            let key = addition.key().clone();
            member.answer(Err(BookError::Addition { key, source: None }));
            continue;
        }
        match member.meant(ground, blocks) {
            Meant::NeedsCare => careful.push(member),
            Meant::Items(items, of_member) => {
                let new_blocks = of_member.difference(&used).count();
                // A block that belongs to no node goes with its affinity when it is empty.
                let needed = 1 + member.request.additions.len() + 2 * new_blocks;
                if changes + needed > changes_max && !together.is_empty() {
                    next.push(member);
                    continue;
                }
                changes += needed;
                used.extend(of_member);
                keys.extend(member.request.additions.iter().map(|addition| addition.key().clone()));
                together.push((member, items));
            }
        }
    }
    put_back(inner, next);
    (together, careful)
}

async fn release_together(
    inner: &Arc<Inner>,
    together: Together,
    ground: &ReleaseGround,
    required: &[Change],
    reader: &mut Reader<'_>,
) {
    let (members, items): (Vec<_>, Vec<_>) = together.into_iter().unzip();
    if members.is_empty() {
        return;
    }
    let released = match decide(inner, &items, ground, reader).await {
        Ok(released) => released,
        Err(BookError::Store(error)) => return try_again(inner, members, &error),
        Err(error) => return fail_all(members, &error),
    };
    let additions = members.iter().flat_map(Releasing::additions).collect();
    if let Err(error) = carry_out(inner, &released, ground, required, additions).await {
        return stop(inner, members, error);
    }
    let freed: BTreeSet<IpAddr> = released.addresses.iter().copied().collect();
    for (member, items) in members.into_iter().zip(items) {
        let addresses =
            items.iter().map(|item| item.address).filter(|address| freed.contains(address)).collect();
        member.answer(Ok(GivenBack { addresses, corrupt: Vec::new() }));
    }
}

async fn decide(
    inner: &Inner,
    items: &[Vec<ReleaseItem>],
    ground: &ReleaseGround,
    reader: &mut Reader<'_>,
) -> Result<Released, BookError> {
    let all = items.iter().flatten().cloned();
    let cooldown_from = ground.cooldown_from(inner.now());
    let mut release = AddressRelease::new(all, ground.pools.clone(), cooldown_from, inner.changes_max());
    reader.decide(&mut release).await
}

/// Each on its own, and with the handle put right.
async fn apart(inner: &Arc<Inner>, members: Vec<Releasing>, ground: &ReleaseGround, required: &[Change]) {
    for member in members {
        let is_meant = Arc::clone(&member.request.is_meant);
        let is_meant = move |address, attribute: &_, number| is_meant(address, attribute, number);
        let cooldown_from = ground.cooldown_from(inner.now());
        let mut release = HandleRelease::new(member.request.handle.as_str(), is_meant, cooldown_from);
        let released = match Reader::new(&inner.store).decide(&mut release).await {
            Ok(released) => released,
            Err(BookError::Store(error)) => {
                try_again(inner, vec![member], &error);
                continue;
            }
            Err(error) => {
                member.answer(Err(error));
                continue;
            }
        };
        let additions = member.additions().collect();
        match carry_out(inner, &released, ground, required, additions).await {
            Ok(()) => {
                let Released { addresses, corrupt, .. } = released;
                member.answer(Ok(GivenBack { addresses, corrupt }));
            }
            Err(error) => stop(inner, vec![member], error),
        }
    }
}

async fn carry_out(
    inner: &Arc<Inner>,
    released: &Released,
    ground: &ReleaseGround,
    required: &[Change],
    additions: Vec<Change>,
) -> Result<(), StoreError> {
    for corrupt in &released.corrupt {
        warn!("nothing is released into it: {corrupt}");
    }
    let requires = required.to_vec();
    let commit = Commit { requires, steps: Some(&released.steps), additions, ..Commit::default() };
    let written = commit.carry_out(&inner.store).await?;
    inner.remember(written);
    inner.give_up_emptied(&released.emptied, &ground.pools).await;
    Ok(())
}

fn stop(inner: &Arc<Inner>, members: Vec<Releasing>, error: StoreError) {
    let error = Arc::new(error);
    let Some(key) = subject(&error) else { return try_again(inner, members, &error) };
    inner.forget([key.clone()]);
    let is_about = |member: &Releasing| member.request.additions.iter().any(|addition| addition.key() == key);
    if !members.iter().any(is_about) {
        return try_again(inner, members, &error);
    }
    let mut next = Vec::new();
    for mut member in members {
        if !is_about(&member) || member.has_done(&error) {
            next.push(member);
        } else {
            let (key, source) = (key.clone(), Some(Arc::clone(&error)));
            member.answer(Err(BookError::Addition { key, source }));
        }
    }
    put_back(inner, next);
}

fn try_again(inner: &Arc<Inner>, members: Vec<Releasing>, error: &Arc<StoreError>) {
    let mut next = Vec::new();
    for mut member in members {
        member.must_read = true;
        member.may_be_done |= matches!(**error, StoreError::Uncertain { .. });
        match member.patience.check_shared(error) {
            Ok(()) => next.push(member),
            Err(error) => member.answer(Err(error)),
        }
    }
    put_off(inner, next);
}

fn read_first(inner: &Arc<Inner>, mut members: Vec<Releasing>) {
    members.iter_mut().for_each(|member| member.must_read = true);
    put_back(inner, members);
}

fn put_back(inner: &Arc<Inner>, members: Vec<Releasing>) {
    inner.put_back(members.into_iter().map(|member| Job::Release(Box::new(member))).collect());
}

/// They failed together, and try again together.
fn put_off(inner: &Arc<Inner>, members: Vec<Releasing>) {
    let delay = members.iter().map(|member| member.patience.delay()).min().unwrap_or(Duration::ZERO);
    inner.put_off(members.into_iter().map(|member| Job::Release(Box::new(member))).collect(), delay);
}

fn fail_all(members: Vec<Releasing>, error: &BookError) {
    members.into_iter().for_each(|member| member.answer(Err(error.clone())));
}
