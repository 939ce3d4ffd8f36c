//! Blocks that are gone or cannot be read: made anew from who uses their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::NODE_ATTRIBUTE;
use model::ipam::{Affinity, AffinityState, Block, BlockAttribute};
use model::{AffinityOwner, Cidr, FindingCode, HandleId, Key, ShellCommand};
use serde_json::json;

use super::super::draft::{Draft, Ground, Target, delete_pod};
use super::super::edit::Edit;
use super::super::witness::Suspect;
use super::{Area, Remedy, addresses, endpoints};
use doctor::Subject;
use evidence::PodName;

pub(super) const ALL: &[Remedy] = &[Remedy {
    does: "recreates the block in one commit, with every address in use allocated. Its owner is the node \
           that has its affinity, or else the node with most of its addresses. Does nothing if one of these \
           addresses has several users or no recorded user, or if the block has been recreated since",
    undo: "deletes the block and everything written with it, unless they have been changed since",
    ..Remedy::of(FindingCode::BlockMissing, Area::Ipam, make_anew)
}];

type Holds = Vec<(IpAddr, BlockAttribute)>;

fn make_anew(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Block(cidr) = &target.subject else { return };
    let ground = draft.ground;
    let used = ground.case.books_view().and_then(|view| view.missing_blocks.get(cidr));
    match holds(ground, cidr, used.map(Vec::as_slice).unwrap_or_default()) {
        Ok(holds) if holds.is_empty() => {}
        Ok(holds) => make(draft, target, cidr, holds, false),
        Err(why) => leave(draft, target, cidr, why),
    }
}

/// No block of Calico's has more than 2^12 addresses: a larger one would be made of memory only.
const HOST_BITS_MAX: u8 = 12;

/// A block that cannot be read keeps whatever it holds until all of that is known.
pub(super) fn rebuild(draft: &mut Draft<'_, '_>, target: &Target, cidr: &Cidr) {
    let ground = draft.ground;
    let used = ground.case.books_view().and_then(|view| view.unreadable_blocks.get(cidr));
    let found = may_be_rebuilt(ground, cidr).map_err(|why| (why, Vec::new())).and_then(|()| {
        let holds = holds(ground, cidr, used.map(Vec::as_slice).unwrap_or_default())?;
        unaccounted(ground, cidr, &holds).map_or(Ok(holds), |why| Err((why, Vec::new())))
    });
    match found {
        Ok(holds) => make(draft, target, cidr, holds, true),
        Err(why) => leave(draft, target, cidr, why),
    }
}

fn may_be_rebuilt(ground: &Ground<'_>, cidr: &Cidr) -> Result<(), String> {
    let evidence = &ground.case.evidence;
    let (Some(ipam), Some(view)) = (evidence.ipam.as_ref(), ground.case.books_view()) else {
        return Err("the IPAM records were not read".to_owned());
    };
    if evidence.endpoints.is_none() || !view.knows_users {
        return Err(
            "not every endpoint and node was read, so the users of its addresses are not known".to_owned()
        );
    }
    if cidr.version().bits() - cidr.prefix_len() > HOST_BITS_MAX {
        return Err(format!("{cidr} is larger than any block; find out what wrote it, and delete it"));
    }
    let others = ipam.books.blocks.iter().filter(|(_, stored)| !stored.value.deleted);
    let others = others.map(|(other, _)| *other).chain(ground.case.doubt().blocks());
    match others.into_iter().find(|other| other != cidr && other.overlaps(cidr)) {
        Some(other) => Err(format!("block {other} overlaps with it; resolve that first")),
        None => Ok(()),
    }
}

/// A handle that counts more addresses of the block than its known users have, unless its sandbox is gone: which addresses these are,
/// only the block could tell.
fn unaccounted(ground: &Ground<'_>, cidr: &Cidr, holds: &Holds) -> Option<String> {
    let owner = owner(ground, cidr, holds);
    let node = owner.and_then(|owner| owner.node());
    ground.counting(cidr).iter().find_map(|(handle, count)| {
        let known = holds.iter().filter(|(_, owner)| owner.handle() == Some(handle)).count();
        if i64::try_from(known).is_ok_and(|known| known >= *count) {
            return None;
        }
        let container_id = handle.certain_container();
        let suspect = Suspect { container_id, node: node.clone(), ..Suspect::default() };
        let why = ground.is_gone(&suspect).err()?;
        Some(format!("handle {handle} counts {count} of its addresses, but only {known} are known: {why}"))
    })
}

fn leave(
    draft: &mut Draft<'_, '_>,
    target: &Target,
    cidr: &Cidr,
    (why, commands): (String, Vec<ShellCommand>),
) {
    // What is left of the block tells whose it was, so that stays.
    for owner in owners_left(draft.ground, cidr) {
        draft.claims(&Key::Affinity { owner, block: *cidr }, target);
    }
    draft.leave_with(target, why, commands);
}

fn make(draft: &mut Draft<'_, '_>, target: &Target, cidr: &Cidr, holds: Holds, replaces_unreadable: bool) {
    let ground = draft.ground;
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
    let step = draft.make_block(target, *cidr, words, holds, replaces_unreadable);
    step.because(because);
    step.edits.extend(affinity);
}

fn because(holds: &Holds) -> String {
    let handles = holds.iter().filter_map(|(_, owner)| owner.handle());
    let users = handles.collect::<BTreeSet<_>>().len();
    let words = if users == 1 { "one user has".to_owned() } else { format!("{users} users have") };
    format!("the user of an address is entitled to it, and by the records {words} these addresses")
}

/// Who has which address of the block; or why nobody may make it: an address that would be free in it and is in use would be
/// given out again.
fn holds(ground: &Ground<'_>, cidr: &Cidr, used: &[IpAddr]) -> Result<Holds, (String, Vec<ShellCommand>)> {
    let mut holds = Vec::new();
    for address in used {
        if let [endpoint] = ground.case.endpoints_at(*address)
            && ground.is_gone(&endpoints::suspect(&endpoint.seen)).is_ok()
        {
            // Its record goes, and then nobody uses the address.
            continue;
        }
        match addresses::user_of(ground, *address) {
            Some(owner) => holds.push((*address, under_known_handle(ground, cidr, owner))),
            None => {
                let why = format!("the records do not show exactly one sandbox that uses {address}");
                return Err((why, addresses::recreate(ground, *address)));
            }
        }
    }
    if let Some(address) = ground.case.inside_pods(*cidr).find(|address| !used.contains(address)) {
        let why = format!(
            "a pod has {address} inside but no endpoint; repair its endpoint first, then run the \
                     repair again"
        );
        return Err((why, Vec::new()));
    }
    match shown_besides(ground, cidr, used) {
        Some((address, pod)) => {
            let why = format!(
                "Kubernetes shows pod {pod} with {address}, but no record has that address; resolve \
                         that first"
            );
            Err((why, vec![delete_pod(&pod)]))
        }
        None => Ok(holds),
    }
}

/// The handle that counts addresses of the block for the same sandbox, if there is one: networks have names of their own.
fn under_known_handle(ground: &Ground<'_>, cidr: &Cidr, mut owner: BlockAttribute) -> BlockAttribute {
    let id = owner.handle().and_then(HandleId::container);
    let known = ground.counting(cidr).iter().find(|(handle, _)| id.is_some() && handle.container() == id);
    if let Some((handle, _)) = known {
        owner.handle_id = Some((*handle).into());
    }
    owner
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
    let is_known =
        |owner: &AffinityOwner| owner.node().is_some_and(|node| ground.case.node_view(&node).is_some());
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
