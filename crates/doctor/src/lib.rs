//! Evidence in, findings out: what is wrong with a cluster, why, and what would mend it.
//!
//! A decision crate: no clock, no randomness, no files, no sockets. Collectors elsewhere fill [`Evidence`];
//! [`diagnose`] runs every check over it.
//!
//! ```text
//!  live store ─┐                          ┌─▶ check ─▶ findings ─┐  earlier look     causes      Report
//!  this node  ─┼─▶ Evidence ─▶ Case ──────┼─▶ check ─▶ findings ─┼─▶ the same? ─▶ swallow ─▶ findings
//!  texts      ─┘  (who saw    (indexes,   └─▶ check ─▶ findings ─┘  else churn    symptoms   unseen
//!                  what where) made once)
//! ```
//!
//! Partial evidence is normal. A check finds what the evidence shows and claims no more; what it could not look
//! at goes into [`Report::unseen`]. Lists that may lack something say so ([`evidence::Partial`],
//! [`evidence::kernel::PartialKernel`], [`evidence::books::Whole`]): nothing is concluded from what is missing in them.
//!
//! # A check
//!
//! is one file under `checks/` and one row in [`checks::ALL`]: a constant of type [`Check`] that says what it is about and what
//! it needs, a function `look` and tests that it fires and that it stays silent.
//!
//! * It gets a [`Case`]: the evidence with indexes. It writes into a [`Look`]: `look.found(subject, summary)` starts a finding
//!   with the check's own severity and remedy, to which `.seen(exhibit)`, `.because(step)`, `.remedy(…)` and `.severity(…)` add.
//! * It runs only if one of the sets in `needs` was collected as a whole; otherwise the report says what was missing.
//! * **Churn is not drift.** `settles: InTwoLooks` keeps a finding only if the very same one is found in the earlier look, too,
//!   where there is one. What has an age is skipped while it is young: [`Case::is_in_flux`], [`Case::is_young`].
//! * **Causes swallow symptoms.** `.explains(code, subject)` says which other findings follow from this one. If they are found as
//!   well they become its [`Finding::symptoms`] and links of its cause chain, and are not told again. Subjects are typed
//!   ([`Subject`]) so that two checks that have never heard of each other's wording agree on them.
//! * What is legitimate stays silent: completed pods ([`evidence::Pod::is_finished`]), pods on the host network
//!   ([`Case::is_on_host_network`]), borrowed addresses, tunnel addresses, reservations, devices and routes of strangers.

mod case;
mod check;
pub mod checks;
mod diagnosis;
mod examination;
mod finding;
mod fold;
pub mod mended;
pub mod probe;
mod subject;
pub mod timeline;

pub use case::{
    Allocation, BooksView, Case, EndKind, GRACE, Host, Index, NodeView, Options, Recorded, Tried,
};
pub use check::{Check, Look};
pub use diagnosis::{Diagnosis, diagnose_with};
use evidence::Evidence;
pub use evidence::Need;
pub use examination::{Certainty, Examination, Next, Rule};
pub use finding::{Finding, FindingId, NotJudged, Report, Severity, Symptom};
pub use model::FindingCode;
pub use subject::Subject;

/// Runs every check. The same evidence always gives the same report, in the same order.
pub fn diagnose(evidence: &Evidence) -> Report {
    diagnose_with(evidence, checks::ALL, &Options::default())
}

/// What logs alone tell: the checks that need nothing else.
pub fn diagnose_logs(evidence: &Evidence) -> Report {
    let needs_only_logs = |check: &&&Check| check.needs.contains(&[Need::Log].as_slice());
    let of_logs: Vec<&Check> = checks::ALL.iter().filter(needs_only_logs).copied().collect();
    diagnose_with(evidence, &of_logs, &Options::default())
}

#[cfg(test)]
mod tests {
    use evidence::{Origin, Sighted, Unseen, sample};

    use super::diagnosis::FINDINGS_MAX;
    use super::*;

    #[test]
    fn no_evidence_is_not_a_clean_bill() {
        let report = diagnose(&Evidence::default());
        assert!(report.findings.is_empty());
        let about =
            |code: FindingCode| report.unseen.iter().any(|unseen| unseen.to_string().contains(code.as_str()));
        for check in checks::ALL.iter().filter(|check| !check.needs.is_empty()) {
            assert!(about(check.code), "{}", check.code);
        }
    }

    #[test]
    fn what_could_not_be_read_is_told_first() {
        let unseen = vec![Unseen::file("z.txt", evidence::FileGap::UnknownFormat)];
        let evidence = Evidence { unseen, ..Evidence::default() };
        assert_eq!(diagnose(&evidence).unseen[0], evidence.unseen[0]);
    }

    #[test]
    fn evidence_without_faults_is_a_clean_bill() {
        let mut evidence = Evidence { endpoints: Some(Vec::new()), ..Evidence::default() };
        evidence.records.looked_for(model::Kind::IpPool);
        let report =
            diagnose_with(&evidence, &[checks::find(FindingCode::AddressShared)], &Options::default());
        assert_eq!(report, Report::default());
    }

    /// A pod that is too young to be judged is named with what seems wrong; when it is old enough, that is a finding.
    #[test]
    fn what_is_too_young_is_named_and_counted() {
        let mut evidence = sample::small();
        evidence.endpoints.as_mut().unwrap().remove(0);
        let born = evidence.taken_at.unwrap() - jiff::SignedDuration::from_secs(10);
        evidence.pods.as_mut().unwrap()[0].seen.created_at = Some(born);
        let pod = evidence.pods.as_ref().unwrap()[0].seen.name.clone();
        let check = checks::find(FindingCode::PodWithoutEndpoint);
        let report = diagnose_with(&evidence, &[check], &Options::default());
        assert_eq!((report.findings.len(), report.not_judged.len()), (0, 1), "{report:?}");
        assert_eq!(report.not_judged[0].subject, Subject::Pod(pod));
        assert_eq!(report.not_judged[0].code, FindingCode::PodWithoutEndpoint);
        let old = Options { grace: jiff::SignedDuration::from_secs(5) };
        let report = diagnose_with(&evidence, &[check], &old);
        assert_eq!((report.findings.len(), report.not_judged.len()), (1, 0), "{report:?}");
        assert_eq!(diagnose(&sample::small()).not_judged, []);
    }

    /// Every node that a look knows is a fault; nodes called `churn…` come and go.
    const NODES: Check = Check {
        code: FindingCode::NodeNotReady,
        severity: Severity::Warning,
        title: "A node",
        explanation: "",
        remedy: "none",
        needs: &[&[Need::KubeNodes], &[Need::Pods, Need::Events]],
        certainty: Certainty::MayBeChurn,
        look: |case, look| {
            for node in case.kube_nodes.iter().flatten() {
                look.found(Subject::node(&node.seen.name), "it is there");
            }
        },
    };

    fn nodes(names: &[&str]) -> Evidence {
        let node = |name: &&str| {
            let node = evidence::KubeNode { name: (*name).into(), ..Default::default() };
            Sighted::new(node, Origin::file("nodes"))
        };
        Evidence { kube_nodes: Some(names.iter().map(node).collect()), ..Evidence::default() }
    }

    #[test]
    fn what_was_not_so_before_is_churn() {
        let mut evidence = nodes(&["a", "new"]);
        let subjects = |evidence: &Evidence, check: &Check| -> Vec<String> {
            let report = diagnose_with(evidence, &[check], &Options::default());
            report.findings.iter().map(|finding| finding.subject.to_string()).collect()
        };
        assert_eq!(subjects(&evidence, &NODES), ["node a", "node new"]);
        evidence.earlier = Some(Box::new(nodes(&["A", "old"])));
        assert_eq!(subjects(&evidence, &NODES), ["node a"]);
        let new = diagnose_with(&evidence, &[&NODES], &Options::default()).not_judged;
        assert_eq!(new.iter().map(|new| new.subject.to_string()).collect::<Vec<_>>(), ["node new"]);
        let sure = Check { certainty: Certainty::Certain, ..NODES };
        assert_eq!(subjects(&evidence, &sure).len(), 2);
        evidence.earlier = Some(Box::default());
        assert_eq!(subjects(&evidence, &NODES).len(), 2, "an earlier look that saw nothing says nothing");
    }

    #[test]
    fn findings_beyond_any_number_are_counted() {
        let names: Vec<String> = (0..FINDINGS_MAX + 3).map(|number| format!("n{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut evidence = nodes(&names);
        for _ in 0..2 {
            let report = diagnose_with(&evidence, &[&NODES], &Options::default());
            assert_eq!(report.findings.len(), FINDINGS_MAX);
            let (limit, check) = (FINDINGS_MAX, NODES.code);
            assert_eq!(report.unseen, [Unseen::Findings { more: 3, limit, check }]);
            evidence.earlier = Some(Box::new(nodes(&names)));
        }
    }

    #[test]
    fn what_is_missing_is_told_for_the_nearest_set() {
        let evidence = Evidence { pods: Some(Vec::new()), ..Evidence::default() };
        let report = diagnose_with(&evidence, &[&NODES], &Options::default());
        let words: Vec<String> = report.unseen.iter().map(Unseen::to_string).collect();
        assert_eq!(words, ["Kubernetes nodes were not collected, so node-not-ready could not run"]);
    }
}
