//! Books agree: no two blocks overlap.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, problems};
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "block-overlap",
    severity: Severity::Error,
    title: "Blocks share addresses",
    explanation: "One block lies inside another. Both can give out the same address without noticing, and \
                  two nodes may announce routes for the same addresses. It happens when a pool's block size \
                  was changed, or a pool was deleted and made again while its blocks stayed.",
    remedy: "empty the smaller block by recreating its pods, then release it; until then keep nodes from \
             taking addresses there",
    needs: &[&[Need::Ipam]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for problem in problems(case) {
        let Problem::BlocksOverlap(outer, inner) = problem else { continue };
        let finding = look.found(Subject::Block(*inner), format!("block {inner} lies inside block {outer}"));
        for block in [outer, inner] {
            finding.seen(exhibit(case, Key::Block(*block), format!("block {block}")));
        }
        for other in problems(case) {
            if let Problem::AllocatedTwice { address, blocks } = other
                && blocks.contains(inner)
            {
                finding.explains("address-allocated-twice", *address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::ipam::address_allocated_twice::tests::overlap;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_a_block_inside_another() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        overlap(&mut evidence, false);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "block 10.0.0.0/28 lies inside block 10.0.0.0/26");
    }
}
