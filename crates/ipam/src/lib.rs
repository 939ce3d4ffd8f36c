//! Which address, which block: every step as records to write together. Decides; reads and writes nothing.
//!
//! Operations that read as they go are a [`Decision`]: they say which records they want to see and end with [`Steps`]
//! that carry the revisions they rely on. One list serves stores with and without transactions; [`step`] says how.
//!
//! | operation | decision |
//! |---|---|
//! | addresses for one owner or a batch, IPv4 and IPv6 | [`Assignment`] |
//! | given addresses | [`AddressAssignment`] |
//! | release by handle; by address, with handle and number | [`HandleRelease`]; [`AddressRelease`] |
//! | whose an address is; saying so anew while a machine moves | [`AddressLookup`]; [`OwnerUpdate`] |
//! | claim and confirm blocks; have one at hand | [`BlockClaim`]; [`BlockEnsurance`] |
//! | give up blocks: of a network, a host, a pool | [`AffinityRelease`], [`deselected_blocks`], [`spare_blocks`] |
//! | the reuse delay, now and then | [`settle_cooldown`] |
//! | a node's tunnel addresses | [`tunnel_address`] |
//! | what an interrupted operation left behind | [`mod@recover`] |
//! | how full the pools are; whether the books agree | [`pool_usage`]; [`mod@check`] |
//!
//! # What is different from Calico
//!
//! The records are Calico's. These weak points of its way of writing them are not ours; the numbers are those of the
//! reference on Calico's datastore, the tests are in `tests/ipam`.
//!
//! | # | Calico | here |
//! |---|---|---|
//! | 1 | handle and block are two writes, and nothing collects what a crash leaves | one commit where the store can; else [`recover()`] counts again |
//! | 2 | the handle grows by what was asked for, not by what was got | handles are counted from the block that is written with them |
//! | 3 | a given address: each retry adds one to the handle | the same: a retry starts over, and counts |
//! | 4 | a given address: a lost claim is an error | every lost race is a precondition that failed; the driver starts over |
//! | 5 | releasing several addresses takes one from the handle | counted, not subtracted |
//! | 6 | parallel releases share a handle without a lock | one decision, one write per handle, by revision |
//! | 7 | a release between an assigner's two writes finds nothing and the address leaks | cannot be seen in a commit; else the release writes the block anew, and the assigner fails ([`Ordered::Touch`]) |
//! | 8 | pending affinities without block stay for ever | [`AffinityRelease`] and [`recover()`] remove them |
//! | 9 | at the block limit nothing is borrowed | it is, unless affinity is strict |
//! | 10 | a new block lists all blocks; borrowing reads one by one; a block is written per address; 100 retries at once | [`BlockOrder`] is asked in growing batches; so is borrowing; a batch of owners shares the write; waiting between retries is the driver's |
//! | 11 | a permanent error is noted and ends as a wrong "block limit" | errors end the decision and say what they are |
//! | 12 | one stale entry fails a whole batch of releases | each [`ReleaseItem`] stands for itself ([`Released::unreleased`]) |
//! | 13 | deletes are three calls, lists show tombstones | a [`Step::Delete`] carries its revision; records marked as deleted are never used, and buried by [`recover()`] |
//! | 16 | a node's addresses are released by bare address | [`ReleaseItem`] takes handle and number; [`check`] reports both |
//! | 20 | empty blocks of no node stay | they go with their last address, affinity included |
//! | 21 | an address in a disabled or deleted pool counts as free | [`AddressLookup`] tries every size of block, pool or no pool |
//! | 23 | a given address ignores selector, limits and settings | node selector, use, block limit and `autoAllocateBlocks` hold; reservations, by definition, are for automatic assignment only |

mod affinity;
mod ask;
mod assign;
mod block;
mod books;
pub mod check;
mod doubt;
mod fingerprint;
mod host_reserve;
mod mend;
mod owner;
mod owner_change;
mod parts;
mod pool;
pub mod recover;
mod release;
mod reserved;
pub mod step;
mod tunnel;
mod usage;
mod walk;

pub use affinity::{
    AffinityRelease, BlockClaim, BlockClaimed, BlockReleased, ClaimError, Refusal, ReleaseRule, blocks_in,
    deselected_blocks, spare_blocks,
};
pub use ask::{Answer, Corrupt, Decision, Next};
pub use assign::{
    AddressAssignment, AddressRequest, AssignError, Assigned, Assignment, BLOCKS_MAX, BlockEnsurance,
    Ensured, Grant, Granted, LOAD_BALANCER, Prospect, Request, Surroundings, Survey, Version, Want,
    claim_candidates,
};
pub use block::{
    count_write, free_cooled, free_count, give_back, held_by, is_cooling_down, is_empty, is_of_windows,
    new_block, take, take_address,
};
pub use books::Books;
pub use doubt::Doubt;
pub use fingerprint::fingerprint;
pub use host_reserve::HostReserve;
pub use mend::{mend_lists, set_allocation};
pub use owner::{
    GATEWAY_TYPE, INTERFACE_ATTRIBUTE, NAMESPACE_ATTRIBUTE, NODE_ATTRIBUTE, Owner, POD_ATTRIBUTE,
    POD_UID_ATTRIBUTE, ROLE_ATTRIBUTE, TIMESTAMP_ATTRIBUTE, TYPE_ATTRIBUTE, allocated_at,
};
pub use owner_change::{Attributes, Expected, OwnerChange, OwnerChangeError, OwnerUpdate};
pub use parts::{Parts, leave_free};
pub use pool::{Pool, PoolError, PoolUse};
pub use recover::{Fault, Repair, recover, recover_claims, seen_twice};
pub use release::{
    AddressLookup, AddressRelease, Allocation, HandleRelease, ReleaseItem, Released, Unreleased, Why,
    release_handle, settle_cooldown,
};
pub use reserved::{Reservations, reserved_networks};
pub use step::{Ordered, Step, Steps, Stored, pack};
pub use tunnel::{Tunnel, TunnelAddress, TunnelNode, TunnelRelease, tunnel_address};
pub use usage::{PoolUsage, Usage, pool_usage};
pub use walk::{BlockOrder, fnv1};
