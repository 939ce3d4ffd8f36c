//! Whom blocks belong to: affinities, blocks of nodes that are gone, blocks that lie where none should.

use ipam::check::Problem;
use model::ipam::{Affinity, AffinityState, Block, BlockAttribute};
use model::{AffinityOwner, Cidr, Key, ShellCommand};
use serde_json::json;

use super::super::draft::{Draft, Ground, Target};
use super::super::edit::{Edit, Is};
use super::addresses;
use super::{Area, Remedy};
use crate::Subject;

const UNDO: &str = "the affinity is as it was, unless it has changed since";
const UNDO_BLOCK: &str = "blocks and affinities are put back, with new numbers, unless others were made in their place; addresses get \
                          their handles back if they are free by then";

pub(super) const ALL: &[Remedy] = &[
    Remedy {
        code: "affinity-missing",
        area: Area::Ipam,
        does: "writes the affinity that the block asks for",
        undo: UNDO,
        act: Some(write_affinity),
    },
    Remedy {
        code: "affinity-contradicted",
        area: Area::Ipam,
        does: "deletes the affinity, by its revision: where both disagree the block is right",
        undo: UNDO,
        act: Some(delete_affinity),
    },
    Remedy {
        code: "affinity-unfinished",
        area: Area::Ipam,
        does: "confirms the affinity if the block belongs to its node, and deletes it otherwise",
        undo: UNDO,
        act: Some(settle_affinity),
    },
    Remedy {
        code: "affinity-of-gone-node",
        area: Area::Ipam,
        does: "once the node's record is gone and nobody who was asked knows the node, in two looks, or by plumb repair node NAME; while \
               its record is there, by plumb repair node NAME gone, which deletes that, too: frees what its sandboxes held, and deletes its empty blocks and its affinities; blocks with addresses of others become nobody's",
        undo: UNDO_BLOCK,
        act: Some(bury_node),
    },
    Remedy {
        code: "node-left-behind",
        area: Area::Node,
        does: "by plumb repair node NAME, if its agent does not answer and Kubernetes' list of nodes does not have it in either look: the \
               same as for affinity-of-gone-node, and deletes the Node record",
        undo: UNDO_BLOCK,
        act: Some(bury_node),
    },
    Remedy {
        code: "block-overlap",
        area: Area::Ipam,
        does: "deletes the one of the two blocks that holds no address, with its affinity; if both hold some it is left to people",
        undo: UNDO_BLOCK,
        act: Some(resolve_overlap),
    },
    Remedy {
        code: "block-outside-pools",
        area: Area::Ipam,
        does: "deletes the block if it holds no address; otherwise its pods must get addresses of a pool first",
        undo: UNDO_BLOCK,
        act: Some(drop_outside),
    },
    Remedy {
        code: "service-block-empty",
        area: Area::Ipam,
        does: "deletes the block with its affinity, if it still holds no address",
        undo: UNDO_BLOCK,
        act: Some(drop_of_services),
    },
];

fn owner_of(text: Option<&str>) -> Option<AffinityOwner> {
    let (kind, name) = text?.split_once(':')?;
    match kind {
        "host" => Some(AffinityOwner::Host(name.to_owned())),
        "virtual" => Some(AffinityOwner::Virtual(name.to_owned())),
        _ => None,
    }
}

fn write_affinity(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Block(cidr) = &target.subject else { return };
    let Some(owner) = draft.ground.block(cidr).and_then(|block| owner_of(block.affinity.as_deref())) else {
        return;
    };
    if let AffinityOwner::Host(node) = &owner
        && draft.ground.case.node_view(node).is_none()
    {
        return draft.leave(target, format!("node {node} has no record: it may be gone"), Vec::new());
    }
    let key = Key::Affinity { owner, block: *cidr };
    if draft.claims(&key, target) {
        let text = String::from_utf8_lossy(&Affinity::default().encode()).into_owned();
        let step = draft.step(target, format!("write {key}"));
        step.because.push("the block says whom it belongs to".to_owned());
        step.edits.push(Edit::Record { key, from: None, to: Some(text) });
    }
}

/// The affinity as it was seen.
fn stored<'e>(draft: &Draft<'_, 'e>, target: &Target) -> Option<(Key, &'e ipam::Stored<Affinity>)> {
    let Subject::Affinity { owner, block } = &target.subject else { return None };
    let books = &draft.ground.case.evidence.ipam.as_ref()?.books;
    let stored = books.affinities.get(&(owner.clone(), *block))?;
    Some((Key::Affinity { owner: owner.clone(), block: *block }, stored))
}

fn delete_affinity(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some((key, stored)) = stored(draft, target) else { return };
    let revision = stored.revision.clone();
    if draft.claims(&key, target) {
        let step = draft.step(target, format!("delete {key}"));
        step.because.push("where an affinity and its block disagree the block is right".to_owned());
        step.edits.push(Edit::Record { key, from: Some(Is::Revision(revision)), to: None });
    }
}

fn settle_affinity(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some((key, stored)) = stored(draft, target) else { return };
    let Key::Affinity { owner, block } = &key else { return };
    let is_its = draft.ground.block(block).and_then(Block::owner).as_ref() == Some(owner);
    if !is_its {
        return delete_affinity(draft, target);
    }
    let state = stored.value.state.as_str().to_owned();
    if draft.claims(&key, target) {
        let step = draft.step(target, format!("confirm {key}, which is {state}"));
        step.because.push("the block belongs to that node".to_owned());
        let to = json!(AffinityState::Confirmed.as_str());
        step.edits.push(Edit::Field {
            key,
            field: "/state".to_owned(),
            from: Some(json!(state)),
            to: Some(to),
        });
    }
}

fn bury_node(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Node(node) = &target.subject else { return };
    let ground = draft.ground;
    if let Some(why) = may_live(ground, node) {
        return draft.leave(target, why, Vec::new());
    }
    if ground.case.node_view(node).is_some() && !ground.is_buried(node) {
        let why = "its record is there, and nobody says whether it lives; if it is gone for good:";
        return draft.leave(target, why, vec![repair_node(node).plain("gone --apply")]);
    }
    if !ground.is_dead(node) {
        let why = "somebody still knows the node, or it was known at the last look; if it is gone for good:";
        return draft.leave(target, why, vec![repair_node(node).plain("--apply")]);
    }
    let Some(ipam) = ground.case.evidence.ipam.as_ref() else { return };
    let owner = AffinityOwner::Host(node.clone());
    let mut cidrs: Vec<Cidr> = Vec::new();
    for (cidr, stored) in &ipam.books.blocks {
        if stored.value.owner().as_ref() == Some(&owner) {
            cidrs.push(*cidr);
        }
    }
    if let Some(why) = lives_on(ground, node, &cidrs) {
        return draft.leave(target, why, Vec::new());
    }
    super::endpoints::delete_all_of(draft, target, node);
    for cidr in &cidrs {
        let Some(block) = ground.block(cidr) else { continue };
        for ordinal in 0..block.allocations.len() {
            let (Some(held), Some(address)) = (block.attribute(ordinal), block.address(ordinal)) else {
                continue;
            };
            let verdict = addresses::may_go(ground, block, held, address);
            if verdict.is_ok() {
                addresses::free(draft, target, block, address, verdict);
            }
        }
        drop_block(draft, target, block, "its node is gone");
    }
    let of_node = ipam.books.affinities.iter().filter(|((known, _), _)| *known == owner);
    let bare: Vec<_> = of_node
        // A block that cannot be read is rebuilt first, and its affinity tells for whom.
        .filter(|((_, cidr), _)| !cidrs.contains(cidr) && !ground.case.doubt().is_block(cidr))
        .map(|((_, cidr), stored)| (*cidr, stored.revision.clone()))
        .collect();
    for (cidr, revision) in bare {
        let key = Key::Affinity { owner: owner.clone(), block: cidr };
        if draft.claims(&key, target) {
            let step = draft.step(target, format!("delete {key}"));
            step.needs_second_look = true;
            step.edits.push(Edit::Record { key, from: Some(Is::Revision(revision)), to: None });
        }
    }
    delete_record(draft, target, node);
}

fn repair_node(node: &str) -> ShellCommand {
    ShellCommand::new("plumb repair node").value(node)
}

/// Why an operator's word that a node is gone is not taken.
fn may_live(ground: &Ground<'_>, node: &str) -> Option<String> {
    if !ground.is_buried(node) {
        return None;
    }
    if ground.case.node(node).is_some() {
        return Some(format!("{node} answers, so it is not gone"));
    }
    if ground.case.node_view(node).is_none() && !ground.holds_something(node) {
        return Some("there is no record, block or endpoint of a node of this name".to_owned());
    }
    let kube = ground.case.node_view(node).into_iter().flat_map(|view| view.kube.iter());
    let mut states = kube.map(|kube| kube.seen.status.as_str());
    let is_ready = |state: &str| state.split(',').any(|word| word == "Ready");
    states.any(is_ready).then(|| format!("Kubernetes says that {node} is ready"))
}

/// The record of a node that was buried. Everything else of it has gone before.
fn delete_record(draft: &mut Draft<'_, '_>, target: &Target, node: &str) {
    let Some(record) = draft.ground.case.node_view(node).and_then(|view| view.record) else { return };
    let (key, revision) = (record.seen.key(), record.seen.metadata.resource_version.clone());
    if let Some(revision) = revision
        && draft.claims(&key, target)
    {
        let step = draft.step(target, format!("delete {key}"));
        step.needs_second_look = true;
        step.because.push("by your word it is gone for good, and nobody who was asked knows it".to_owned());
        step.edits.push(Edit::Record { key, from: Some(Is::Revision(revision)), to: None });
    }
}

/// Whether somebody lives who is said to be on a node of which nobody knows: then the node is not gone, only its name is wrong.
fn lives_on(ground: &Ground<'_>, node: &str, blocks: &[Cidr]) -> Option<String> {
    let endpoints = ground.case.endpoints_on(node).map(|endpoint| &endpoint.seen);
    let mut lines =
        endpoints.filter_map(|endpoint| ground.is_gone(&super::endpoints::suspect(endpoint)).err());
    if let Some(line) = lines.next() {
        return Some(line);
    }
    let blocks = blocks.iter().filter_map(|cidr| ground.block(cidr));
    blocks.into_iter().find_map(|block| {
        let held =
            (0..block.allocations.len()).filter_map(|at| Some((block.attribute(at)?, block.address(at)?)));
        held.into_iter().find_map(|(held, address)| {
            let suspect = addresses::suspect(block, held, address);
            let is_its = suspect.node.is_some_and(|name| name.eq_ignore_ascii_case(node));
            ground.is_gone(&suspect).err().filter(|_| is_its)
        })
    })
}

/// Whether nothing will be left in a block when all that is planned is done.
fn will_be_empty(draft: &Draft<'_, '_>, block: &Block) -> bool {
    let addresses = (0..block.allocations.len()).filter_map(|ordinal| block.address(ordinal));
    addresses.into_iter().all(|address| {
        let held = draft.holder(block, address);
        held.is_none_or(|held: BlockAttribute| held.handle() == Some(ipam::WINDOWS_RESERVED_HANDLE))
    })
}

/// Deletes a block that will be empty, with its affinity; one that will not be becomes nobody's.
fn drop_block(draft: &mut Draft<'_, '_>, target: &Target, block: &Block, because: &str) {
    let key = block.key();
    if !draft.claims(&key, target) {
        return;
    }
    let affinity = block.owner().map(|owner| Key::Affinity { owner, block: block.cidr });
    let books = &draft.ground.case.evidence.ipam.as_ref().expect("blocks were read").books;
    let revision = affinity.as_ref().and_then(|affinity| match affinity {
        Key::Affinity { owner, block } => {
            books.affinities.get(&(owner.clone(), *block)).map(|stored| stored.revision.clone())
        }
        _ => None,
    });
    let is_empty = will_be_empty(draft, block);
    let title = match is_empty {
        true => format!("delete block {}", block.cidr),
        false => format!("make block {} nobody's: others have addresses in it", block.cidr),
    };
    let affinity = affinity.filter(|affinity| draft.claims(affinity, target));
    let step = draft.step(target, title);
    step.needs_second_look = true;
    step.because.push(because.to_owned());
    if let (Some(key), Some(revision)) = (affinity, revision) {
        step.edits.push(Edit::Record { key, from: Some(Is::Revision(revision)), to: None });
    }
    step.edits.push(match is_empty {
        true => Edit::Record { key, from: Some(Is::EmptyBlock), to: None },
        false => Edit::Owner { block: block.cidr, from: block.affinity.clone(), to: None },
    });
}

fn resolve_overlap(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Block(inner) = &target.subject else { return };
    let ground = draft.ground;
    let problems = ground.case.books_view().map(|view| view.problems.as_slice()).unwrap_or_default();
    let pairs = problems.iter().filter_map(|problem| match problem {
        Problem::BlocksOverlap(outer, found) if found == inner => Some(outer),
        _ => None,
    });
    for outer in pairs {
        let loser = [inner, outer]
            .into_iter()
            .filter_map(|cidr| ground.block(cidr))
            .find(|block| will_be_empty(draft, block));
        match loser {
            Some(block) => drop_block(draft, target, block, "it holds no address, and the other one may"),
            None => {
                let why = format!(
                    "both {inner} and {outer} hold addresses; recreate the pods of one of them, then repair again"
                );
                draft.leave(target, why, Vec::new());
            }
        }
    }
}

fn drop_outside(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Block(cidr) = &target.subject else { return };
    let Some(block) = draft.ground.block(cidr) else { return };
    match will_be_empty(draft, block) {
        true => drop_block(draft, target, block, "no pool contains it, and it holds no address"),
        false => draft.leave(
            target,
            "it holds addresses: make a pool for it, or recreate its pods and repair again",
            Vec::new(),
        ),
    }
}

fn drop_of_services(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Block(cidr) = &target.subject else { return };
    let Some(block) = draft.ground.block(cidr) else { return };
    if will_be_empty(draft, block) {
        drop_block(draft, target, block, "it holds no address, and no node can have it");
    }
}
