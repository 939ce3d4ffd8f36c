//! No orphans: a handle that no block mentions.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, problems};
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "handle-unused",
    severity: Severity::Warning,
    title: "A handle that holds no address",
    explanation: "A handle record says that it holds addresses, and no block knows of any. Calico writes \
                  handle and block one after the other; whoever was stopped in between leaves such handles, \
                  and nothing collects them.",
    remedy: "delete the handle by its revision: plumb ipam check -o FILE, then plumb ipam release \
             --from-report FILE",
    needs: &[&[Need::Ipam]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref().filter(|ipam| ipam.whole.blocks) else { return };
    for problem in problems(case) {
        let Problem::HandleUnused { handle, .. } = problem else { continue };
        let blocks = ipam.books.handles.get(handle).map(|stored| stored.value.block.keys());
        let blocks = crate::checks::words::listed(blocks.into_iter().flatten());
        look.found(Subject::Handle(handle.clone()), format!("handle {handle} is mentioned by no block"))
            .seen(exhibit(case, Key::Handle(handle.clone()), format!("names {blocks}")));
    }
}

#[cfg(test)]
mod tests {
    use ::ipam::Stored;
    use model::ipam::Handle;

    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_a_handle_without_addresses_if_all_blocks_are_known() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let ipam = evidence.ipam.as_mut().unwrap();
        let handle = Handle { block: [("10.0.0.0/26".to_owned(), 1)].into(), ..Handle::default() };
        ipam.books.handles.insert("k8s-pod-network.gone".to_owned(), Stored::new(handle, "7"));
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "handle k8s-pod-network.gone");
        evidence.ipam.as_mut().unwrap().whole.blocks = false;
        silent(&CHECK, &evidence);
    }
}
