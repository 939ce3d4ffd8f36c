//! No orphans: a claim of a block, or its release, that did not come to its end.

use ::ipam::check::{Problem, Really};
use model::ipam::AffinityState;
use model::{AffinityOwner, Cidr, Key};

use super::{exhibit, owner_words, problems};
use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Claim or release of a block was never completed",
    explanation: "An affinity is still pending or pending deletion: a node started to claim or release a \
                  block but was interrupted. Calico never collects a pending affinity without a block, not \
                  even when its node is deleted.",
    remedy: "run plumb repair ipam --apply, which confirms the affinity if the block belongs to its node and \
             deletes it otherwise",
    needs: &[&[Need::Ipam]],
    ..Check::warning(FindingCode::AffinityUnfinished, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    for problem in problems(case) {
        let (block, owner) = match problem {
            Problem::AffinityUnfinished { block, owner, .. } => (block, owner),
            Problem::AffinityDiffers { really: Really::Absent, .. } if !ipam.whole.blocks => continue,
            Problem::AffinityDiffers { block, owner, .. } => (block, owner),
            _ => continue,
        };
        let Some(stored) = ipam.books.affinities.get(&(owner.clone(), *block)) else { continue };
        if stored.value.state != AffinityState::Confirmed {
            tell(case, look, owner, *block, stored.value.state.as_str());
        }
    }
}

fn tell(case: &Case<'_>, look: &mut Look<'_>, owner: &AffinityOwner, block: Cidr, state: &str) {
    let key = Key::Affinity { owner: owner.clone(), block };
    let summary = format!("the affinity of {} for block {block} is still {state}", owner_words(owner));
    look.found(Subject::Affinity { owner: owner.clone(), block }, summary).seen(exhibit(
        case,
        key,
        format!("state {state}"),
    ));
}

#[cfg(test)]
mod tests {
    use ::ipam::Stored;
    use model::ipam::Affinity;

    use super::*;
    use crate::checks::testing::{only, silent, subjects};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_claim_that_has_its_block() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        books.affinities.values_mut().next().unwrap().value.state = AffinityState::PendingDeletion;
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "the affinity of node worker-0000 for block 10.0.0.0/26 is still pendingDeletion"
        );
    }

    #[test]
    fn fires_for_a_claim_without_a_block_if_all_are_known() {
        let mut evidence = small();
        let owner = AffinityOwner::Host("worker-0001".to_owned());
        let ipam = evidence.ipam.as_mut().unwrap();
        let pending = Stored::new(Affinity::new(AffinityState::Pending), "1");
        ipam.books.affinities.insert((owner, "10.9.0.0/26".parse().unwrap()), pending);
        assert_eq!(subjects(&CHECK, &evidence), ["affinity of worker-0001 for 10.9.0.0/26"]);
        evidence.ipam.as_mut().unwrap().whole.blocks = false;
        silent(&CHECK, &evidence);
    }
}
