//! Changing what is noted down about the owner of an address, while it stays the handle's: a machine that moves from
//! one node to another keeps its address, and for a while has an owner on both.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::ipam::{Block, BlockAttribute};
use model::{HandleId, Key, TextMap};

use crate::ask::{Pause, Seen, Sight, next};
use crate::block::{attribute_index, count_write, is_cooling_down, tidy};
use crate::release::locate;
use crate::{Answer, Corrupt, Decision, NAMESPACE_ATTRIBUTE, Next, POD_ATTRIBUTE, Pool, Steps, Stored};

/// What to change about one address, and what must be true for it. Of the two owners, the active one is the one that
/// traffic goes to; the alternate one is there during a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerChange {
    pub address: IpAddr,
    /// Only if this handle holds the address.
    pub handle: HandleId,
    pub active: Attributes,
    pub alternate: Attributes,
    pub if_active: Expected,
    pub if_alternate: Expected,
}

/// What becomes of an owner's attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Attributes {
    #[default]
    Keep,
    Clear,
    Set(BTreeMap<String, String>),
}

/// Whose attributes they must be before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    #[default]
    Anyone,
    /// There must be none.
    Nobody,
    /// It must be this pod.
    Pod { namespace: String, name: String },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnerChangeError {
    #[error("{0} is not allocated")]
    NotAllocated(IpAddr),
    #[error("{address} is held by {}", .handle.as_ref().map_or("an owner without handle", HandleId::as_str))]
    OtherHandle { address: IpAddr, handle: Option<HandleId> },
    #[error("the {which} owner of {address} is {found}")]
    OtherOwner { address: IpAddr, which: &'static str, found: String },
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// Decides on an [`OwnerChange`]: one write of the block, or none where nothing changes. The allocation stays the same
/// one: its number does not change.
#[derive(Debug)]
pub struct OwnerUpdate {
    change: OwnerChange,
    pools: Vec<Pool>,
    seen: Seen,
}

impl OwnerUpdate {
    /// `pools` only help to find the block; see [`crate::AddressRelease::new`].
    pub fn new(change: OwnerChange, pools: Vec<Pool>) -> OwnerUpdate {
        OwnerUpdate { change, pools, seen: Seen::default() }
    }

    fn decide(&self) -> Result<Steps, Pause<OwnerChangeError>> {
        let place = locate(self.change.address, &self.pools, &self.seen)?;
        let stored = match place.map(|cidr| self.seen.block(&cidr)) {
            Some(Sight::There(stored)) => stored,
            Some(Sight::Broken(corrupt)) => return Err(Pause::Fail(corrupt.clone().into())),
            Some(Sight::Absent | Sight::Going) | None => {
                return Err(Pause::Fail(OwnerChangeError::NotAllocated(self.change.address)));
            }
        };
        self.change.apply(stored).map_err(Pause::Fail)
    }
}

impl OwnerChange {
    fn apply(&self, stored: &Stored<Block>) -> Result<Steps, OwnerChangeError> {
        let (ordinal, known) = self.allocation(&stored.value)?;
        let mut wanted = known.clone();
        self.active.apply(&mut wanted.secondary);
        self.alternate.apply(&mut wanted.alternate_owner);
        let mut steps = Steps::default();
        if wanted == *known {
            return Ok(steps);
        }
        let mut block = stored.value.clone();
        // Other addresses may share the entry that was: this one gets its own.
        let index = attribute_index(&mut block, wanted);
        block.allocations[ordinal] = Some(index);
        tidy(&mut block);
        count_write(&mut block);
        steps.put(block.key(), block.encode(), Some(stored.revision.clone()));
        Ok(steps)
    }

    /// The address's place and what is known about it, if that is as it must be.
    fn allocation<'a>(&self, block: &'a Block) -> Result<(usize, &'a BlockAttribute), OwnerChangeError> {
        let address = self.address;
        let not_allocated = || OwnerChangeError::NotAllocated(address);
        let ordinal = block.ordinal(address).ok_or_else(not_allocated)?;
        let known = block.attribute(ordinal).filter(|known| !is_cooling_down(known));
        let known = known.ok_or_else(not_allocated)?;
        if known.handle() != Some(&self.handle) {
            let handle = known.handle().cloned();
            return Err(OwnerChangeError::OtherHandle { address, handle });
        }
        let owners = [
            ("active", &self.if_active, &known.secondary),
            ("alternate", &self.if_alternate, &known.alternate_owner),
        ];
        for (which, expected, found) in owners {
            if !expected.is_met_by(found) {
                return Err(OwnerChangeError::OtherOwner { address, which, found: name_of(found) });
            }
        }
        Ok((ordinal, known))
    }
}

impl Attributes {
    fn apply(&self, attributes: &mut TextMap<String>) {
        match self {
            Attributes::Keep => {}
            Attributes::Clear => attributes.clear(),
            Attributes::Set(new) => *attributes = new.into(),
        }
    }
}

impl Expected {
    fn is_met_by(&self, found: &TextMap<String>) -> bool {
        match self {
            Expected::Anyone => true,
            Expected::Nobody => found.is_empty(),
            Expected::Pod { namespace, name } => {
                found.get(NAMESPACE_ATTRIBUTE) == Some(namespace) && found.get(POD_ATTRIBUTE) == Some(name)
            }
        }
    }
}

fn name_of(found: &TextMap<String>) -> String {
    match (found.get(NAMESPACE_ATTRIBUTE), found.get(POD_ATTRIBUTE)) {
        (Some(namespace), Some(name)) => format!("pod {namespace}/{name}"),
        _ if found.is_empty() => "nobody".to_owned(),
        _ => "not a pod".to_owned(),
    }
}

impl Decision for OwnerUpdate {
    type Outcome = Steps;
    type Error = OwnerChangeError;

    fn poll(&mut self) -> Result<Next<Steps>, OwnerChangeError> {
        next(self.decide())
    }

    fn show(&mut self, key: &Key, answer: Answer) {
        self.seen.show(key, answer);
    }
}
