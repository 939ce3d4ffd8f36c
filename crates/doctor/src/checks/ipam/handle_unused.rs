//! No orphans: a handle that no block mentions.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, problems};
use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Handle holds no address",
    explanation: "A handle record counts addresses, but no block has an address of that handle. Calico writes \
                  the handle and the block separately. A process that was interrupted in between leaves such \
                  a handle behind. It harms no pod, but Calico never removes it.",
    remedy: "run plumb repair finding handle-unused --apply, which deletes the handle",
    needs: &[&[Need::Ipam]],
    ..Check::warning(FindingCode::HandleUnused, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref().filter(|ipam| ipam.whole.blocks) else { return };
    for problem in problems(case) {
        let Problem::HandleUnused { handle, .. } = problem else { continue };
        let blocks = ipam.books.handles.get(handle).map(|stored| stored.value.block.keys());
        let blocks = crate::checks::words::listed(blocks.into_iter().flatten());
        look.found(Subject::Handle(handle.clone()), format!("no block refers to handle {handle}"))
            .seen(exhibit(case, Key::Handle(handle.clone()), format!("counts addresses in {blocks}")));
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
    fn fires_for_a_handle_without_addresses_if_all_blocks_are_known() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let ipam = evidence.ipam.as_mut().unwrap();
        let handle = Handle { block: [("10.0.0.0/26".to_owned(), 1)].into(), ..Handle::default() };
        ipam.books.handles.insert("k8s-pod-network.gone".into(), Stored::new(handle, "7"));
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "handle k8s-pod-network.gone");
        evidence.ipam.as_mut().unwrap().whole.blocks = false;
        silent(&CHECK, &evidence);
    }
}
