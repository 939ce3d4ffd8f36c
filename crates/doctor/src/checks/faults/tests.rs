//! Every fault, injected into a healthy cluster, is found as what it is and as nothing else; so are several at once.

use std::collections::BTreeSet;

use evidence::Evidence;
use evidence::sample::{Sample, through};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::diagnose;

fn found(evidence: &Evidence) -> BTreeSet<(FindingCode, String)> {
    let report = diagnose(evidence);
    let found = report.findings.iter().map(|finding| (finding.code, finding.subject.to_string()));
    found.collect()
}

#[test]
fn every_fault_is_found_and_nothing_else() {
    let mut wrong = Vec::new();
    for fault in all() {
        let mut evidence = healthy_for([&fault]);
        let subject = (fault.inject)(&mut evidence, 1);
        let expected = BTreeSet::from([(fault.code, subject)]);
        let found = found(&evidence);
        if found != expected {
            wrong.push(format!("injected {expected:?}\n   found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_cluster_with_tunnels_has_no_findings() {
    for mode in ["Always", "CrossSubnet"] {
        assert_eq!(found(&through(SAMPLE, "vxlanMode", mode)), BTreeSet::new(), "{mode}");
    }
}

#[test]
fn every_check_has_a_fault() {
    let injected: BTreeSet<FindingCode> = all().iter().map(|fault| fault.code).collect();
    let without: Vec<FindingCode> =
        crate::checks::ALL.iter().map(|check| check.code).filter(|code| !injected.contains(code)).collect();
    // The one never comes without an overlap, which explains it; the other needs books that are not whole, which
    // blinds others. Both have tests of their own.
    assert_eq!(without, [FindingCode::AddressAllocatedTwice, FindingCode::ReportedByCalicoctl]);
}

#[test]
fn what_was_broken_only_now_is_churn_where_it_may_be() {
    for fault in all() {
        let check = crate::checks::find(fault.code);
        let mut evidence = healthy_for([&fault]);
        let subject = (fault.inject)(&mut evidence, 1);
        evidence.earlier = Some(Box::new(healthy_for([&fault])));
        let is_told = found(&evidence).contains(&(fault.code, subject.clone()));
        assert_eq!(
            is_told,
            check.certainty == crate::Certainty::Certain,
            "{} of {subject} in one look of two",
            fault.code
        );
        let mut earlier = healthy_for([&fault]);
        (fault.inject)(&mut earlier, 1);
        evidence.earlier = Some(Box::new(earlier));
        assert!(found(&evidence).contains(&(fault.code, subject)), "{} in both looks", fault.code);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::count(64, 1000) as u32))]

    #[test]
    fn several_at_once_are_found_as_injected(faults in subsequence((0..all().len()).collect::<Vec<_>>(), 2..=5).prop_shuffle()) {
        let all = all();
        let mut evidence = healthy_for(faults.iter().map(|fault| &all[*fault]));
        let injected: BTreeSet<(FindingCode, String)> = faults
            .iter()
            .enumerate()
            .map(|(node, fault)| (all[*fault].code, (all[*fault].inject)(&mut evidence, node)))
            .collect();
        let report = diagnose(&evidence);
        let found: BTreeSet<_> = report.findings.iter().map(|finding| (finding.code, finding.subject.to_string())).collect();
        // A cause of the whole cluster also explains what another fault did to a node, and a node's what the cluster shows.
        let is_node = |subject: &crate::Subject| matches!(subject, crate::Subject::Node(_));
        let symptoms = report.findings.iter().flat_map(|finding| {
            finding.symptoms.iter().filter(move |symptom| !is_node(&finding.subject) || !is_node(&symptom.subject))
        });
        let explained: BTreeSet<_> = symptoms.map(|symptom| (symptom.code, symptom.subject.to_string())).collect();
        let missing: Vec<_> = injected.difference(&found).filter(|fault| !explained.contains(fault)).collect();
        prop_assert!(missing.is_empty(), "missing {missing:?}, found {found:?}");
        prop_assert!(found.is_subset(&injected), "found {found:?}, injected {injected:?}");
    }

    #[test]
    fn healthy_clusters_of_any_size_have_no_findings(nodes in 1usize..6, blocks_per_node in 1usize..4, pods_per_node in 0usize..70, has_kernels: bool) {
        let evidence = Sample { nodes, blocks_per_node, pods_per_node: pods_per_node.min(blocks_per_node * 64), has_kernels }.evidence();
        prop_assert_eq!(found(&evidence), BTreeSet::new());
    }
}
