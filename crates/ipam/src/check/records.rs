//! Records against records.

use std::collections::BTreeSet;

use jiff::Timestamp;
use model::ipam::{AffinityState, Block};
use model::{AffinityOwner, Cidr, Key};

use super::{Evidence, Problem, Really};
use crate::books::{contradictions, count_by_handle};
use crate::reserved::bounds;
use crate::{Corrupt, WINDOWS_RESERVED_HANDLE};

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
        found.extend(from_the_future(block, evidence.now));
        if block.cidr != *cidr {
            found.push(format!("it says it is {}", block.cidr));
        }
        if !found.is_empty() {
            problems.push(Problem::Corrupt(Corrupt { key: Key::Block(*cidr), contradictions: found }));
        }
        if contradictions(cidr, block).is_empty() {
            sound.push(block);
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

pub(super) fn check_handles(evidence: &Evidence<'_>, sound: &[&Block], problems: &mut Vec<Problem>) {
    let mut counted: Vec<(&str, Cidr, i64)> = Vec::new();
    for block in sound {
        counted.extend(count_by_handle(block).into_iter().map(|(handle, count)| (handle, block.cidr, count)));
    }
    counted.retain(|(handle, ..)| *handle != WINDOWS_RESERVED_HANDLE);
    counted.sort_unstable();
    let sound: BTreeSet<Cidr> = sound.iter().map(|block| block.cidr).collect();
    for group in counted.chunk_by(|one, other| one.0 == other.0) {
        let known = evidence.books.handles.get(group[0].0);
        if known.is_none_or(|known| known.value.deleted) {
            let blocks = group.iter().map(|(_, block, _)| *block).collect();
            problems.push(Problem::HandleMissing { handle: group[0].0.to_owned(), blocks });
        }
    }
    for (id, stored) in evidence.books.handles.iter().filter(|(_, stored)| !stored.value.deleted) {
        let start = counted.partition_point(|(handle, ..)| *handle < id.as_str());
        let held: Vec<_> = counted[start..].iter().take_while(|(handle, ..)| handle == id).collect();
        let is_judged = |block: &Cidr| sound.contains(block) || !evidence.books.blocks.contains_key(block);
        if held.is_empty() && stored.value.blocks().all(|block| is_judged(&block)) {
            let revision = stored.revision.clone();
            problems.push(Problem::HandleUnused { handle: id.clone(), revision });
            continue;
        }
        let named = stored.value.blocks().chain(held.iter().map(|(_, block, _)| *block));
        for block in named.filter(is_judged).collect::<BTreeSet<_>>() {
            let said = stored.value.count(&block);
            let found = held.iter().find(|(_, known, _)| *known == block).map_or(0, |(.., count)| *count);
            if said != found {
                problems.push(Problem::HandleCount { handle: id.clone(), block, said, found });
            }
        }
    }
}

pub(super) fn check_affinities(evidence: &Evidence<'_>, problems: &mut Vec<Problem>) {
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
        let is_unreadable = evidence.books.unreadable.iter().any(|corrupt| corrupt.key == Key::Block(*cidr));
        if !is_unreadable {
            problems.push(Problem::AffinityDiffers { block, owner, really });
        }
    }
    for (cidr, stored) in evidence.books.blocks.iter().filter(|(_, stored)| !stored.value.deleted) {
        let Some(owner) = stored.value.owner() else { continue };
        if let AffinityOwner::Host(node) = &owner
            && !nodes.contains(node.as_str())
        {
            problems.push(Problem::AffinityOfGoneNode { block: *cidr, node: node.clone() });
        }
        let known = evidence.books.affinities.get(&(owner.clone(), *cidr));
        if known.is_none_or(|known| known.value.deleted) {
            problems.push(Problem::AffinityMissing { block: *cidr, owner });
        }
    }
}
