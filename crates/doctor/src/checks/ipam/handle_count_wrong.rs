//! Books agree: handles and blocks count the same.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, problems};
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "handle-count-wrong",
    severity: Severity::Warning,
    title: "A handle that counts wrong",
    explanation: "A handle says how many addresses it holds in each block, and a block has another number \
                  of them. Too much: an allocation was interrupted, or counted what was asked for instead \
                  of what was got. Too little: the handle will be deleted while it still holds addresses.",
    remedy: "count the handle anew from the blocks (plumb repair ipam)",
    needs: &[&[Need::Ipam]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    for problem in problems(case) {
        let Problem::HandleCount { handle, block, said, found } = problem else { continue };
        if !ipam.whole.blocks && !ipam.books.blocks.contains_key(block) {
            continue;
        }
        look.found(
            Subject::Handle(handle.clone()),
            format!("handle {handle} counts {said} in block {block}, which has {found}"),
        )
        .seen(exhibit(case, Key::Handle(handle.clone()), format!("{block}: {said}")))
        .seen(exhibit(case, Key::Block(*block), format!("has {found} of {handle}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_a_handle_that_counts_too_much() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        *books.handles.values_mut().next().unwrap().value.block.get_mut("10.0.0.0/26").unwrap() = 2;
        let finding = only(&CHECK, &evidence);
        assert!(
            finding.summary.ends_with("counts 2 in block 10.0.0.0/26, which has 1"),
            "{}",
            finding.summary
        );
    }
}
