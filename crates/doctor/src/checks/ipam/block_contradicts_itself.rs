//! Books agree: what a block says about its own addresses.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, problems};
use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Block contradicts itself",
    explanation: "Inside one block, the allocations, the list of free addresses, the attributes or the \
                  sequence numbers do not match. An address is both allocated and free, or neither, or \
                  refers to an owner that does not exist. Allocating from such a block can hand out an \
                  address that is already in use.",
    remedy: "run plumb repair ipam --apply, which makes the block's lists match its allocations and the \
             existing endpoints",
    needs: &[&[Need::Ipam]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::BlockContradictsItself, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    for problem in problems(case) {
        let Problem::Corrupt(corrupt) = problem else { continue };
        let Key::Block(block) = &corrupt.key else { continue };
        if !ipam.books.blocks.contains_key(block) {
            continue;
        }
        let summary = format!(
            "block {block} contradicts itself: {}",
            crate::checks::words::listed(&corrupt.contradictions)
        );
        let finding = look.found(*block, summary);
        for contradiction in &corrupt.contradictions {
            finding.seen(exhibit(case, corrupt.key.clone(), contradiction.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_an_address_that_is_taken_and_free() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        books.blocks.values_mut().next().unwrap().value.unallocated.push(0);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "block 10.0.0.0/26");
        assert!(
            finding.summary.contains("address 0 is both allocated and unallocated"),
            "{}",
            finding.summary
        );
    }
}
