//! Books agree: a block names a handle that is not there.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, problems};
use crate::checks::words::listed;
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "handle-missing",
    severity: Severity::Warning,
    title: "An allocation whose handle is not there",
    explanation: "A block has given out an address under a handle, and there is no such handle record. \
                  Releases go by handle: they will find nothing, succeed, and leave the address allocated \
                  for ever.",
    remedy: "write the handle anew from the blocks (plumb repair ipam)",
    needs: &[&[Need::Ipam]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.evidence.ipam.as_ref().is_some_and(|ipam| ipam.whole.handles) {
        return;
    }
    for problem in problems(case) {
        let Problem::HandleMissing { handle, blocks } = problem else { continue };
        let exhibits = blocks
            .iter()
            .map(|block| exhibit(case, Key::Block(*block), format!("block {block} names handle {handle}")));
        look.found(
            Subject::Handle(handle.clone()),
            format!("handle {handle} is not there, and holds addresses in {}", listed(blocks)),
        )
        .seen_all(exhibits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

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
