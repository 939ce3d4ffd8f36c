//! Whom blocks belong to: affinities, blocks of nodes that are gone, blocks that lie where none should.

use ipam::check::Problem;
use model::ipam::{Affinity, AffinityState, Block, BlockAttribute};
use model::{AffinityOwner, Cidr, FindingCode, HandleId, Key, NodeName, ShellCommand};
use serde_json::json;

use super::super::draft::{Draft, Ground, Target};
use super::super::edit::{Edit, Is};
use super::{Area, Remedy, addresses};
use doctor::Subject;

const UNDO: &str = "restores the affinity, unless it has been changed since";
const UNDO_BLOCK: &str =
    "restores the block (with a new sequence number) and its affinity, unless replacements exist";
const UNDO_NODE: &str = "restores the records, blocks (with new sequence numbers) and affinities unless replacements exist, and allocates each \
                        address to its previous handle again if it is still free";

pub(super) const ALL: &[Remedy] = &[
    Remedy {
        does: "writes the affinity that matches the block",
        undo: "deletes the affinity again, unless it has been changed since",
        ..Remedy::of(FindingCode::AffinityMissing, Area::Ipam, write_affinity)
    },
    Remedy {
        does: "deletes the affinity by its revision, because the block is authoritative",
        undo: UNDO,
        ..Remedy::of(FindingCode::AffinityContradicted, Area::Ipam, delete_affinity)
    },
    Remedy {
        does: "confirms the affinity if the block belongs to its node, and deletes it otherwise",
        undo: UNDO,
        ..Remedy::of(FindingCode::AffinityUnfinished, Area::Ipam, settle_affinity)
    },
    Remedy {
        does: "deletes the node's endpoints, releases the addresses of its sandboxes, and deletes its \
               affinities and empty blocks; blocks in which other nodes have addresses are left without an \
               owner. Condition: the node has no Node record, and either no source reported the node in two \
               observations, or you run plumb repair node NAME --apply. While the Node record exists, only \
               plumb repair node NAME gone --apply does this, and deletes the record too",
        undo: UNDO_NODE,
        ..Remedy::of(FindingCode::AffinityOfGoneNode, Area::Ipam, bury_node)
    },
    Remedy {
        does: "only with plumb repair node NAME gone --apply, and only if the node's agent does not answer: \
               deletes the node's endpoints, releases the addresses of its sandboxes, deletes its affinities \
               and empty blocks, and then the Node record",
        undo: UNDO_NODE,
        ..Remedy::of(FindingCode::NodeLeftBehind, Area::Node, bury_node)
    },
    Remedy {
        does: "deletes the one of the two blocks that holds no address, with its affinity; if both hold \
               addresses, this is left to you",
        undo: UNDO_BLOCK,
        ..Remedy::of(FindingCode::BlockOverlap, Area::Ipam, resolve_overlap)
    },
    Remedy {
        does: "deletes the block if it holds no address; otherwise its pods must get addresses from a pool \
               first",
        undo: UNDO_BLOCK,
        ..Remedy::of(FindingCode::BlockOutsidePools, Area::Ipam, drop_outside)
    },
    Remedy {
        does: "deletes the block with its affinity, if it still holds no address",
        undo: UNDO_BLOCK,
        ..Remedy::of(FindingCode::ServiceBlockEmpty, Area::Ipam, drop_of_services)
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
    if let Some(node) = owner.node()
        && draft.ground.case.node_view(&node).is_none()
    {
        return draft.leave(target, format!("node {node} has no Node record and may be gone"));
    }
    let key = Key::Affinity { owner, block: *cidr };
    if draft.claims(&key, target) {
        let text = String::from_utf8_lossy(&Affinity::default().encode()).into_owned();
        let step = draft.step(target, format!("write {key}"));
        step.because("the block names its owner");
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
        step.because("if an affinity and its block disagree, the block is authoritative");
        step.edits.push(Edit::delete(key, Is::Revision(revision)));
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
        step.because("the block belongs to that node");
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
        return draft.leave(target, why);
    }
    if ground.case.node_view(node).is_some() && !ground.is_buried(node) {
        let why = "its Node record exists, and nothing shows whether the node is gone; if it is gone for \
                   good:";
        return draft.leave_with(target, why, vec![repair_node(node).plain("gone --apply")]);
    }
    if let Some(ago) = ground.heard_ago(node) {
        let why = format!(
            "node {node} showed {} s ago that it runs (heartbeat of its kubelet, or a record that it wrote); it can be gone only after \
             {} s without such a sign",
            ago.as_secs(),
            ground.case.options.grace.as_secs()
        );
        return draft.leave(target, why);
    }
    if !ground.is_dead(node) {
        let why = "the node is still known, or was at the previous observation; if it is gone for good:";
        return draft.leave_with(target, why, vec![repair_node(node).plain("--apply")]);
    }
    let Some(ipam) = ground.case.evidence.ipam.as_ref() else { return };
    let mut cidrs: Vec<Cidr> = Vec::new();
    for (cidr, stored) in &ipam.books.blocks {
        if stored.value.owner().is_some_and(|owner| owner.is_node(node)) {
            cidrs.push(*cidr);
        }
    }
    if let Some(why) = lives_on(ground, node, &cidrs) {
        return draft.leave(target, why);
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
    let of_node = ipam.books.affinities.iter().filter(|((owner, _), _)| owner.is_node(node));
    let bare: Vec<_> = of_node
        // A block that cannot be read is rebuilt first, and its affinity tells for whom.
        .filter(|((_, cidr), _)| !cidrs.contains(cidr) && !ground.case.doubt().is_block(cidr))
        .map(|((owner, cidr), stored)| (owner.clone(), *cidr, stored.revision.clone()))
        .collect();
    for (owner, block, revision) in bare {
        let key = Key::Affinity { owner, block };
        if draft.claims(&key, target) {
            let step = draft.step(target, format!("delete {key}"));
            step.needs_second_look = true;
            step.edits.push(Edit::delete(key, Is::Revision(revision)));
        }
    }
    delete_record(draft, target, node);
}

fn repair_node(node: &NodeName) -> ShellCommand {
    ShellCommand::new("plumb repair node").value(node.as_str())
}

/// Why an operator's word that a node is gone is not taken.
fn may_live(ground: &Ground<'_>, node: &NodeName) -> Option<String> {
    if !ground.is_buried(node) {
        return None;
    }
    if ground.case.node(node).is_some() {
        return Some(format!("the agent of {node} answers, so the node is not gone"));
    }
    if ground.case.node_view(node).is_none() && !ground.holds_something(node) {
        return Some("no record, block or endpoint of a node with this name exists".to_owned());
    }
    let kube = ground.case.node_view(node).into_iter().flat_map(|view| view.kube.iter());
    let mut states = kube.map(|kube| kube.seen.status.as_str());
    let is_ready = |state: &str| state.split(',').any(|word| word == "Ready");
    states.any(is_ready).then(|| format!("Kubernetes reports {node} as ready"))
}

/// The record of a node that was buried. Everything else of it has gone before.
fn delete_record(draft: &mut Draft<'_, '_>, target: &Target, node: &NodeName) {
    let Some(record) = draft.ground.case.node_view(node).and_then(|view| view.record) else { return };
    let (key, revision) = (record.seen.key(), record.seen.metadata.resource_version.clone());
    if let Some(revision) = revision
        && draft.claims(&key, target)
    {
        let step = draft.step(target, format!("delete {key}"));
        step.needs_second_look = true;
        step.because("you declared the node gone for good, and no source that was asked knows it");
        step.edits.push(Edit::delete(key, Is::Revision(revision)));
    }
}

/// Whether somebody lives who is said to be on a node of which nobody knows: then the node is not gone, only its name is wrong.
fn lives_on(ground: &Ground<'_>, node: &NodeName, blocks: &[Cidr]) -> Option<String> {
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
            let is_its = suspect.node.as_ref() == Some(node);
            ground.is_gone(&suspect).err().filter(|_| is_its)
        })
    })
}

/// Whether nothing will be left in a block when all that is planned is done.
fn will_be_empty(draft: &Draft<'_, '_>, block: &Block) -> bool {
    let addresses = (0..block.allocations.len()).filter_map(|ordinal| block.address(ordinal));
    addresses.into_iter().all(|address| {
        let held = draft.holder(block, address);
        held.is_none_or(|held: BlockAttribute| held.handle().is_some_and(HandleId::is_windows_reserved))
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
        false => format!("remove the owner of block {}: other nodes have addresses in it", block.cidr),
    };
    let affinity = affinity.filter(|affinity| draft.claims(affinity, target));
    let step = draft.step(target, title);
    step.needs_second_look = true;
    step.because(because.to_owned());
    if let (Some(key), Some(revision)) = (affinity, revision) {
        step.edits.push(Edit::delete(key, Is::Revision(revision)));
    }
    step.edits.push(match is_empty {
        true => Edit::delete(key, Is::EmptyBlock),
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
                    "both {inner} and {outer} hold addresses; recreate the pods of one of them, then run the \
                     repair again"
                );
                draft.leave(target, why);
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
            "it holds addresses; create a pool for it, or recreate its pods and run the repair again",
        ),
    }
}

fn drop_of_services(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Block(cidr) = &target.subject else { return };
    let Some(block) = draft.ground.block(cidr) else { return };
    if will_be_empty(draft, block) {
        drop_block(draft, target, block, "it holds no address, and no node can claim it");
    }
}
