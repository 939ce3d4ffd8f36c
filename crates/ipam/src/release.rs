//! Giving an owner's addresses back.

use std::net::IpAddr;

use jiff::Timestamp;
use model::ipam::{Block, BlockAttribute, Handle};
use model::{Cidr, Key};

use crate::block::{count_of, is_empty, release};
use crate::{Step, Stored};

/// What a release does, once all its steps have happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Released {
    pub addresses: Vec<IpAddr>,
    pub steps: Vec<Step>,
}

/// Gives back the addresses of a handle for which `is_meant` says so (it gets the address, what is known about it and
/// the sequence number of its allocation). `blocks` holds every block the handle names, `None` where there is none.
/// The handle is put right on the way: afterwards it says what the blocks say. Nothing to do gives no steps.
pub fn release_handle(
    id: &str,
    handle: &Stored<Handle>,
    blocks: Vec<(Cidr, Option<Stored<Block>>)>,
    is_meant: impl Fn(IpAddr, &BlockAttribute, u64) -> bool,
    cooldown_from: Option<Timestamp>,
) -> Released {
    let mut released = Released::default();
    let mut left = handle.value.clone();
    for (cidr, stored) in blocks {
        let count = match stored {
            Some(stored) => release_from_block(id, stored, &is_meant, cooldown_from, &mut released),
            None => {
                released.steps.push(Step::RequireAbsent { key: Key::Block(cidr) });
                0
            }
        };
        if count == 0 {
            left.block.remove(&cidr.to_string());
        } else {
            left.block.insert(cidr.to_string(), i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
    if left == handle.value && released.addresses.is_empty() && !left.block.is_empty() {
        return Released::default();
    }
    released.steps.push(handle_step(id, left, handle.revision.clone()));
    released
}

/// How many addresses the handle still has in the block.
fn release_from_block(
    id: &str,
    stored: Stored<Block>,
    is_meant: &impl Fn(IpAddr, &BlockAttribute, u64) -> bool,
    cooldown_from: Option<Timestamp>,
    released: &mut Released,
) -> usize {
    let Stored { value: mut block, revision } = stored;
    let key = block.key();
    let addresses = release(&mut block, id, is_meant, cooldown_from);
    let step = if addresses.is_empty() {
        Step::Require { key, revision }
    } else if is_empty(&block) && block.owner().is_none() {
        Step::Delete { key, revision }
    } else {
        Step::Update { key, value: block.encode(), revision }
    };
    released.steps.push(step);
    released.addresses.extend(addresses);
    count_of(&block, id)
}

fn handle_step(id: &str, handle: Handle, revision: String) -> Step {
    let key = Key::Handle(id.to_owned());
    if handle.block.is_empty() {
        Step::Delete { key, revision }
    } else {
        Step::Update { key, value: handle.encode(), revision }
    }
}
