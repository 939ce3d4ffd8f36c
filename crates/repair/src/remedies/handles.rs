//! Handles and what is left of deletions: an index of the blocks, put right by what the blocks say.

use model::ipam::{Affinity, Handle};
use model::{FindingCode, Key};

use super::super::draft::{Draft, Target};
use super::super::edit::{Edit, Is};
use super::{Area, Remedy};
use doctor::Subject;

const UNDO_COUNT: &str = "restores the handle's previous counts, unless the handle has been changed since";
const COUNTS: &str = "rewrites the handle's counts from the blocks, and deletes the handle if no block \
                      refers to it";
const UNDO_RECORD: &str = "restores the record, unless a new one exists";

pub(super) const UNREADABLE: &[Remedy] = &[Remedy {
    does: "rebuilds a block from the current users of its addresses. Condition: every user of addresses can \
           be read, and every handle that counts an address of the block belongs to one of them, or to a \
           sandbox that two witnesses report as gone. Then rewrites a handle or an affinity from the blocks, \
           or deletes it if no block refers to it. Endpoints, nodes and pools are left to you",
    undo: UNDO_RECORD,
    ..Remedy::of(FindingCode::RecordUnreadable, Area::Ipam, rewrite)
}];

pub(super) const ALL: &[Remedy] = &[
    Remedy {
        does: COUNTS,
        undo: UNDO_COUNT,
        ..Remedy::of(FindingCode::HandleCountWrong, Area::Ipam, recount)
    },
    Remedy {
        does: "writes the handle with its counts from the blocks",
        undo: "deletes the handle again, unless it has been changed since",
        ..Remedy::of(FindingCode::HandleMissing, Area::Ipam, recount)
    },
    Remedy {
        does: "deletes the handle, because no block refers to it",
        undo: "restores the handle with its counts, unless a new one exists",
        ..Remedy::of(FindingCode::HandleUnused, Area::Ipam, recount)
    },
    Remedy {
        does: "deletes the record, if its revision has not changed since it was read",
        undo: UNDO_RECORD,
        ..Remedy::of(FindingCode::Tombstone, Area::Ipam, bury)
    },
];

fn recount(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Handle(handle) = &target.subject else { return };
    if !draft.ground.case.evidence.ipam.as_ref().is_some_and(|ipam| ipam.whole.blocks) {
        return draft.leave(target, "not all blocks were read");
    }
    let books = &draft.ground.case.evidence.ipam.as_ref().expect("it was looked at").books;
    let is_empty = books.handles.get(handle).is_some_and(|stored| stored.value.block.is_empty());
    let revision = books.handles.get(handle).map(|stored| stored.revision.clone());
    let step = draft.recount(target, format!("recount handle {handle}"), handle);
    step.because("a handle is an index of the blocks, and the blocks are authoritative");
    // Counts nothing and stands there: no count can be changed.
    if let (true, Some(revision)) = (is_empty, revision) {
        step.edits.push(Edit::Record {
            key: Key::Handle(handle.clone()),
            from: Some(Is::Revision(revision)),
            to: None,
        });
    }
}

/// The key of a record that a finding is about.
fn key_of(subject: &Subject) -> Option<Key> {
    match subject {
        Subject::Block(cidr) => Some(Key::Block(*cidr)),
        Subject::Handle(id) => Some(Key::Handle(id.clone())),
        Subject::Affinity { owner, block } => Some(Key::Affinity { owner: owner.clone(), block: *block }),
        Subject::Record(key) => Some(key.clone()),
        _ => None,
    }
}

fn bury(draft: &mut Draft<'_, '_>, target: &Target) {
    let (Some(key), Some(ipam)) = (key_of(&target.subject), draft.ground.case.evidence.ipam.as_ref()) else {
        return;
    };
    let revision = match &key {
        Key::Block(cidr) => ipam.books.blocks.get(cidr).map(|stored| &stored.revision),
        Key::Handle(id) => ipam.books.handles.get(id).map(|stored| &stored.revision),
        Key::Affinity { owner, block } => {
            ipam.books.affinities.get(&(owner.clone(), *block)).map(|stored| &stored.revision)
        }
        _ => None,
    };
    let Some(revision) = revision.cloned() else { return };
    if draft.claims(&key, target) {
        let step = draft.step(target, format!("delete {key}, which is marked as deleted"));
        step.edits.push(Edit::delete(key, Is::Revision(revision)));
    }
}

fn rewrite(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some(key) = key_of(&target.subject) else { return };
    let Some(ipam) = draft.ground.case.evidence.ipam.as_ref() else { return };
    let (text, rule) = match &key {
        Key::Handle(id) => {
            let mut counts = Handle::default();
            for (block, count) in draft.ground.held_by(id) {
                counts.block.insert(block.to_string(), count);
            }
            let is_used = !counts.block.is_empty();
            (
                is_used.then(|| counts.encode()),
                "a handle is an index of the blocks, and the blocks are \
                                                authoritative",
            )
        }
        Key::Affinity { owner, block } => {
            let is_owner =
                draft.ground.block(block).and_then(model::ipam::Block::owner).as_ref() == Some(owner);
            (
                is_owner.then(|| Affinity::default().encode()),
                "if an affinity and its block disagree, the block is authoritative",
            )
        }
        Key::Block(cidr) => return super::blocks::rebuild(draft, target, cidr),
        _ => {
            return draft.leave(
                target,
                "no other record shows what it should contain; restore it from a backup, or delete it",
            );
        }
    };
    if !ipam.whole.blocks || draft.ground.case.doubt().may_hold_any_handle() {
        return draft.leave(
            target,
            "not all blocks can be read, so their references to it are not known; run the repair again once \
             the blocks are rebuilt",
        );
    }
    let to = text.map(|text| String::from_utf8_lossy(&text).into_owned());
    let title = if to.is_some() {
        format!("rewrite {key}")
    } else {
        format!("delete {key}, to which no block refers")
    };
    if draft.claims(&key, target) {
        let step = draft.step(target, title);
        step.because(rule.to_owned());
        step.edits.push(Edit::Record { key, from: Some(Is::Unreadable), to });
    }
}
