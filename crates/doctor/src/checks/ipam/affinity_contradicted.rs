//! Books agree: an affinity for a block that is another's, nobody's, or not there.

use ::ipam::check::{Problem, Really};
use model::Key;
use model::ipam::AffinityState;

use super::{exhibit, owner_words, problems};
use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Affinity disagrees with its block",
    explanation: "A confirmed affinity says that a block belongs to a node, but the block has another owner \
                  or none, or does not exist. The block is authoritative. Until the affinity is deleted, the \
                  node may announce a route for addresses that are not its own.",
    remedy: "run plumb repair ipam --apply to delete the affinity",
    needs: &[&[Need::Ipam]],
    ..Check::warning(FindingCode::AffinityContradicted, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    for problem in problems(case) {
        let Problem::AffinityDiffers { block, owner, really } = problem else { continue };
        let state = ipam.books.affinities.get(&(owner.clone(), *block)).map(|stored| &stored.value.state);
        // A claim or a release that did not come to its end is another story.
        let is_unfinished = state.is_some_and(|state| *state != AffinityState::Confirmed);
        if is_unfinished || (*really == Really::Absent && !ipam.whole.blocks) {
            continue;
        }
        let truth = match really {
            Really::Absent => "does not exist".to_owned(),
            Really::Unowned => "has no owner".to_owned(),
            Really::OwnedBy(other) => format!("belongs to {}", owner_words(other)),
        };
        let key = Key::Affinity { owner: owner.clone(), block: *block };
        let summary = format!("{} has an affinity for block {block}, which {truth}", owner_words(owner));
        let finding = look.found(Subject::Affinity { owner: owner.clone(), block: *block }, summary);
        finding.seen(exhibit(case, key, "confirmed"));
        if *really != Really::Absent {
            finding.seen(exhibit(case, Key::Block(*block), format!("block {block} {truth}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use ::ipam::Stored;
    use model::AffinityOwner;
    use model::ipam::Affinity;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_block_of_another() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let owner = AffinityOwner::Host("worker-0002".to_owned());
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        let key = (owner, "10.0.0.0/26".parse().unwrap());
        books.affinities.insert(key.clone(), Stored::new(Affinity::default(), "1"));
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "node worker-0002 has an affinity for block 10.0.0.0/26, which belongs to node worker-0000"
        );
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        books.affinities.get_mut(&key).unwrap().value.state = AffinityState::Pending;
        silent(&CHECK, &evidence);
    }
}
