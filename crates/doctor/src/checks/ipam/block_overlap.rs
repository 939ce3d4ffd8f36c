//! Books agree: no two blocks overlap.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, problems};
use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Blocks overlap",
    explanation: "One block lies inside another. Both can allocate the same address, and two nodes may \
                  announce routes for the same addresses. This happens when a pool's block size is changed, \
                  or when a pool is deleted and recreated while its blocks remain.",
    remedy: "run plumb repair ipam --apply, which deletes the block that holds no address. If both hold \
             addresses, disable the pool, recreate the pods of the smaller block, then run it again",
    needs: &[&[Need::Ipam]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::BlockOverlap, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for problem in problems(case) {
        let Problem::BlocksOverlap(outer, inner) = problem else { continue };
        let finding = look.found(*inner, format!("block {inner} lies inside block {outer}"));
        for block in [outer, inner] {
            finding.seen(exhibit(case, Key::Block(*block), format!("block {block}")));
        }
        for other in problems(case) {
            if let Problem::AllocatedTwice { address, blocks } = other
                && blocks.contains(inner)
            {
                finding.explains(FindingCode::AddressAllocatedTwice, *address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::ipam::address_allocated_twice::tests::overlap;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_block_inside_another() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        overlap(&mut evidence, false);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "block 10.0.0.0/28 lies inside block 10.0.0.0/26");
    }
}
