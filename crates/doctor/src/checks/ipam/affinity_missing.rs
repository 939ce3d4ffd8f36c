//! Books agree: a block belongs to a node that has no affinity for it.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, owner_words, problems};
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Block has no affinity for its owner",
    explanation: "A block names the node that owns it, but the matching affinity record is missing. A node \
                  finds its blocks through affinities, so it allocates no more addresses from this block. \
                  When the node is removed, the block is not released.",
    remedy: "run plumb repair ipam --apply to write the affinity",
    needs: &[&[Need::Ipam]],
    ..Check::warning(FindingCode::AffinityMissing, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.evidence.ipam.as_ref().is_some_and(|ipam| ipam.whole.affinities) {
        return;
    }
    for problem in problems(case) {
        let Problem::AffinityMissing { block, owner } = problem else { continue };
        let words = format!("block {block} belongs to {}", owner_words(owner));
        look.found(*block, format!("{words}, but the matching affinity is missing")).seen(exhibit(
            case,
            Key::Block(*block),
            words,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_if_all_affinities_are_known() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let ipam = evidence.ipam.as_mut().unwrap();
        ipam.books.affinities.pop_first();
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "block 10.0.0.0/26");
        evidence.ipam.as_mut().unwrap().whole.affinities = false;
        silent(&CHECK, &evidence);
    }
}
