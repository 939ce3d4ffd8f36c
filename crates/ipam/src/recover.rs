//! Putting right what an interrupted operation left behind, on a store that writes record by record (and what others
//! left behind, on any store).
//!
//! The blocks are the truth; handles and affinities are made to agree with them. An address is never freed here and a
//! block in use never deleted, so there is nothing to lose: what may be decided wrongly is at worst a record that the
//! next pass writes again.
//!
//! # Operations in progress
//!
//! A half-done record may belong to someone who is still at it. Every repair carries the revisions it relied on, so
//! that one of the two has to look again, whichever comes second:
//!
//! * *A handle counts an address that its block does not know.* An assigner may have written the handle and be about
//!   to write the block. The block is written anew first ([`crate::Ordered::Touch`]), so that the assigner's write
//!   fails and it starts over; it had read the block before it wrote the handle, and we read the handle before we
//!   wrote the block. If the assigner's write comes first instead, ours fails. A handle that counts addresses of a
//!   block that is *not there*, still not there once the handle is known, belongs to nobody's assignment: a new block
//!   is written empty before any handle.
//! * *An address whose handle does not know it.* Assigners write the handle first, releasers the block first: nobody
//!   is on the way through this state. The block is written anew first, in case it has been released meanwhile.
//! * *A pending affinity without a block.* A claimer may be about to make the block. Its last write, confirming the
//!   affinity, then fails, and it starts over with a block that is its own already; or it dies there, and the next
//!   pass finds a block without affinity.
//! * *A pending affinity with its block.* Confirmed, with the block written anew as everyone does who confirms.
//! * *A pending deletion.* If the block is empty the release is finished, else taken back: an address was taken after
//!   all, or the release was of a block in use, and whoever wants that asks again.
//!
//! So no repair harms anyone who is at work; it may only cost them a second try. To spare them even that, look twice
//! with some time in between and keep only what both looks found: [`seen_twice`].

use std::collections::{BTreeMap, BTreeSet};

use model::ipam::{Affinity, AffinityState, Block, Handle};
use model::{AffinityOwner, Cidr, HandleId, Key, TextMap};

use crate::affinity::{confirm, give_up};
use crate::block::{count_write, is_empty};
use crate::books::{contradictions, count_by_handle};
use crate::{Books, Doubt, Step, Steps, Stored};

/// Something to put right, and how. Each is a commit of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    pub fault: Fault,
    pub steps: Steps,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Marked as deleted, and still there.
    Tombstone(Key),
    /// A handle that does not say what the blocks say, for these blocks: counts too much, too little, or is missing.
    HandleWrong { handle: HandleId, blocks: Vec<Cidr> },
    /// An affinity whose claim or release was not finished.
    AffinityUnfinished { owner: AffinityOwner, block: Cidr },
    /// An affinity for a block that is not there or is another's.
    AffinityStale { owner: AffinityOwner, block: Cidr },
    /// A block with an owner but no affinity.
    AffinityMissing { owner: AffinityOwner, block: Cidr },
    /// A block of nobody with nothing in it.
    BlockUnused(Cidr),
}

/// Everything that is to be put right. Applied without interference, the next pass finds nothing; repairs that write
/// the same block may need one pass each on a store that writes record by record.
///
/// Records that cannot be read and blocks that contradict themselves are left alone, and so is everything that may belong to them
/// ([`Doubt`]).
pub fn recover(books: &Books) -> Vec<Repair> {
    let pass = Pass::new(books);
    let mut repairs = pass.tombstones();
    repairs.extend(pass.handles());
    repairs.extend(pass.affinities());
    repairs.extend(pass.blocks());
    repairs
}

/// What claims and releases of blocks have left half done, for one who has read these affinities and their blocks and nothing
/// else: no handle is looked at.
pub fn recover_claims(books: &Books) -> Vec<Repair> {
    Pass::new(books).affinities()
}

/// Those of the second look's repairs that the first look wanted too, on the very same revisions: nobody has moved in
/// between.
pub fn seen_twice(first: &[Repair], second: Vec<Repair>) -> Vec<Repair> {
    second.into_iter().filter(|repair| first.contains(repair)).collect()
}

struct Pass<'a> {
    books: &'a Books,
    /// Blocks that do not contradict themselves, tombstones included.
    sound: BTreeMap<&'a Cidr, &'a Stored<Block>>,
    doubt: Doubt<'a>,
}

impl<'a> Pass<'a> {
    fn new(books: &'a Books) -> Pass<'a> {
        let is_sound =
            |(cidr, stored): &(&Cidr, &Stored<Block>)| contradictions(cidr, &stored.value).is_empty();
        let sound = books.blocks.iter().filter(is_sound).collect();
        Pass { books, sound, doubt: Doubt::of(books) }
    }

    fn tombstones(&self) -> Vec<Repair> {
        let blocks = self.books.blocks.iter().filter(|(_, stored)| stored.value.deleted);
        let blocks = blocks.map(|(cidr, stored)| (Key::Block(*cidr), &stored.revision));
        let handles = self.books.handles.iter().filter(|(_, stored)| stored.value.deleted);
        let handles = handles.map(|(id, stored)| (Key::Handle(id.clone()), &stored.revision));
        let affinities = self.books.affinities.iter().filter(|(_, stored)| stored.value.deleted);
        let affinities = affinities.map(|((owner, block), stored)| {
            (Key::Affinity { owner: owner.clone(), block: *block }, &stored.revision)
        });
        let bury = |(key, revision): (Key, &String)| {
            let step = Step::Delete { key: key.clone(), revision: revision.clone() };
            Repair { fault: Fault::Tombstone(key), steps: one(step) }
        };
        blocks.chain(handles).chain(affinities).map(bury).collect()
    }

    fn handles(&self) -> Vec<Repair> {
        let mut counted: BTreeMap<&HandleId, BTreeMap<Cidr, i64>> = BTreeMap::new();
        for (cidr, stored) in self.live_blocks() {
            for (handle, count) in count_by_handle(&stored.value) {
                counted.entry(handle).or_default().insert(*cidr, count);
            }
        }
        let known = self.books.handles.keys();
        let ids: BTreeSet<&HandleId> =
            known.chain(counted.keys().copied()).filter(|id| !id.is_windows_reserved()).collect();
        let none = BTreeMap::new();
        ids.into_iter().filter_map(|id| self.handle(id, counted.get(id).unwrap_or(&none))).collect()
    }

    fn handle(&self, id: &HandleId, counted: &BTreeMap<Cidr, i64>) -> Option<Repair> {
        let known = self.books.handles.get(id);
        if known.is_some_and(|known| known.value.deleted) || self.doubt.is_handle(id) {
            return None;
        }
        let mut right = known.map_or_else(Handle::default, |known| known.value.clone());
        // What is said of blocks that cannot be trusted stays as it is.
        right.block.retain(|text, _| Cidr::parse_masked(text).is_ok_and(|cidr| self.is_unsound(&cidr)));
        for (cidr, count) in counted {
            right.block.insert(cidr.to_string(), *count);
        }
        if known.is_some_and(|known| known.value.block == right.block && !right.block.is_empty()) {
            return None;
        }
        if right.block.is_empty() && self.may_be_held(id) {
            return None;
        }
        let empty = TextMap::new();
        let said = known.map_or(&empty, |known| &known.value.block);
        let blocks = changed(said, &right.block);
        let mut steps = Steps::default();
        for cidr in &blocks {
            self.fence(cidr, &mut steps);
        }
        let key = Key::Handle(id.clone());
        match known {
            Some(known) if right.block.is_empty() => {
                steps.push(Step::Delete { key, revision: known.revision.clone() });
            }
            known => steps.put(key, right.encode(), known.map(|known| known.revision.clone())),
        }
        Some(Repair { fault: Fault::HandleWrong { handle: id.to_owned(), blocks }, steps })
    }

    /// Sees to it that nobody takes an address of the block on the strength of what the handle says now.
    fn fence(&self, cidr: &Cidr, steps: &mut Steps) {
        match self.sound.get(cidr) {
            Some(stored) if !stored.value.deleted => {
                let mut touched = stored.value.clone();
                count_write(&mut touched);
                steps.touch(touched.key(), touched.encode(), stored.revision.clone());
            }
            // On its way out, and nothing is taken from it.
            Some(_) => {}
            // It was not there when the blocks were read; what matters is that it is not, now that the handle is known.
            None => steps.push(Step::RequireAbsent { key: Key::Block(*cidr) }),
        }
    }

    fn affinities(&self) -> Vec<Repair> {
        let live = self.books.affinities.iter().filter(|(_, stored)| !stored.value.deleted);
        live.filter_map(|((owner, block), stored)| self.affinity(owner, block, stored)).collect()
    }

    fn affinity(&self, owner: &AffinityOwner, cidr: &Cidr, known: &Stored<Affinity>) -> Option<Repair> {
        if self.is_unsound(cidr) || matches!(known.value.state, AffinityState::Other(_)) {
            return None;
        }
        let (owner, block) = (owner.clone(), *cidr);
        let key = Key::Affinity { owner: owner.clone(), block };
        let is_ours = |stored: &&&Stored<Block>| stored.value.owner().as_ref() == Some(&owner);
        let mut steps = Steps::default();
        let stored = self.sound.get(cidr).filter(|stored| !stored.value.deleted);
        let Some(stored) = stored.filter(is_ours) else {
            steps.push(Step::Delete { key, revision: known.revision.clone() });
            return Some(Repair { fault: Fault::AffinityStale { owner, block }, steps });
        };
        match known.value.state {
            AffinityState::Confirmed | AffinityState::Other(_) => return None,
            AffinityState::PendingDeletion if is_empty(&stored.value) => {
                steps = give_up(&owner, Some(known), stored);
            }
            AffinityState::Pending | AffinityState::PendingDeletion => {
                confirm(key, Some(known), stored, &mut steps);
            }
        }
        Some(Repair { fault: Fault::AffinityUnfinished { owner, block }, steps })
    }

    fn blocks(&self) -> Vec<Repair> {
        self.live_blocks().filter_map(|(cidr, stored)| self.block(cidr, stored)).collect()
    }

    fn block(&self, cidr: &Cidr, stored: &Stored<Block>) -> Option<Repair> {
        let delete = || one(Step::Delete { key: stored.value.key(), revision: stored.revision.clone() });
        let Some(owner) = stored.value.owner() else {
            // An owner of a form that is not known here is an owner.
            let is_unused = stored.value.affinity.is_none() && is_empty(&stored.value);
            return is_unused.then(|| Repair { fault: Fault::BlockUnused(*cidr), steps: delete() });
        };
        let is_claimed = self.books.affinities.contains_key(&(owner.clone(), *cidr));
        if is_claimed || self.doubt.is_affinity(&owner, cidr) {
            return None;
        }
        let mut steps = Steps::default();
        if is_empty(&stored.value) {
            steps = delete();
        } else {
            let key = Key::Affinity { owner: owner.clone(), block: *cidr };
            confirm(key, None, stored, &mut steps);
        }
        Some(Repair { fault: Fault::AffinityMissing { owner, block: *cidr }, steps })
    }

    fn live_blocks(&self) -> impl Iterator<Item = (&Cidr, &Stored<Block>)> {
        self.sound.iter().filter(|(_, stored)| !stored.value.deleted).map(|(cidr, stored)| (*cidr, *stored))
    }

    /// Whether a block that cannot be read, or that contradicts itself, may hold addresses of a handle.
    fn may_be_held(&self, id: &HandleId) -> bool {
        let unsound = self.books.blocks.iter().filter(|(cidr, _)| !self.sound.contains_key(cidr));
        let mut named = unsound.flat_map(|(_, stored)| &stored.value.attributes);
        self.doubt.may_hold_any_handle() || named.any(|known| known.handle() == Some(id))
    }

    /// There, but not to be trusted.
    fn is_unsound(&self, cidr: &Cidr) -> bool {
        (self.books.blocks.contains_key(cidr) && !self.sound.contains_key(cidr)) || self.doubt.is_block(cidr)
    }
}

fn one(step: Step) -> Steps {
    let mut steps = Steps::default();
    steps.push(step);
    steps
}

/// The blocks of which the two say something different.
fn changed(said: &TextMap<i64>, right: &TextMap<i64>) -> Vec<Cidr> {
    let differs = |name: &&str| said.get(name) != right.get(name);
    let names = said.keys().chain(right.keys()).filter(differs);
    let blocks: BTreeSet<Cidr> = names.filter_map(|name| Cidr::parse_masked(name).ok()).collect();
    blocks.into_iter().collect()
}
