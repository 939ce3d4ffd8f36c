//! No orphans: records that are marked as deleted and still there.

use model::Key;

use super::exhibit;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Record is marked as deleted but still exists",
    explanation: "On Kubernetes, Calico deletes blocks, handles and affinities in two steps: it marks the \
                  record, then removes it. A process that was interrupted in between leaves the mark. The \
                  record holds nothing, but lists still show it, and a new claim on the same block fails \
                  because of it.",
    remedy: "run plumb repair ipam --apply to delete the record by its revision",
    needs: &[&[Need::Ipam]],
    ..Check::warning(FindingCode::Tombstone, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    let books = &ipam.books;
    let blocks =
        books.blocks.iter().filter(|(_, stored)| stored.value.deleted).map(|(cidr, _)| Key::Block(*cidr));
    let handles = books
        .handles
        .iter()
        .filter(|(_, stored)| stored.value.deleted)
        .map(|(id, _)| Key::Handle(id.clone()));
    let affinities = books
        .affinities
        .iter()
        .filter(|(_, stored)| stored.value.deleted)
        .map(|((owner, block), _)| Key::Affinity { owner: owner.clone(), block: *block });
    for key in blocks.chain(handles).chain(affinities) {
        look.found(key.clone(), format!("{key} is marked as deleted but still exists")).seen(exhibit(
            case,
            key,
            "deleted: true",
        ));
    }
}

#[cfg(test)]
mod tests {
    use ::ipam::Stored;
    use model::ipam::Handle;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_handle_that_was_half_deleted() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let handle = Handle { deleted: true, ..Handle::default() };
        evidence.ipam.as_mut().unwrap().books.handles.insert("gone".into(), Stored::new(handle, "1"));
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "handle gone");
    }
}
