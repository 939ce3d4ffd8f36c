//! Addresses by name: giving them, taking them back, asking about them.

use std::net::IpAddr;
use std::sync::Arc;

use ipam::{
    AddressAssignment, AddressLookup, AddressRelease, AddressRequest, Allocation, Answer, Corrupt, Grant,
    HostReserve, Owner, OwnerChange, OwnerUpdate, PoolUse, ReleaseItem, Unreleased, held_by,
};
use model::ipam::BlockAttribute;
use model::{AffinityOwner, Cidr, HandleId, Key, KeyRange, Kind};
use store::{Lookup, Record, StoreError};
use tokio::sync::oneshot;

use crate::batch::Unwanted;
use crate::book::{Book, Inner};
use crate::carry::{Commit, Order};
use crate::error::subject;
use crate::look::{self, Reader, read_records};
use crate::request::AssignRequest;
use crate::scene::understandable_pools;
use crate::{Addition, Additions, BookError};

/// Exactly these addresses for one owner: all of them, or none.
#[derive(Debug)]
pub struct GivenRequest {
    /// The node that the owner is on.
    pub host: String,
    pub owner: Owner,
    pub addresses: Vec<IpAddr>,
    /// What for. Nothing means that every pool will do.
    pub purpose: Option<PoolUse>,
    pub blocks_max: Option<usize>,
    /// How many addresses of each IP version the handle may hold.
    pub handle_max: Option<usize>,
    /// What the node keeps of every new block for itself.
    pub host_reserve: Option<HostReserve>,
    /// Happens together with the addresses, or not at all.
    pub additions: Additions,
}

impl GivenRequest {
    /// Addresses for a workload.
    pub fn new(host: impl Into<String>, owner: Owner, addresses: Vec<IpAddr>) -> GivenRequest {
        GivenRequest {
            host: host.into(),
            owner,
            addresses,
            purpose: Some(PoolUse::Workload),
            blocks_max: None,
            handle_max: None,
            host_reserve: None,
            additions: Additions::none(),
        }
    }
}

/// What became of addresses that were to be released.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReleasedAddresses {
    pub addresses: Vec<IpAddr>,
    /// What was asked for and not done, each with the reason. The others are not held up by it.
    pub unreleased: Vec<Unreleased>,
    /// Handles that cannot be read, and so were not counted again.
    pub corrupt: Vec<Corrupt>,
}

/// What a handle holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holding {
    /// There is a record of the handle; it may hold nothing all the same.
    pub exists: bool,
    pub addresses: Vec<HeldAddress>,
    /// Records that cannot be read or contradict themselves; what they hold is not known.
    pub corrupt: Vec<Corrupt>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HeldAddress {
    pub address: IpAddr,
    pub block: Cidr,
    pub attribute: BlockAttribute,
    pub sequence_number: u64,
}

impl Book {
    /// Gives an owner the addresses that it names. Those that its handle has already are granted again.
    pub async fn assign_addresses(&self, request: GivenRequest) -> Result<Grant, BookError> {
        look::check_handle(&request.owner.handle)?;
        let (answer, answered) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        // A task of its own: a caller who stops waiting must not leave a commit behind that nobody knows of.
        tokio::spawn(async move {
            let result = assign_given(&inner, &request).await;
            let (result, unwanted) = match result {
                Ok((grant, unwanted)) => (Ok(grant), Some(unwanted)),
                Err(error) => (Err(error), None),
            };
            if answer.send(result).is_err()
                && let Some(unwanted) = unwanted
            {
                unwanted.spawn(&inner);
            }
        });
        answered.await.unwrap_or(Err(BookError::Closed))
    }

    /// Gives back addresses, each under its own conditions. However many there are, each block is written once per
    /// commit.
    pub async fn release_addresses(
        &self,
        items: impl IntoIterator<Item = ReleaseItem>,
    ) -> Result<ReleasedAddresses, BookError> {
        let inner = &self.inner;
        let (mut items, mut all): (Vec<ReleaseItem>, _) =
            (items.into_iter().collect(), ReleasedAddresses::default());
        let mut patience = inner.patience();
        while !items.is_empty() {
            let ground = inner.release_ground(&[], true).await?;
            let required = inner.required(&ground.lock)?;
            let (now, changes_max) = (inner.now(), inner.changes_max() - required.len());
            let cooldown_from = ground.cooldown_from(now);
            let mut release =
                AddressRelease::new(items.clone(), ground.pools.clone(), cooldown_from, changes_max);
            let released = inner.decide(&mut release).await?;
            if let Err(error) = inner.carry_out(required, &released.steps).await {
                patience.after(error).await?;
                continue;
            }
            inner.give_up_emptied(&released.emptied, &ground.pools).await;
            all.addresses.extend(released.addresses);
            all.unreleased.extend(released.unreleased);
            all.corrupt.extend(released.corrupt);
            items = released.later;
        }
        Ok(all)
    }

    /// Whose an address is, in whatever pool or in none; `None` if it is free.
    pub async fn lookup(&self, address: IpAddr) -> Result<Option<Allocation>, BookError> {
        let pools = self.inner.store.read(vec![Lookup::Range(KeyRange::Kind(Kind::IpPool))]).await?;
        let pools = understandable_pools(&pools.concat());
        self.inner.decide(&mut AddressLookup::new(address, pools)).await
    }

    /// Changes what is noted down about the owner of an address, if everything is as the change expects. Whether there
    /// was anything to change.
    pub async fn change_owner(&self, change: OwnerChange) -> Result<bool, BookError> {
        let inner = &self.inner;
        let mut patience = inner.patience();
        loop {
            let ground = inner.release_ground(&[], true).await?;
            let required = inner.required(&ground.lock)?;
            let steps = inner.decide(&mut OwnerUpdate::new(change.clone(), ground.pools)).await?;
            match inner.carry_out(required, &steps).await {
                Ok(()) => return Ok(!steps.is_empty()),
                Err(error) => patience.after(error).await?,
            }
        }
    }

    /// What a handle holds, and other records that the caller wants to see, in two round trips at most.
    pub async fn held(&self, handle: &HandleId, also: Vec<Key>) -> Result<(Holding, Vec<Record>), BookError> {
        look::check_handle(handle)?;
        let key = Key::Handle(handle.clone());
        let keys = also.iter().cloned().chain([key.clone()]).collect();
        let mut found = read_records(&self.inner.store, keys).await?;
        let record = found.remove(&key).flatten();
        let also = also.iter().filter_map(|key| found.remove(key).flatten()).collect();
        let mut holding = Holding { exists: record.is_some(), ..Holding::default() };
        match look::read(&key, record.as_ref()) {
            Answer::Handle(stored) => {
                let blocks = stored.value.blocks().map(Key::Block).collect();
                for (key, answer) in Reader::new(&self.inner.store).look(blocks).await? {
                    holding.add(handle, &key, answer);
                }
            }
            answer => holding.add(handle, &key, answer),
        }
        Ok((holding, also))
    }
}

impl Holding {
    fn add(&mut self, handle: &HandleId, key: &Key, answer: Answer) {
        let mut broken = |contradictions| self.corrupt.push(Corrupt { key: key.clone(), contradictions });
        match answer {
            Answer::Block(stored) => {
                let block = &stored.value;
                let held = held_by(block, handle).filter_map(|(ordinal, attribute)| {
                    Some(HeldAddress {
                        address: block.address(ordinal)?,
                        block: block.cidr,
                        attribute: attribute.clone(),
                        sequence_number: block.sequence_of(ordinal),
                    })
                });
                self.addresses.extend(held);
            }
            Answer::Unreadable(reason) => broken(vec![reason]),
            Answer::Absent | Answer::Handle(_) | Answer::Affinity(_) => {}
        }
    }
}

/// The grant, and what to give back if nobody wants it any more.
async fn assign_given(inner: &Arc<Inner>, request: &GivenRequest) -> Result<(Grant, Unwanted), BookError> {
    let mut patience = inner.patience();
    let mut maybe_done: Option<Vec<Addition>> = None;
    let mut must_read = inner.warm.is_none();
    loop {
        // What is remembered may be out of date; before anyone is refused, the store is asked.
        let attempt = match Attempt::decide(inner, request, must_read).await {
            Err(_) if !std::mem::replace(&mut must_read, true) => continue,
            attempt => attempt?,
        };
        must_read = true;
        if let Some(additions) = maybe_done.take()
            && attempt.steps.is_empty()
            && are_done(inner, &additions).await?
        {
            let unwanted = attempt.unwanted(request, additions, true);
            return Ok((attempt.grant, unwanted));
        }
        if !inner.is_atomic() && attempt.has_unchanged_handle {
            let unwanted = Unwanted { addresses: Vec::new(), ..attempt.unwanted(request, Vec::new(), false) };
            unwanted.take_back(inner).await?;
            continue;
        }
        let additions = request.additions.make(&attempt.grant.addresses)?;
        let changes = additions.iter().map(|addition| addition.change.clone()).collect();
        let commit = Commit {
            requires: attempt.required.clone(),
            steps: Some(&attempt.steps),
            additions: changes,
            order: Order::StepsFirst,
        };
        let stopped = match commit.carry_out(&inner.store).await {
            Ok(written) => {
                inner.forget(written.into_iter().map(|written| written.key));
                let unwanted = attempt.unwanted(request, additions, true);
                return Ok((attempt.grant, unwanted));
            }
            Err(stopped) => stopped,
        };
        let is_uncertain = matches!(stopped.error, StoreError::Uncertain { .. });
        if stopped.is_partial {
            let unwanted = attempt.unwanted(request, additions.clone(), !is_uncertain);
            if stopped.error.is_lost_race() || is_uncertain {
                unwanted.take_back(inner).await?;
            } else {
                unwanted.spawn(inner);
            }
        }
        if let Some(key) = subject(&stopped.error)
            && additions.iter().any(|addition| addition.key() == key)
        {
            let (key, source) = (key.clone(), Some(Arc::new(stopped.error)));
            return Err(BookError::Addition { key, source });
        }
        maybe_done = (is_uncertain && !stopped.is_partial).then_some(additions);
        patience.after(stopped.error).await?;
    }
}

/// One decision on given addresses.
struct Attempt {
    grant: Grant,
    steps: ipam::Steps,
    required: Vec<store::Change>,
    /// See [`ipam::Assigned::unchanged_handles`].
    has_unchanged_handle: bool,
}

impl Attempt {
    async fn decide(inner: &Inner, request: &GivenRequest, must_read: bool) -> Result<Attempt, BookError> {
        let purpose = request.purpose.unwrap_or(PoolUse::Workload);
        let like =
            AssignRequest { purpose, ..AssignRequest::new(&*request.host, request.owner.clone(), &[]) };
        let ground = inner.ground(&like, &[], must_read).await?;
        let required = inner.required(&ground.scene.lock)?;
        let wanted = AddressRequest {
            host: request.host.clone(),
            owner: request.owner.clone(),
            addresses: request.addresses.clone(),
            purpose: request.purpose,
            node_labels: match like.block_owner() {
                AffinityOwner::Host(_) => ground.scene.node_labels.clone(),
                AffinityOwner::Virtual(_) => Default::default(),
            },
            blocks_max: request.blocks_max,
            handle_max: request.handle_max,
            host_reserve: request.host_reserve,
        };
        let mut decision = AddressAssignment::new(wanted, ground.scene.surroundings(inner.now()));
        let mut assigned = inner.decide(&mut decision).await?;
        let grant = assigned.grants.pop().unwrap_or_default();
        let has_unchanged_handle = !assigned.unchanged_handles.is_empty();
        Ok(Attempt { grant, steps: assigned.steps, required, has_unchanged_handle })
    }

    fn unwanted(&self, request: &GivenRequest, additions: Vec<Addition>, is_settled: bool) -> Unwanted {
        let new = self.grant.addresses.iter().filter(|granted| granted.is_new);
        let addresses = new.map(|granted| granted.address).collect();
        Unwanted { owner: request.owner.clone(), addresses, additions, is_settled }
    }
}

async fn are_done(inner: &Inner, additions: &[Addition]) -> Result<bool, BookError> {
    let keys = additions.iter().map(|addition| addition.key().clone()).collect();
    let found = read_records(&inner.store, keys).await?;
    let record = |addition: &Addition| found.get(addition.key()).and_then(Option::as_ref);
    Ok(additions.iter().all(|addition| addition.is_done(record(addition))))
}
