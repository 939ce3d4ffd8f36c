//! Giving back what a handle holds.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use model::ipam::{Block, BlockAttribute, Handle};
use model::{Cidr, HandleId, Key};

use super::{Freeing, Released};
use crate::ask::{Pause, Seen, Sight, next};
use crate::block::{count_write, held_by};
use crate::{Answer, Decision, Next, Step, Steps, Stored};

/// Gives back the addresses of a handle for which `is_meant` says so: it gets the address, what is known about it and
/// the sequence number of its allocation. A handle that is not there holds nothing.
///
/// The handle is put right on the way: afterwards it says what the blocks say. With an `is_meant` that is never true
/// that is all that happens.
pub struct HandleRelease<F> {
    id: HandleId,
    is_meant: F,
    cooldown_from: Option<Timestamp>,
    is_own_failure: bool,
    seen: Seen,
}

impl<F: Fn(IpAddr, &BlockAttribute, u64) -> bool> HandleRelease<F> {
    /// With `cooldown_from` (now) the addresses cool down before they are given again; only for clusters that have
    /// a reuse delay.
    pub fn new(id: impl Into<HandleId>, is_meant: F, cooldown_from: Option<Timestamp>) -> HandleRelease<F> {
        HandleRelease { id: id.into(), is_meant, cooldown_from, is_own_failure: false, seen: Seen::default() }
    }

    /// For the one whose own assignment to this handle has just failed, and who gives back what it got: it knows that
    /// nothing of it is under way any more, so the blocks need not be written anew. If they were, two who fail would
    /// go on defeating each other.
    #[must_use]
    pub fn after_own_failure(mut self) -> HandleRelease<F> {
        self.is_own_failure = true;
        self
    }

    fn decide(&self) -> Result<Released, Pause<Infallible>> {
        self.seen.need([Key::Handle(self.id.clone())])?;
        let stored = match self.seen.handle(&self.id) {
            Sight::There(stored) => stored,
            Sight::Absent | Sight::Going => return Ok(Released::default()),
            Sight::Broken(corrupt) => {
                return Ok(Released { corrupt: vec![corrupt.clone()], ..Released::default() });
            }
        };
        self.seen.need(stored.value.blocks().map(Key::Block))?;
        let (mut freeing, mut corrupt) = (Freeing::default(), Vec::new());
        let mut left = Handle { block: Default::default(), ..stored.value.clone() };
        for cidr in stored.value.blocks() {
            let count = match self.seen.block(&cidr) {
                Sight::Absent | Sight::Going => 0,
                Sight::There(block) => self.free_in(block, stored.value.count(&cidr), &mut freeing),
                Sight::Broken(found) => {
                    corrupt.push(found.clone());
                    stored.value.count(&cidr)
                }
            };
            if count != 0 {
                left.block.insert(cidr.to_string(), count);
            }
        }
        self.seen.need(freeing.affinities_needed())?;
        if left == stored.value && freeing.addresses.is_empty() && !left.block.is_empty() {
            return Ok(Released { corrupt, ..Released::default() });
        }
        let handles = vec![(self.id.clone(), left, stored.revision.clone())];
        Ok(Released { corrupt, ..freeing.steps(handles, &self.seen) })
    }

    /// How many addresses the handle still has in the block.
    fn free_in(&self, stored: &Stored<Block>, known: i64, freeing: &mut Freeing) -> i64 {
        let block = &stored.value;
        let is_meant = |(ordinal, attribute): &(usize, &BlockAttribute)| {
            let address = block.address(*ordinal);
            address.is_some_and(|address| (self.is_meant)(address, attribute, block.sequence_of(*ordinal)))
        };
        let meant: Vec<usize> =
            held_by(block, &self.id).filter(is_meant).map(|(ordinal, _)| ordinal).collect();
        if !meant.is_empty() {
            freeing.free(stored, &meant, self.cooldown_from);
        }
        let count = i64::try_from(freeing.count(stored, &self.id)).unwrap_or(i64::MAX);
        if meant.is_empty() && count != known {
            let mut relied_on = Steps::default();
            if count < known && !self.is_own_failure {
                // Someone may be about to take the address that the handle already counts.
                let mut touched = block.clone();
                count_write(&mut touched);
                relied_on.touch(block.key(), touched.encode(), stored.revision.clone());
            } else {
                relied_on.push(Step::Require { key: block.key(), revision: stored.revision.clone() });
            }
            freeing.relied_on.insert(block.cidr, relied_on);
        }
        count
    }
}

/// Releases with everything at hand: the handle, and every block it names (`None` where there is none).
pub fn release_handle(
    id: &HandleId,
    handle: &Stored<Handle>,
    blocks: Vec<(Cidr, Option<Stored<Block>>)>,
    is_meant: impl Fn(IpAddr, &BlockAttribute, u64) -> bool,
    cooldown_from: Option<Timestamp>,
) -> Released {
    let mut release = HandleRelease::new(id, is_meant, cooldown_from);
    release.show(&Key::Handle(id.clone()), Answer::Handle(handle.clone()));
    for (cidr, block) in blocks {
        release.show(&Key::Block(cidr), block.map_or(Answer::Absent, Answer::Block));
    }
    loop {
        match release.poll() {
            Ok(Next::Done(released)) => return released,
            Ok(Next::Look(keys)) => {
                for key in keys {
                    release.show(&key, Answer::Unreadable("not at hand".to_owned()));
                }
            }
            Ok(Next::Survey(_)) => unreachable!("a release looks only at what its handle names"),
            Err(never) => match never {},
        }
    }
}

impl<F: Fn(IpAddr, &BlockAttribute, u64) -> bool> Decision for HandleRelease<F> {
    type Outcome = Released;
    type Error = Infallible;

    fn poll(&mut self) -> Result<Next<Released>, Infallible> {
        next(self.decide())
    }

    fn show(&mut self, key: &Key, answer: Answer) {
        self.seen.show(key, answer);
    }
}

impl<F> fmt::Debug for HandleRelease<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleRelease")
            .field("id", &self.id)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
