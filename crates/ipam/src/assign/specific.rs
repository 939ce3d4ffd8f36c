//! Giving an owner exactly the addresses it names.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::ipam::Block;
use model::{AffinityOwner, Cidr, IpVersion, Key};

use super::holdings::held_in;
use super::search::{Found, How};
use super::writes::Writes;
use super::{AssignError, Assigned, Grant, Granted, Surroundings, Version, block_owner, blocks_limit};
use crate::ask::{Pause, Seen, Sight, next};
use crate::block::{free_cooled, is_cooling_down, new_block, take_address};
use crate::{Answer, Decision, HostReserve, Next, Owner, PoolUse};

/// Who wants which addresses.
#[derive(Clone, Debug)]
pub struct AddressRequest {
    pub host: String,
    pub owner: Owner,
    pub addresses: Vec<IpAddr>,
    /// What for. Nothing means that every pool will do.
    pub purpose: Option<PoolUse>,
    pub node_labels: BTreeMap<String, String>,
    pub blocks_max: Option<usize>,
    /// How many addresses of each IP version the handle may hold; those it has can be had again.
    pub handle_max: Option<usize>,
    /// What the node keeps of every new block for itself. Such a node does not borrow.
    pub host_reserve: Option<HostReserve>,
}

/// All of the addresses, or none. Each must lie in a pool that is in service, allows the use and selects the node;
/// mode, namespace selector and reservations are for addresses that are given unasked. A block that is not there yet
/// is claimed under the same conditions as any other. An address that the owner's handle has already is granted again.
#[derive(Debug)]
pub struct AddressAssignment {
    request: AddressRequest,
    surroundings: Surroundings,
    seen: Seen,
}

impl AddressAssignment {
    pub fn new(request: AddressRequest, surroundings: Surroundings) -> AddressAssignment {
        AddressAssignment { request, surroundings, seen: Seen::default() }
    }

    fn decide(&self) -> Result<Assigned, Pause<AssignError>> {
        let mut wanted: BTreeMap<Cidr, (usize, Vec<IpAddr>)> = BTreeMap::new();
        for address in &self.request.addresses {
            let (block, pool) = self.place(*address).map_err(Pause::Fail)?;
            wanted.entry(block).or_insert_with(|| (pool, Vec::new())).1.push(*address);
        }
        let handle = Key::Handle(self.request.owner.handle.clone());
        self.seen.need(wanted.keys().map(|block| Key::Block(*block)).chain([handle]))?;
        self.check_limit()?;
        self.assign(&wanted).map_err(Pause::Fail)
    }

    /// Whether the handle may hold the addresses as well as those that it has.
    fn check_limit(&self) -> Result<(), Pause<AssignError>> {
        let Some(max) = self.request.handle_max else { return Ok(()) };
        let handle = &self.request.owner.handle;
        let blocks: Vec<Cidr> = match self.seen.handle(handle) {
            Sight::There(stored) => stored.value.blocks().collect(),
            Sight::Absent | Sight::Going | Sight::Broken(_) => Vec::new(),
        };
        self.seen.need(blocks.iter().map(|block| Key::Block(*block)))?;
        let held = held_in(handle, blocks.into_iter(), &self.ours(), &self.seen);
        let held = held.map_err(|corrupt| Pause::Fail(corrupt.into()))?;
        let held: BTreeSet<IpAddr> = held.iter().map(|granted| granted.address).collect();
        let new: BTreeSet<IpAddr> =
            self.request.addresses.iter().copied().filter(|address| !held.contains(address)).collect();
        for version in [IpVersion::V4, IpVersion::V6] {
            let count = |of: &BTreeSet<IpAddr>| {
                of.iter().filter(|address| IpVersion::of(**address) == version).count()
            };
            if count(&new) > 0 && count(&new) + count(&held) > max {
                let (handle, version) = (handle.clone(), Version(version));
                return Err(Pause::Fail(AssignError::HandleLimit { handle, version, max }));
            }
        }
        Ok(())
    }

    fn ours(&self) -> AffinityOwner {
        block_owner(&self.request.host, self.request.purpose.unwrap_or(PoolUse::Workload))
    }

    /// The block of an address and the position of its pool.
    fn place(&self, address: IpAddr) -> Result<(Cidr, usize), AssignError> {
        let pools = &self.surroundings.pools;
        let fit = pools.iter().position(|pool| pool.value.is_enabled() && pool.value.cidr.contains(address));
        let position = fit.ok_or(AssignError::NotInPool(address))?;
        let pool = &pools[position].value;
        if let Some(purpose) = self.request.purpose.filter(|purpose| !pool.allows(*purpose)) {
            let (pool, purpose) = (pool.name.clone(), purpose.word());
            return Err(AssignError::UseNotAllowed { address, pool, purpose });
        }
        if !pool.selects_node(&self.request.node_labels) {
            let (pool, host) = (pool.name.clone(), self.request.host.clone());
            return Err(AssignError::NodeNotSelected { address, pool, host });
        }
        Ok((pool.block_of(address).ok_or(AssignError::NotInPool(address))?, position))
    }

    fn assign(&self, wanted: &BTreeMap<Cidr, (usize, Vec<IpAddr>)>) -> Result<Assigned, AssignError> {
        let mut writes = Writes::new(&self.surroundings, self.ours());
        let id = &self.request.owner.handle;
        match self.seen.handle(id) {
            Sight::Absent => writes.add_handle(id.clone(), None),
            Sight::There(stored) => writes.add_handle(id.clone(), Some(stored)),
            Sight::Going => return Err(AssignError::HandleGoing { handle: id.clone() }),
            Sight::Broken(corrupt) => return Err(corrupt.clone().into()),
        }
        let (mut addresses, mut claimed, mut is_changed) = (Vec::new(), 0, false);
        for (cidr, (pool, wanted)) in wanted {
            let found = self.open(*cidr, *pool, wanted[0], claimed)?;
            claimed += usize::from(found.how == How::Claim);
            let mut block = found.block.clone();
            let is_borrowed = found.how == How::Borrow;
            for &address in wanted {
                let is_new = take_named(&mut block, &self.request.owner, address)?;
                is_changed |= is_new;
                addresses.push(Granted { address, block: *cidr, is_borrowed, is_new });
            }
            if block.allocations != found.block.allocations {
                writes.add_block(found, block);
            }
        }
        let (steps, unchanged_handles) = if is_changed { writes.steps() } else { Default::default() };
        let grants = vec![Grant { addresses, shortage: None }];
        Ok(Assigned { grants, steps, corrupt: Vec::new(), unchanged_handles })
    }

    /// The block, if something may be taken from it.
    fn open(&self, cidr: Cidr, pool: usize, address: IpAddr, claimed: usize) -> Result<Found, AssignError> {
        let ours = self.ours();
        match self.seen.block(&cidr) {
            Sight::Absent => {
                self.may_claim(&cidr, claimed)?;
                let block = new_block(cidr, &ours, self.request.host_reserve.as_ref(), self.surroundings.now);
                Ok(Found { how: How::Claim, free: block.unallocated.len(), block, revision: None, pool })
            }
            Sight::There(stored) => {
                let mut block = stored.value.clone();
                let settings = self.surroundings.settings();
                let cooldown = settings.ip_cooldown_seconds;
                free_cooled(&mut block, self.surroundings.now, cooldown);
                let is_ours = block.owner().as_ref() == Some(&ours);
                let is_strict = settings.strict_affinity || self.request.host_reserve.is_some();
                if !is_ours && is_strict {
                    return Err(AssignError::BlockOfAnother { address, block: cidr, of: block.owner() });
                }
                let how = if is_ours { How::Own } else { How::Borrow };
                let revision = Some(stored.revision.clone());
                Ok(Found { how, free: block.unallocated.len(), block, revision, pool })
            }
            Sight::Going => Err(AssignError::BlockGoing { block: cidr }),
            Sight::Broken(corrupt) => Err(corrupt.clone().into()),
        }
    }

    fn may_claim(&self, cidr: &Cidr, claimed: usize) -> Result<(), AssignError> {
        if self.surroundings.affinity(cidr).is_some() {
            return Ok(());
        }
        let (host, version) = (self.request.host.clone(), Version(cidr.version()));
        if !self.surroundings.settings().auto_allocate_blocks {
            return Err(AssignError::ClaimsOff { host, version });
        }
        let of_version = |(block, _): &&(Cidr, _)| block.version() == cidr.version();
        let blocks = self.surroundings.affinities.iter().filter(of_version).count() + claimed;
        if blocks >= blocks_limit(&self.surroundings.settings(), self.request.blocks_max) {
            return Err(AssignError::BlockLimit { host, version, blocks });
        }
        Ok(())
    }
}

/// Whether the address was taken; `false` if the owner's handle has it already.
fn take_named(block: &mut Block, owner: &Owner, address: IpAddr) -> Result<bool, AssignError> {
    if take_address(block, owner, address) {
        return Ok(true);
    }
    match block.ordinal(address).and_then(|ordinal| block.attribute(ordinal)) {
        Some(attribute) if attribute.handle() == Some(&owner.handle) => Ok(false),
        Some(attribute) if is_cooling_down(attribute) => Err(AssignError::CoolingDown { address }),
        attribute => {
            let handle = attribute.and_then(|attribute| attribute.handle()).cloned();
            Err(AssignError::Taken { address, handle })
        }
    }
}

impl Decision for AddressAssignment {
    type Outcome = Assigned;
    type Error = AssignError;

    fn poll(&mut self) -> Result<Next<Assigned>, AssignError> {
        next(self.decide())
    }

    fn show(&mut self, key: &Key, answer: Answer) {
        self.seen.show(key, answer);
    }
}
