//! Books agree: handles and blocks count the same.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, problems};
use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Handle has wrong counts",
    explanation: "A handle records how many addresses it holds in each block, but a block has a different \
                  number. A count that is too high comes from an allocation that was interrupted, or that \
                  counted the addresses requested instead of those allocated. A handle whose count is too \
                  low is deleted while it still holds addresses.",
    remedy: "run plumb repair ipam --apply to recount the handle from the blocks",
    needs: &[&[Need::Ipam]],
    ..Check::warning(FindingCode::HandleCountWrong, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    for problem in problems(case) {
        let Problem::HandleCount { handle, block, said, found } = problem else { continue };
        if !ipam.whole.blocks && !ipam.books.blocks.contains_key(block) {
            continue;
        }
        let summary = format!("handle {handle} counts {said} in block {block}, but the block has {found}");
        look.found(Subject::Handle(handle.clone()), summary)
            .seen(exhibit(case, Key::Handle(handle.clone()), format!("{block}: {said}")))
            .seen(exhibit(case, Key::Block(*block), format!("has {found} of {handle}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_handle_that_counts_too_much() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        *books.handles.values_mut().next().unwrap().value.block.get_mut("10.0.0.0/26").unwrap() = 2;
        let finding = only(&CHECK, &evidence);
        assert!(
            finding.summary.ends_with("counts 2 in block 10.0.0.0/26, but the block has 1"),
            "{}",
            finding.summary
        );
    }
}
