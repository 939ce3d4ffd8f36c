//! One owner: an address is allocated in two blocks.

use ::ipam::check::Problem;
use model::Key;

use super::{exhibit, problems};
use crate::checks::words::listed;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Address is allocated in two blocks",
    explanation: "Two blocks overlap, and each has allocated the same address to a different owner. Neither \
                  block looks wrong on its own, but two pods can have the same address.",
    remedy: "run plumb repair ipam --apply, which releases the allocation whose sandbox is gone. If both \
             sandboxes run, recreate the pods of one of the two owners, then run it again to delete the \
             empty block",
    needs: &[&[Need::Ipam]],
    ..Check::error(FindingCode::AddressAllocatedTwice, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for problem in problems(case) {
        let Problem::AllocatedTwice { address, blocks } = problem else { continue };
        let exhibits = blocks
            .iter()
            .map(|block| exhibit(case, Key::Block(*block), format!("{address} is allocated in {block}")));
        look.found(*address, format!("{address} is allocated in {}", listed(blocks)))
            .because("each block has allocated it to a different owner")
            .seen_all(exhibits);
    }
}

#[cfg(test)]
pub(in crate::checks) mod tests {
    use ::ipam::Stored;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    /// A second, smaller block of the same node over the first addresses.
    pub(in crate::checks) fn overlap(evidence: &mut evidence::Evidence, has_allocations: bool) {
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        let mut inner = books.blocks.values().next().unwrap().value.clone();
        let owner = inner.owner().unwrap();
        inner = model::ipam::Block::new("10.0.0.0/28".parse().unwrap(), Some(&owner), 1);
        if has_allocations {
            let holder = ::ipam::Owner { handle: "other".into(), attributes: Default::default() };
            ::ipam::take(&mut inner, &holder, 1, &Default::default());
        }
        let affinity = model::ipam::Affinity::default();
        books.affinities.insert((owner, inner.cidr), Stored::new(affinity, "1"));
        books.blocks.insert(inner.cidr, Stored::new(inner, "1"));
    }

    #[test]
    fn fires_when_both_gave_it_out() {
        let mut evidence = small();
        overlap(&mut evidence, false);
        silent(&CHECK, &evidence);
        overlap(&mut evidence, true);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "10.0.0.0");
        assert_eq!(finding.evidence.len(), 2);
    }
}
