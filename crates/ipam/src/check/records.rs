//! Records against records.

use std::collections::BTreeSet;

use jiff::Timestamp;
use model::ipam::{AffinityState, Block, Handle};
use model::{AffinityOwner, Cidr, HandleId, Key};

use super::{Evidence, Problem, Really, Unjudged};
use crate::books::{contradictions, count_by_handle};
use crate::reserved::bounds;
use crate::{Corrupt, Doubt, Stored, fingerprint};

/// The blocks that can be trusted. Tombstones are none.
pub(super) fn check_blocks<'a>(evidence: &Evidence<'a>, problems: &mut Vec<Problem>) -> Vec<&'a Block> {
    let mut sound = Vec::new();
    problems.extend(evidence.books.unreadable.iter().cloned().map(Problem::Corrupt));
    for (cidr, stored) in &evidence.books.blocks {
        let block = &stored.value;
        if block.deleted {
            continue;
        }
        // What the next write puts right by itself is told, but does not make the block useless.
        let mut found = block.contradictions();
        if block.cidr != *cidr {
            found.push(format!("it says it is {}", block.cidr));
        }
        if found.is_empty() || contradictions(cidr, block).is_empty() {
            sound.push(block);
        }
        found.extend(from_the_future(block, evidence.now));
        if !found.is_empty() {
            problems.push(Problem::Corrupt(Corrupt { key: Key::Block(*cidr), contradictions: found }));
        }
    }
    sound
}

/// A second of difference between two clocks is no contradiction.
const CLOCKS_DIFFER_SECONDS: i64 = 1;

fn from_the_future(block: &Block, now: Timestamp) -> impl Iterator<Item = String> {
    let future = block.attributes.iter().filter_map(|attribute| attribute.released_at.as_deref());
    future
        .filter(move |text| {
            let released = text.parse::<Timestamp>();
            released.is_ok_and(|released| released.as_second() - now.as_second() > CLOCKS_DIFFER_SECONDS)
        })
        .map(|text| format!("an address was released at {text}, which is to come"))
}

/// Sorted by their first address, a block can only overlap with the widest one before it.
pub(super) fn check_overlaps(evidence: &Evidence<'_>, problems: &mut Vec<Problem>) {
    let mut widest: Option<Cidr> = None;
    let live = evidence.books.blocks.iter().filter(|(_, stored)| !stored.value.deleted);
    let mut blocks: Vec<Cidr> = live.map(|(cidr, _)| *cidr).collect();
    blocks.sort_unstable_by_key(|cidr| (cidr.version(), bounds(cidr).0, cidr.prefix_len()));
    for cidr in blocks {
        match widest.filter(|widest| widest.overlaps(&cidr)) {
            Some(other) => problems.push(Problem::BlocksOverlap(other, cidr)),
            None => widest = Some(cidr),
        }
    }
}

/// Addresses of one handle in one block. Sorted by the fingerprint first: handles are long and begin alike.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held<'a> {
    fingerprint: u64,
    handle: &'a HandleId,
    block: Cidr,
    count: i64,
}

pub(super) fn check_handles(
    evidence: &Evidence<'_>,
    sound: &[&Block],
    doubt: &Doubt<'_>,
    problems: &mut Vec<Problem>,
    unjudged: &mut Unjudged,
) {
    let mut held: Vec<Held<'_>> = Vec::new();
    for block in sound {
        let of_block = count_by_handle(block).into_iter().filter(|(handle, _)| !handle.is_windows_reserved());
        held.extend(of_block.map(|(handle, count)| Held {
            fingerprint: fingerprint(handle.as_str()),
            handle,
            block: block.cidr,
            count,
        }));
    }
    held.sort_unstable();
    let mut is_known = vec![false; held.len()];
    let judging = Judging { evidence, doubt, sound: sound.iter().map(|block| block.cidr).collect() };
    let live = evidence.books.handles.iter().filter(|(_, stored)| !stored.value.deleted);
    let mut handles: Vec<_> = live.map(|(id, stored)| (fingerprint(id.as_str()), id, stored)).collect();
    handles.sort_unstable_by_key(|(fingerprint, id, _)| (*fingerprint, *id));
    // Both are in the same order, so one walk through them finds who belongs to whom.
    let mut start = 0;
    for (fingerprint, id, stored) in handles {
        let before = |held: &&Held<'_>| (held.fingerprint, held.handle) < (fingerprint, id);
        start += held[start..].iter().take_while(before).count();
        let of_handle = held[start..].iter().take_while(|held| held.handle == id).count();
        is_known[start..start + of_handle].fill(true);
        check_handle(&judging, id, stored, &held[start..start + of_handle], (problems, unjudged));
    }
    let unknown = held.iter().zip(is_known).filter(|(_, is_known)| !is_known).map(|(held, _)| held);
    let unknown: Vec<&Held<'_>> = unknown.filter(|held| !doubt.is_handle(held.handle)).collect();
    for group in unknown.chunk_by(|one, other| one.handle == other.handle) {
        let blocks = group.iter().map(|held| held.block).collect();
        problems.push(Problem::HandleMissing { handle: group[0].handle.to_owned(), blocks });
    }
}

/// Which blocks can be asked about handles.
struct Judging<'a> {
    evidence: &'a Evidence<'a>,
    doubt: &'a Doubt<'a>,
    sound: BTreeSet<Cidr>,
}

impl Judging<'_> {
    /// Whether it is known what a block holds: it can be trusted, or is not there.
    fn knows(&self, block: &Cidr) -> bool {
        self.sound.contains(block)
            || !(self.evidence.books.blocks.contains_key(block) || self.doubt.is_block(block))
    }

    /// Whether a block that cannot be read, or that contradicts itself, may hold addresses of this handle.
    fn may_be_held(&self, id: &HandleId, handle: &Handle) -> bool {
        self.doubt.may_hold_any_handle()
            || handle.blocks().any(|block| !self.knows(&block))
            || self.is_named_by_unsound(id)
    }

    fn is_named_by_unsound(&self, id: &HandleId) -> bool {
        let live = self.evidence.books.blocks.iter().filter(|(_, stored)| !stored.value.deleted);
        let mut unsound = live.filter(|(cidr, _)| !self.sound.contains(cidr));
        unsound.any(|(_, stored)| stored.value.attributes.iter().any(|known| known.handle() == Some(id)))
    }
}

fn check_handle(
    judging: &Judging<'_>,
    id: &HandleId,
    stored: &Stored<Handle>,
    held: &[Held<'_>],
    (problems, unjudged): (&mut Vec<Problem>, &mut Unjudged),
) {
    // Nearly every handle has one address and says so; the rest is for the others.
    if let ([held], Some((text, said)), 1) =
        (held, stored.value.block.iter().next(), stored.value.block.len())
        && held.count == *said
        && Cidr::parse_masked(text) == Ok(held.block)
    {
        return;
    }
    if held.is_empty() {
        let (handle, revision) = (id.to_owned(), stored.revision.clone());
        match judging.may_be_held(id, &stored.value) {
            true => unjudged.handles.push(handle),
            false => problems.push(Problem::HandleUnused { handle, revision }),
        }
        return;
    }
    let named = stored.value.blocks().chain(held.iter().map(|held| held.block));
    for block in named.filter(|block| judging.knows(block)).collect::<BTreeSet<_>>() {
        let said = stored.value.count(&block);
        let found = held.iter().find(|held| held.block == block).map_or(0, |held| held.count);
        if said != found {
            problems.push(Problem::HandleCount { handle: id.to_owned(), block, said, found });
        }
    }
}

pub(super) fn check_affinities(evidence: &Evidence<'_>, doubt: &Doubt<'_>, problems: &mut Vec<Problem>) {
    let nodes: BTreeSet<&str> = evidence.nodes.iter().map(|node| node.name.as_str()).collect();
    let live = |cidr: &Cidr| evidence.books.blocks.get(cidr).filter(|stored| !stored.value.deleted);
    for ((owner, cidr), stored) in &evidence.books.affinities {
        if stored.value.deleted {
            continue;
        }
        let (block, owner) = (*cidr, owner.clone());
        let really = match live(cidr).map(|stored| stored.value.owner()) {
            None => Really::Absent,
            Some(None) => Really::Unowned,
            Some(Some(really)) if really != owner => Really::OwnedBy(really),
            Some(Some(_)) => {
                if stored.value.state != AffinityState::Confirmed {
                    let state = stored.value.state.as_str().to_owned();
                    problems.push(Problem::AffinityUnfinished { block, owner, state });
                }
                continue;
            }
        };
        if !doubt.is_block(cidr) {
            problems.push(Problem::AffinityDiffers { block, owner, really });
        }
    }
    for (cidr, stored) in evidence.books.blocks.iter().filter(|(_, stored)| !stored.value.deleted) {
        let Some(owner) = stored.value.owner() else { continue };
        if let AffinityOwner::Host(node) = &owner
            && !nodes.contains(node.as_str())
            && !doubt.is_node(node)
        {
            problems.push(Problem::AffinityOfGoneNode { block: *cidr, node: node.clone() });
        }
        let known = evidence.books.affinities.get(&(owner.clone(), *cidr));
        if known.is_none_or(|known| known.value.deleted) && !doubt.is_affinity(&owner, cidr) {
            problems.push(Problem::AffinityMissing { block: *cidr, owner });
        }
    }
}
