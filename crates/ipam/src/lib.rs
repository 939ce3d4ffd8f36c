//! Which address, which block: every step as records to write together. Decides; reads and writes nothing.
//!
//! * [`Assignment`]: finds an address for an owner. It says which block it wants to see next and ends with
//!   [`Step`]s that must happen together or not at all.
//! * [`release_handle`]: gives an owner's addresses back.
//!
//! Both rely on what they were shown: the steps carry the revisions, the pool's included, and the one who commits them
//! starts over when one is outdated. There is no order here that a crash could cut in two; a store without
//! multi-record commits needs the longer way of Calico's claims, which is not in this crate yet. Addresses are only
//! taken from blocks of the own node, never borrowed.

mod assign;
mod block;
mod pool;
mod release;
mod step;
mod walk;

pub use assign::{AssignError, Assigned, Assignment, Next, Request, Surroundings};
pub use block::{INTERFACE_ATTRIBUTE, Owner, free_expired, release, take};
pub use pool::{Pool, PoolError, PoolUse, reserved_networks};
pub use release::{Released, release_handle};
pub use step::{Step, Stored};
pub use walk::{block_order, fnv1};
