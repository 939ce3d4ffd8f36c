//! An address that several sandboxes hold: who keeps it, and what is done about the others.
//!
//! The rule, in this order: whoever the block's allocation names by its handle, unless witnesses call it gone; else the only one that
//! a runtime still runs. Nobody
//! else is rightful, and then nothing is done: to guess would cut off the wrong one.

use super::super::draft::{Draft, Target, delete_pod};
use super::running::Running;
use super::{Area, Remedy, addresses, endpoints};
use doctor::Subject;
use evidence::{Endpoint, same_id};
use model::FindingCode;

pub(super) const ALL: &[Remedy] = &[Remedy {
    does: "keeps the rightful owner (the sandbox named in the block's allocation, or else the only one that \
           runs) and allocates the address to it if the IPAM records name another. Deletes the records of \
           the others if two witnesses report them gone, and lists the commands that recreate those still \
           running",
    undo: "restores deleted records unless new ones exist, and restores the previous allocation",
    ..Remedy::of(FindingCode::AddressShared, Area::Endpoints, settle)
}];

fn settle(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Address(address) = target.subject else { return };
    let ground = draft.ground;
    let holders: Vec<&Endpoint> =
        ground.case.endpoints_at(address).iter().map(|endpoint| &endpoint.seen).collect();
    let runs = |endpoint: &&Endpoint| Running::of(ground, endpoint).is_some();
    let allocation = ground.case.allocation(address);
    let id = allocation.and_then(|allocation| allocation.attribute.handle()?.container());
    let named = |endpoint: &&Endpoint| {
        id.zip(endpoint.container_id.as_deref()).is_some_and(|(id, own)| same_id(id, own))
    };
    // Whoever is gone is nobody's rival, whatever the books say.
    let is_there = |endpoint: &&Endpoint| ground.is_gone(&endpoints::suspect(endpoint)).is_err();
    let by_books: Vec<&Endpoint> = holders.iter().copied().filter(named).filter(is_there).collect();
    let by_runtime: Vec<&Endpoint> = holders.iter().copied().filter(runs).collect();
    let (rightful, rule) = match (&by_books[..], &by_runtime[..]) {
        (&[one], _) => (one, "the block's allocation names its sandbox"),
        (_, &[one]) => (one, "it is the only one that is running"),
        _ => {
            let why = "the rightful owner cannot be identified: the IPAM records name none of them, and more \
                       than one runs, or none";
            return draft.leave_with(target, why, addresses::recreate(ground, address));
        }
    };
    entitle(draft, target, rightful, address);
    for other in holders.into_iter().filter(|other| !std::ptr::eq(*other, rightful)) {
        if runs(&other) {
            let why = format!(
                "{rightful} keeps {address}: {rule}. {other} runs as well and must get another address"
            );
            draft.leave_with(target, why, other.pod_name().iter().map(delete_pod).collect());
        } else {
            endpoints::delete(draft, target, other);
        }
    }
}

/// The books name the rightful owner.
fn entitle(draft: &mut Draft<'_, '_>, target: &Target, rightful: &Endpoint, address: std::net::IpAddr) {
    let Some(block) = addresses::block_of(draft.ground, address) else { return };
    let Some(owner) = addresses::owner_for(draft.ground, rightful) else { return };
    let held = draft.holder(block, address);
    if held.as_ref().and_then(|held| held.handle()) == owner.handle() {
        return;
    }
    if let Some(held) = &held
        && addresses::is_holder_gone(draft.ground, block, held, address).is_err()
    {
        return;
    }
    draft.allocate(
        target,
        format!("allocate {address} to {rightful}, which keeps it"),
        block,
        address,
        Some(owner),
    );
}
