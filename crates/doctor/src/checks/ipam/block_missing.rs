//! Books agree: a block is gone, and its addresses are in use.

use std::collections::BTreeMap;

use model::{Cidr, HandleId, Key};

use super::{BOOKS_AND_USERS, exhibit, user_exhibits};
use crate::checks::words::{ALIKE_MAX, listed};
use crate::{Case, Check, FindingCode, Look, Subject};
use evidence::IpamEvidence;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Block is missing but its addresses are in use",
    explanation: "Addresses of a pool are in use, but the block that should hold them is missing. It was \
                  deleted by hand, or was missing when the store was restored from a backup or rebuilt. \
                  Other nodes have no route to it. The next node to claim it will allocate all of its \
                  addresses again, including those in use.",
    remedy: "run plumb repair ipam --apply to rebuild the block from the addresses in use, before a node \
             claims it",
    needs: BOOKS_AND_USERS,
    ..Check::error(FindingCode::BlockMissing, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let (Some(ipam), Some(view)) = (case.evidence.ipam.as_ref(), case.books_view()) else { return };
    if view.missing_blocks.is_empty() {
        return;
    }
    let counting = handles_by_block(ipam);
    for (cidr, used) in &view.missing_blocks {
        if used.iter().all(|address| case.is_user_in_flux(*address)) {
            continue;
        }
        let count = match used.len() {
            1 => "one of its addresses is".to_owned(),
            several => format!("{several} of its addresses are"),
        };
        let finding =
            look.found(*cidr, format!("block {cidr} is missing, but {count} in use: {}", listed(used)));
        finding.known_by("missing");
        for address in used.iter().take(ALIKE_MAX) {
            finding.seen_all(user_exhibits(case, *address));
        }
        for address in used {
            finding.explains(FindingCode::AddressUsedButFree, *address);
        }
        for (owner, _) in ipam.books.affinities.keys().filter(|(_, block)| block == cidr) {
            let key = Key::Affinity { owner: owner.clone(), block: *cidr };
            finding.seen(exhibit(case, key, format!("an affinity of {} for it exists", owner.name())));
            let subject = Subject::Affinity { owner: owner.clone(), block: *cidr };
            finding.explains(FindingCode::AffinityContradicted, subject.clone());
            finding.explains(FindingCode::AffinityUnfinished, subject);
        }
        for handle in counting.get(cidr).into_iter().flatten() {
            let subject = Subject::Handle((*handle).to_owned());
            finding
                .explains(FindingCode::HandleUnused, subject.clone())
                .explains(FindingCode::HandleCountWrong, subject);
        }
    }
}

fn handles_by_block(ipam: &IpamEvidence) -> BTreeMap<Cidr, Vec<&HandleId>> {
    let mut by_block: BTreeMap<Cidr, Vec<&HandleId>> = BTreeMap::new();
    for (handle, stored) in &ipam.books.handles {
        for block in stored.value.block.keys().filter_map(|block| Cidr::parse_masked(block).ok()) {
            by_block.entry(block).or_default().push(handle);
        }
    }
    by_block
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::ipam::Block;

    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::diagnose;
    use evidence::Evidence;
    use evidence::sample::{block_cidr, small};

    fn lost() -> Evidence {
        let mut evidence = small();
        evidence.ipam.as_mut().unwrap().books.blocks.remove(&block_cidr(1)).unwrap();
        evidence
    }

    #[test]
    fn fires_for_a_block_that_is_gone_and_for_nothing_besides() {
        silent(&CHECK, &small());
        let evidence = lost();
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "block 10.0.0.64/26 is missing, but 4 of its addresses are in use: 10.0.0.64, 10.0.0.65, \
             10.0.0.66, 10.0.0.67"
        );
        let report = diagnose(&evidence);
        assert_eq!(report.findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [CHECK.code]);
        let symptoms: BTreeSet<FindingCode> =
            report.findings[0].symptoms.iter().map(|symptom| symptom.code).collect();
        let expected =
            [FindingCode::AddressUsedButFree, FindingCode::AffinityContradicted, FindingCode::HandleUnused];
        assert_eq!(symptoms, BTreeSet::from(expected));
    }

    #[test]
    fn all_of_the_books_may_be_gone() {
        let mut evidence = small();
        evidence.ipam.as_mut().unwrap().books = Default::default();
        let report = diagnose(&evidence);
        let codes: BTreeSet<FindingCode> = report.findings.iter().map(|finding| finding.code).collect();
        assert_eq!((codes, report.findings.len()), (BTreeSet::from([CHECK.code]), 3));
    }

    /// One address of nowhere is a wrong status, not a lost block.
    #[test]
    fn stays_silent_where_only_kubernetes_shows_it() {
        let mut evidence = small();
        evidence.pods.as_mut().unwrap()[0].seen.addresses = vec!["10.7.0.9".parse().unwrap()];
        silent(&CHECK, &evidence);
        let pod = evidence.pods.as_ref().unwrap()[0].seen.name.clone();
        evidence.endpoints.as_mut().unwrap().retain(|endpoint| !endpoint.seen.may_be_of(&pod));
        only(&CHECK, &evidence);
    }

    #[test]
    fn stays_silent_where_the_record_is_what_is_wrong() {
        let mut evidence = small();
        evidence.endpoints.as_mut().unwrap()[0].seen.addresses = vec!["10.7.0.9".parse().unwrap()];
        silent(&CHECK, &evidence);
        // Nobody looked inside.
        evidence.node_mut("worker-0000").pod_views = None;
        only(&CHECK, &evidence);
    }

    #[test]
    fn stays_silent_where_not_all_blocks_are_known_or_another_is_in_the_way() {
        let mut evidence = lost();
        evidence.ipam.as_mut().unwrap().whole.blocks = false;
        silent(&CHECK, &evidence);
        let mut evidence = lost();
        let inner: Cidr = "10.0.0.96/28".parse().unwrap();
        let block = ::ipam::Stored::new(Block::new(inner, None, 1), "1");
        evidence.ipam.as_mut().unwrap().books.blocks.insert(inner, block);
        silent(&CHECK, &evidence);
        let mut evidence = lost();
        evidence.ipam.as_mut().unwrap().add(Key::Block(block_cidr(1)), b"[", evidence::Origin::file("dump"));
        silent(&CHECK, &evidence);
    }
}
