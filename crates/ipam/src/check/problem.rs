//! What can be wrong with the books.

use std::net::IpAddr;

use model::ipam::AffinityState;
use model::{AffinityOwner, Cidr, FindingCode, HandleId, Key};

use super::User;
use crate::ask::Listed;
use crate::{Books, Corrupt};

/// One thing that is wrong. The order of the variants is the order of a report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Problem {
    #[error("{address} is allocated to {} but not in use", .handle.as_ref().map_or("no handle", HandleId::as_str))]
    Leaked { address: IpAddr, handle: Option<HandleId>, sequence_number: u64 },
    #[error("{address} is used by {} but is in no IP pool that allows it", Listed(.users))]
    UsedOutsidePools { address: IpAddr, users: Vec<User> },
    #[error("{address} is used by {} but is not allocated", Listed(.users))]
    UsedNotAllocated { address: IpAddr, users: Vec<User> },
    #[error("{address} is used by more than one: {}", Listed(.users))]
    SeveralUsers { address: IpAddr, users: Vec<User> },
    #[error("{address} is allocated in more than one block: {}", Listed(.blocks))]
    AllocatedTwice { address: IpAddr, blocks: Vec<Cidr> },
    #[error("no block refers to handle {handle}")]
    HandleUnused { handle: HandleId, revision: String },
    #[error("handle {handle} is missing; it holds addresses in {}", Listed(.blocks))]
    HandleMissing { handle: HandleId, blocks: Vec<Cidr> },
    #[error("handle {handle} counts {said} addresses in {block}, but the block holds {found} of them")]
    HandleCount { handle: HandleId, block: Cidr, said: i64, found: i64 },
    #[error("blocks {0} and {1} overlap")]
    BlocksOverlap(Cidr, Cidr),
    #[error("block {block} belongs to {}, which has no affinity for it", name_of(.owner))]
    AffinityMissing { block: Cidr, owner: AffinityOwner },
    #[error("{} has an affinity for block {block}, which {}", name_of(.owner), truth(.really))]
    AffinityDiffers { block: Cidr, owner: AffinityOwner, really: Really },
    #[error("the affinity of {} for block {block} is still {state}", name_of(.owner))]
    AffinityUnfinished { block: Cidr, owner: AffinityOwner, state: String },
    #[error("block {block} belongs to node {node}, which is gone")]
    AffinityOfGoneNode { block: Cidr, node: String },
    #[error(transparent)]
    Corrupt(Corrupt),
}

impl Problem {
    /// The code under which the doctor reports it. `books`: the records in which it was found.
    pub fn code(&self, books: &Books) -> FindingCode {
        match self {
            Problem::Leaked { .. } => FindingCode::AddressLeaked,
            Problem::UsedOutsidePools { .. } => FindingCode::AddressOutsidePools,
            Problem::UsedNotAllocated { .. } => FindingCode::AddressUsedButFree,
            Problem::SeveralUsers { users, .. } => {
                match users.iter().any(|user| matches!(user, User::Tunnel { .. })) {
                    true => FindingCode::TunnelAddressShared,
                    false => FindingCode::AddressShared,
                }
            }
            Problem::AllocatedTwice { .. } => FindingCode::AddressAllocatedTwice,
            Problem::HandleUnused { .. } => FindingCode::HandleUnused,
            Problem::HandleMissing { .. } => FindingCode::HandleMissing,
            Problem::HandleCount { .. } => FindingCode::HandleCountWrong,
            Problem::BlocksOverlap(..) => FindingCode::BlockOverlap,
            Problem::AffinityMissing { .. } => FindingCode::AffinityMissing,
            Problem::AffinityDiffers { block, owner, .. } => {
                let stored = books.affinities.get(&(owner.clone(), *block));
                match stored.is_some_and(|stored| stored.value.state != AffinityState::Confirmed) {
                    true => FindingCode::AffinityUnfinished,
                    false => FindingCode::AffinityContradicted,
                }
            }
            Problem::AffinityUnfinished { .. } => FindingCode::AffinityUnfinished,
            Problem::AffinityOfGoneNode { .. } => FindingCode::AffinityOfGoneNode,
            Problem::Corrupt(corrupt) => match &corrupt.key {
                Key::Block(block) if books.blocks.contains_key(block) => FindingCode::BlockContradictsItself,
                _ => FindingCode::RecordUnreadable,
            },
        }
    }
}

/// What a block says, where an affinity says something else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Really {
    Absent,
    Unowned,
    OwnedBy(AffinityOwner),
}

fn name_of(owner: &AffinityOwner) -> String {
    match owner {
        AffinityOwner::Host(name) => format!("node {name}"),
        AffinityOwner::Virtual(name) => name.clone(),
    }
}

fn truth(really: &Really) -> String {
    match really {
        Really::Absent => "does not exist".to_owned(),
        Really::Unowned => "has no owner".to_owned(),
        Really::OwnedBy(other) => format!("belongs to {}", name_of(other)),
    }
}
