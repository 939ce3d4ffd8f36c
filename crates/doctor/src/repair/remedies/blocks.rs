//! Blocks that are gone: made anew from who uses their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::NODE_ATTRIBUTE;
use model::ipam::{Affinity, AffinityState, Block, BlockAttribute};
use model::{AffinityOwner, Cidr, Key};
use serde_json::json;

use super::super::draft::{Draft, Ground, Target};
use super::super::edit::Edit;
use super::{Area, Remedy, addresses, endpoints};
use crate::Subject;
use crate::evidence::PodName;

pub(super) const ALL: &[Remedy] = &[Remedy {
    code: "block-missing",
    area: Area::Ipam,
    does: "makes the block anew in one commit, with every address that is in use taken, for the node that has its affinity or else \
           most of its addresses; not while one of them has several users or none that is recorded, and not if somebody has made it \
           meanwhile",
    undo: "the block and what was written with it go again, unless they have changed since",
    act: Some(make_anew),
}];

type Holds = Vec<(IpAddr, BlockAttribute)>;

fn make_anew(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Block(cidr) = &target.subject else { return };
    let ground = draft.ground;
    let used = ground.case.books_view().and_then(|view| view.missing_blocks.get(cidr));
    let holds = match holds(ground, cidr, used.map(Vec::as_slice).unwrap_or_default()) {
        Ok(holds) if holds.is_empty() => return,
        Ok(holds) => holds,
        Err((why, commands)) => {
            // What is left of the block tells whose it was, so that stays.
            for owner in owners_left(ground, cidr) {
                draft.claims(&Key::Affinity { owner, block: *cidr }, target);
            }
            return draft.leave(target, why, commands);
        }
    };
    let owner = owner(ground, cidr, &holds);
    if !draft.claims(&Key::Block(*cidr), target) {
        return;
    }
    let affinity = owner.as_ref().and_then(|owner| affinity_edit(ground, owner, cidr));
    if let Some(owner) = &owner {
        draft.claims(&Key::Affinity { owner: owner.clone(), block: *cidr }, target);
    }
    let words = owner.as_ref().map(|owner| format!("{}:{}", owner.type_word(), owner.name()));
    let because = because(&holds);
    let step = draft.make_block(target, *cidr, words, holds);
    step.because.push(because);
    step.edits.extend(affinity);
}

fn because(holds: &Holds) -> String {
    let handles = holds.iter().filter_map(|(_, owner)| owner.handle());
    let users = handles.collect::<BTreeSet<_>>().len();
    let words = if users == 1 { "one has".to_owned() } else { format!("{users} have") };
    format!("whoever uses an address is entitled to it, and {words} these by their records")
}

/// Who has which address of the block; or why nobody may make it: an address that would be free in it and is in use would be
/// given out again.
fn holds(ground: &Ground<'_>, cidr: &Cidr, used: &[IpAddr]) -> Result<Holds, (String, Vec<String>)> {
    let mut holds = Vec::new();
    for address in used {
        if let [endpoint] = ground.case.endpoints_at(*address)
            && ground.is_gone(&endpoints::suspect(&endpoint.seen)).is_ok()
        {
            // Its record goes, and then nobody uses the address.
            continue;
        }
        match addresses::user_of(ground, *address) {
            Some(owner) => holds.push((*address, owner)),
            None => {
                let why = format!("it is not known by which one sandbox {address} is used");
                return Err((why, addresses::recreate(ground, *address)));
            }
        }
    }
    if let Some(address) = ground.case.inside_pods(*cidr).find(|address| !used.contains(address)) {
        let why =
            format!("a pod has {address} inside and no endpoint: repair its endpoint first, then again");
        return Err((why, Vec::new()));
    }
    match shown_besides(ground, cidr, used) {
        Some((address, pod)) => {
            let why =
                format!("Kubernetes shows pod {pod} with {address}, which no record has: settle that first");
            Err((why, vec![addresses::delete_pod(&pod)]))
        }
        None => Ok(holds),
    }
}

/// A pod that Kubernetes shows with an address of the block which nobody else vouches for. It may have it all the same, and would lose it
/// to the next one who asks.
fn shown_besides(ground: &Ground<'_>, cidr: &Cidr, used: &[IpAddr]) -> Option<(IpAddr, PodName)> {
    let block = Block::new(*cidr, None, 0);
    let others = (0..block.capacity()).filter_map(|ordinal| block.address(ordinal));
    others.filter(|address| !used.contains(address)).find_map(|address| {
        let mut pods = ground.case.pods_at(address).iter().map(|pod| &pod.seen);
        pods.find(|pod| !pod.is_finished()).map(|pod| (address, pod.name.clone()))
    })
}

/// Whom the block belonged to, by what is left of it; else who has most of it.
fn owner(ground: &Ground<'_>, cidr: &Cidr, holds: &Holds) -> Option<AffinityOwner> {
    let is_known = |owner: &AffinityOwner| match owner {
        AffinityOwner::Host(node) => ground.case.node_view(node).is_some(),
        AffinityOwner::Virtual(_) => false,
    };
    if let Some(owner) = owners_left(ground, cidr).into_iter().find(is_known) {
        return Some(owner);
    }
    let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
    for node in holds.iter().filter_map(|(_, owner)| owner.secondary.get(NODE_ATTRIBUTE)) {
        *by_node.entry(node).or_default() += 1;
    }
    let (most, _) = by_node.into_iter().rev().max_by_key(|(_, count)| *count)?;
    Some(AffinityOwner::Host(most.to_owned())).filter(is_known)
}

/// Who still has an affinity for it.
fn owners_left(ground: &Ground<'_>, cidr: &Cidr) -> Vec<AffinityOwner> {
    let books = ground.case.evidence.ipam.as_ref().map(|ipam| &ipam.books);
    let affinities = books.into_iter().flat_map(|books| &books.affinities);
    let left = affinities.filter(|((_, block), stored)| block == cidr && !stored.value.deleted);
    left.map(|((owner, _), _)| owner.clone()).collect()
}

/// What its affinity lacks.
fn affinity_edit(ground: &Ground<'_>, owner: &AffinityOwner, cidr: &Cidr) -> Option<Edit> {
    let books = &ground.case.evidence.ipam.as_ref()?.books;
    let key = Key::Affinity { owner: owner.clone(), block: *cidr };
    match books.affinities.get(&(owner.clone(), *cidr)) {
        None => {
            let to = String::from_utf8_lossy(&Affinity::default().encode()).into_owned();
            Some(Edit::Record { key, from: None, to: Some(to) })
        }
        Some(stored) if stored.value.state == AffinityState::Confirmed => None,
        Some(stored) => Some(Edit::Field {
            key,
            field: "/state".to_owned(),
            from: Some(json!(stored.value.state.as_str())),
            to: Some(json!(AffinityState::Confirmed.as_str())),
        }),
    }
}
