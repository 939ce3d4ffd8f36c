//! Whose an address is: given to who uses it, taken from who is gone.

use std::net::IpAddr;

use ipam::check::Problem;
use ipam::{NAMESPACE_ATTRIBUTE, NODE_ATTRIBUTE, POD_ATTRIBUTE, POD_UID_ATTRIBUTE};
use model::ipam::{Block, BlockAttribute};
use model::{FindingCode, HandleId, NodeName, ShellCommand};

use super::super::draft::{Draft, Ground, Target, delete_pod};
use super::super::edit::Edit;
use super::super::witness::Suspect;
use super::{Area, Remedy};
use doctor::Subject;
use evidence::{Endpoint, PodName, same_id};

const UNDO_ALLOCATED: &str = "releases the address again, unless its allocation has been changed since; the address is then in use but not \
                             allocated, as before";
const UNDO_HANDLE: &str = "restores the previous handle of the allocation and the handles' counts, unless they have been changed since";
const UNDO_RELEASED: &str =
    "allocates the address to its previous handle again if it is still free, and restores the handle's count";

pub(super) const GIVING: &[Remedy] = &[
    Remedy {
        does: "makes the block's lists match its allocations; an address whose owner is missing from the \
               block is allocated to the endpoint that uses it, or released if there is none",
        undo: "restores the block with a new sequence number, unless it has been changed since",
        ..Remedy::of(FindingCode::BlockContradictsItself, Area::Ipam, mend_lists)
    },
    Remedy {
        does: "allocates the address to its current user, under the handle of that sandbox or tunnel",
        undo: UNDO_ALLOCATED,
        ..Remedy::of(FindingCode::AddressUsedButFree, Area::Ipam, give_to_user)
    },
    Remedy {
        does: "adds the handle of the sandbox that uses the address to the allocation, and updates the \
               handle's count",
        undo: UNDO_HANDLE,
        ..Remedy::of(FindingCode::AllocationWithoutHandle, Area::Ipam, name_holder)
    },
    Remedy {
        does: "renames the handle after the sandbox that has the address, if an endpoint record names that sandbox",
        undo: UNDO_HANDLE,
        ..Remedy::of(FindingCode::HandleByName, Area::Ipam, rename_handles)
    },
];

pub(super) const TAKING: &[Remedy] = &[
    Remedy {
        does: "keeps the allocation of the sandbox that uses the address, and releases the other allocations \
               if two witnesses confirm that their sandboxes are gone",
        undo: UNDO_RELEASED,
        ..Remedy::of(FindingCode::AddressAllocatedTwice, Area::Ipam, free_second)
    },
    Remedy {
        does: "releases the address by its handle and sequence number. Condition: in two observations, at \
               least two of the three witnesses (Kubernetes, container runtime, kernel) report that its \
               sandbox is gone and none reports it alive, or its node is gone for good",
        undo: UNDO_RELEASED,
        ..Remedy::of(FindingCode::AddressLeaked, Area::Ipam, free_leaked)
    },
];

/// The block in which an address lies.
pub(super) fn block_of<'e>(ground: &Ground<'e>, address: IpAddr) -> Option<&'e Block> {
    ground.case.blocks_around(address).find(|block| !block.deleted)
}

/// The network under whose name handles are made: as the books do it, else as Calico's default configuration does.
pub(super) fn network_name(ground: &Ground<'_>) -> String {
    let attached = ground.case.all_nodes().flat_map(|node| node.attachments.iter().flatten());
    if let Some(held) = attached.map(|held| &held.seen).find(|held| !held.network.is_empty()) {
        return held.network.clone();
    }
    let handles = ground.case.evidence.ipam.iter().flat_map(|ipam| ipam.books.handles.keys());
    let mut networks = handles.filter_map(HandleId::kubernetes_network);
    networks.next().unwrap_or("k8s-pod-network").to_owned()
}

/// What a block says of an address that an endpoint has. No time: a plan is the same whenever it is made.
pub(super) fn owner_for(ground: &Ground<'_>, endpoint: &Endpoint) -> Option<BlockAttribute> {
    let id = endpoint.container_id.as_deref()?;
    let mut owner = BlockAttribute {
        handle_id: Some(HandleId::of_sandbox(&network_name(ground), id).into()),
        ..BlockAttribute::default()
    };
    let notes = [
        (NODE_ATTRIBUTE, endpoint.node.as_ref().map(NodeName::as_str)),
        (NAMESPACE_ATTRIBUTE, endpoint.namespace.as_deref()),
        (POD_ATTRIBUTE, endpoint.pod.as_deref()),
    ];
    for (name, value) in notes {
        if let Some(value) = value {
            owner.secondary.insert(name, value.to_owned());
        }
    }
    Some(owner)
}

/// Who has the address by records, if it is exactly one.
pub(super) fn user_of(ground: &Ground<'_>, address: IpAddr) -> Option<BlockAttribute> {
    let tunnels = ground.case.node_views().values();
    let tunnel = tunnels
        .flat_map(|view| view.tunnels.iter().map(move |(tunnel, at)| (&view.name, *tunnel, *at)))
        .find(|(_, _, at)| *at == address);
    match (ground.case.endpoints_at(address), tunnel) {
        ([endpoint], None) => owner_for(ground, &endpoint.seen),
        ([], Some((node, tunnel, _))) => {
            let owner = tunnel.owner(node.as_str());
            Some(BlockAttribute {
                handle_id: Some(owner.handle.into()),
                secondary: (&owner.attributes).into(),
                ..BlockAttribute::default()
            })
        }
        _ => None,
    }
}

fn mend_lists(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Block(cidr) = &target.subject else { return };
    let Some(block) = draft.ground.block(cidr) else { return };
    let is_lost =
        |ordinal: &usize| block.allocations[*ordinal].is_some_and(|index| index >= block.attributes.len());
    let lost = (0..block.allocations.len()).filter(is_lost).filter_map(|ordinal| block.address(ordinal));
    let ground = draft.ground;
    let owners: Vec<_> = lost.filter_map(|address| Some((address, user_of(ground, address)?))).collect();
    let step = draft.step(target, format!("make the lists of block {cidr} match its allocations"));
    step.because("allocated addresses stay allocated, and free addresses keep their order");
    step.edits.push(Edit::Lists { block: *cidr, owners });
}

fn give_to_user(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Address(address) = target.subject else { return };
    let Some(block) = block_of(draft.ground, address) else {
        if draft.ground.missing_block_of(address).is_some() {
            // It comes with its block, or stays without one.
            return;
        }
        let why = "no block contains the address; recreate the pod so that it gets an address from a block";
        return draft.leave_with(target, why, recreate(draft.ground, address));
    };
    let ground = draft.ground;
    if let [endpoint] = ground.case.endpoints_at(address)
        && ground.is_gone(&super::endpoints::suspect(&endpoint.seen)).is_ok()
    {
        // Its record goes, and then nobody uses the address.
        return;
    }
    let Some(owner) = user_of(ground, address) else {
        let why = "the records do not show exactly one sandbox that uses the address";
        return draft.leave(target, why);
    };
    let title = format!("allocate {address} to {}", owner.handle().map_or("", HandleId::as_str));
    if let Some(step) = draft.allocate(target, title, block, address, Some(owner)) {
        step.because("the user of an address is entitled to it, unless another allocation exists");
    }
}

/// The commands that give the pods at an address a new one.
pub(super) fn recreate(ground: &Ground<'_>, address: IpAddr) -> Vec<ShellCommand> {
    let endpoints = ground.case.endpoints_at(address).iter().filter_map(|endpoint| endpoint.seen.pod_name());
    let mut commands: Vec<ShellCommand> = endpoints.map(|pod| delete_pod(&pod)).collect();
    commands.sort();
    commands.dedup();
    commands
}

fn name_holder(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Address(address) = target.subject else { return };
    let (Some(block), Some(owner)) = (block_of(draft.ground, address), user_of(draft.ground, address)) else {
        return draft.leave(target, "the records do not show exactly one sandbox that has the address");
    };
    let known =
        block.ordinal(address).and_then(|ordinal| block.attribute(ordinal)).cloned().unwrap_or_default();
    let to = with_handle_of(known, owner);
    let title =
        format!("add handle {} to the allocation of {address}", to.handle().map_or("", HandleId::as_str));
    draft.allocate(target, title, block, address, Some(to));
}

/// Everything that was known stays; the handle, and what was not known, is new.
fn with_handle_of(mut known: BlockAttribute, owner: BlockAttribute) -> BlockAttribute {
    known.handle_id = owner.handle_id;
    for (name, value) in owner.secondary {
        known.secondary.insert_if_absent(name, value);
    }
    known
}

fn rename_handles(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Block(cidr) = &target.subject else { return };
    let Some(block) = draft.ground.block(cidr) else { return };
    for ordinal in 0..block.allocations.len() {
        let Some(known) = block.attribute(ordinal).cloned() else { continue };
        let is_by_name = known.handle().is_some_and(HandleId::is_by_name);
        let (true, Some(address)) = (is_by_name, block.address(ordinal)) else { continue };
        match user_of(draft.ground, address) {
            Some(owner) => {
                let to = with_handle_of(known, owner);
                let title =
                    format!("rename the handle of {address} to {}", to.handle().map_or("", HandleId::as_str));
                draft.allocate(target, title, block, address, Some(to));
            }
            None => draft.leave(target, format!("no endpoint names the sandbox that has {address}")),
        }
    }
}

/// Whom an allocation was made for.
pub(super) fn suspect<'a>(block: &Block, held: &'a BlockAttribute, address: IpAddr) -> Suspect<'a> {
    let note = |name: &str| held.secondary.get(name);
    let pod = note(POD_ATTRIBUTE)
        .map(|name| PodName { namespace: note(NAMESPACE_ATTRIBUTE).cloned(), name: name.clone() });
    let owner = || block.owner().and_then(|owner| owner.node());
    Suspect {
        container_id: held.handle().and_then(HandleId::certain_container),
        node: note(NODE_ATTRIBUTE).map(NodeName::from).or_else(owner),
        pod,
        uid: held.secondary.get(POD_UID_ATTRIBUTE).map(String::as_str),
        device: None,
        addresses: vec![address],
        since: ipam::allocated_at(held),
    }
}

/// Whether whoever an allocation was made for is gone, with the reasons; or why not.
pub(super) fn is_holder_gone(
    ground: &Ground<'_>,
    block: &Block,
    held: &BlockAttribute,
    address: IpAddr,
) -> Result<Vec<String>, String> {
    let suspect = suspect(block, held, address);
    let is_dead = suspect.node.as_ref().is_some_and(|node| ground.is_dead(node));
    let is_tunnel = held.handle().is_some_and(HandleId::is_of_tunnel);
    if !is_dead && is_tunnel {
        return Err("it belongs to a tunnel whose node exists; the node's agent takes care of it".to_owned());
    }
    let is_by_name = held.handle().is_some_and(HandleId::is_by_name);
    if !is_dead && suspect.container_id.is_none() && !is_by_name {
        return Err("its handle names no sandbox, so no witness can be asked".to_owned());
    }
    ground.is_gone(&suspect)
}

/// The same, and nobody else has the address.
pub(super) fn may_go(
    ground: &Ground<'_>,
    block: &Block,
    held: &BlockAttribute,
    address: IpAddr,
) -> Result<Vec<String>, String> {
    ground.is_unused(address)?;
    is_holder_gone(ground, block, held, address)
}

fn free_leaked(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Address(address) = target.subject else { return };
    let Some(allocation) = draft.ground.case.allocation(address) else { return };
    let verdict = may_go(draft.ground, allocation.block, allocation.attribute, address);
    free(draft, target, allocation.block, address, verdict);
}

/// Frees an address if its holder is gone, or says why not.
pub(super) fn free(
    draft: &mut Draft<'_, '_>,
    target: &Target,
    block: &Block,
    address: IpAddr,
    verdict: Result<Vec<String>, String>,
) {
    let held = block.ordinal(address).and_then(|ordinal| block.attribute(ordinal));
    match verdict {
        Err(why) => draft.leave(target, why),
        Ok(reasons) => {
            let handle = held.and_then(BlockAttribute::handle).map_or("no handle", HandleId::as_str);
            let title = format!("release {address}, held by {handle}");
            if let Some(step) = draft.allocate(target, title, block, address, None) {
                step.needs_second_look = true;
                let new: Vec<String> =
                    reasons.into_iter().filter(|reason| !step.because.contains(reason)).collect();
                step.because.extend(new);
            }
        }
    }
}

fn free_second(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Address(address) = target.subject else { return };
    let ground = draft.ground;
    let problems = ground.case.books_view().map(|view| view.problems.as_slice()).unwrap_or_default();
    let blocks = problems.iter().find_map(|problem| match problem {
        Problem::AllocatedTwice { address: at, blocks } if *at == address => Some(blocks),
        _ => None,
    });
    let mut held: Vec<(&Block, &BlockAttribute)> = Vec::new();
    for cidr in blocks.into_iter().flatten() {
        let Some(block) = ground.block(cidr) else { continue };
        held.extend(block.ordinal(address).and_then(|at| block.attribute(at)).map(|known| (block, known)));
    }
    let is_of_user = |known: &BlockAttribute| {
        let id = known.handle().and_then(HandleId::container);
        let sandbox = |endpoint: &Endpoint| endpoint.container_id.clone();
        let users = ground.case.endpoints_at(address).iter().filter_map(|endpoint| sandbox(&endpoint.seen));
        users.into_iter().any(|user| id.is_some_and(|id| same_id(id, &user)))
    };
    let (entitled, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|(_, known)| is_of_user(known));
    if entitled.len() != 1 {
        let why = "the right allocation cannot be identified: no endpoint, or more than one, has the address \
                   under one of the handles";
        return draft.leave_with(target, why, recreate(ground, address));
    }
    for (block, known) in others {
        let verdict = is_holder_gone(ground, block, known, address);
        free(draft, target, block, address, verdict);
    }
}
