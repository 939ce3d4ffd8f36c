//! Books agree: a block names a handle that is not there.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, problems};
use crate::checks::words::listed;
use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Allocation's handle is missing",
    explanation: "A block has allocated an address under a handle, but that handle record does not exist. A \
                  release looks up addresses by handle: it finds nothing, reports success, and leaves the \
                  address allocated forever.",
    remedy: "run plumb repair ipam --apply to write the handle again from the blocks",
    needs: &[&[Need::Ipam]],
    ..Check::warning(FindingCode::HandleMissing, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.evidence.ipam.as_ref().is_some_and(|ipam| ipam.whole.handles) {
        return;
    }
    for problem in problems(case) {
        let Problem::HandleMissing { handle, blocks } = problem else { continue };
        let exhibits = blocks.iter().map(|block| {
            exhibit(case, Key::Block(*block), format!("block {block} refers to handle {handle}"))
        });
        let summary = format!("handle {handle} is missing but holds addresses in {}", listed(blocks));
        look.found(Subject::Handle(handle.clone()), summary).seen_all(exhibits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_if_all_handles_are_known() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.ipam.as_mut().unwrap().books.handles.pop_first();
        assert!(only(&CHECK, &evidence).subject.to_string().starts_with("handle k8s-pod-network.00000001"));
        evidence.ipam.as_mut().unwrap().whole.handles = false;
        silent(&CHECK, &evidence);
    }
}
