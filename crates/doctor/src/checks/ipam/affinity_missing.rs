//! Books agree: a block belongs to a node that has no affinity for it.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, owner_words, problems};
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "affinity-missing",
    severity: Severity::Warning,
    title: "A block whose owner does not know of it",
    explanation: "A block says which node it belongs to, and there is no affinity record that says the \
                  same. The node finds its blocks by affinities: it will take no more addresses from this \
                  one, and nobody gives it back when the node goes.",
    remedy: "write the affinity anew (plumb repair ipam)",
    needs: &[&[Need::Ipam]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.evidence.ipam.as_ref().is_some_and(|ipam| ipam.whole.affinities) {
        return;
    }
    for problem in problems(case) {
        let Problem::AffinityMissing { block, owner } = problem else { continue };
        let words = format!("block {block} belongs to {}", owner_words(owner));
        look.found(Subject::Block(*block), format!("{words}, which has no affinity for it")).seen(exhibit(
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
    use crate::sample::small;

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
