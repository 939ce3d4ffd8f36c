//! Books agree: what a block says about its own addresses.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, problems};
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "block-contradicts-itself",
    severity: Severity::Error,
    title: "A block that contradicts itself",
    explanation: "Inside one block the list of allocations, the list of free addresses, the attributes or \
                  the sequence numbers do not fit together: an address is both taken and free, or neither, \
                  or refers to an owner that is not there. Whoever takes from such a block may give out an \
                  address that is in use.",
    remedy: "make its lists agree with what it gave out and with the endpoints that exist (plumb repair ipam)",
    needs: &[&[Need::Ipam]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    for problem in problems(case) {
        let Problem::Corrupt(corrupt) = problem else { continue };
        let Key::Block(block) = &corrupt.key else { continue };
        if !ipam.books.blocks.contains_key(block) {
            continue;
        }
        let finding = look.found(
            Subject::Block(*block),
            format!(
                "block {block} contradicts itself: {}",
                crate::checks::words::listed(&corrupt.contradictions)
            ),
        );
        for contradiction in &corrupt.contradictions {
            finding.seen(exhibit(case, corrupt.key.clone(), contradiction.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

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
