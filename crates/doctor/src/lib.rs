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
pub mod evidence;
mod finding;
mod fold;
pub mod mended;
pub mod repair;
pub mod sample;
mod subject;
pub mod text;
pub mod timeline;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

pub use case::{Allocation, BooksView, Case, GRACE, Host, Index, NodeView, Options, Recorded, Tried};
pub use check::{Check, Look, Need, Settles};
pub use evidence::{Evidence, Origin, Sighted};
pub use finding::{Exhibit, Finding, NotJudged, Report, Severity, Symptom};
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

/// More findings of one code than this are counted and not listed: nobody reads them, and a text of a few bytes for each could
/// ask for any number.
const FINDINGS_MAX: usize = 20_000;

/// Runs these checks.
pub fn diagnose_with(evidence: &Evidence, checks: &[&Check], options: &Options) -> Report {
    let case = Case::new(evidence, options);
    let earlier = evidence.earlier.as_deref().map(|earlier| Case::new(earlier, options));
    let mut report = Report { unseen: evidence.unread.clone(), ..Report::default() };
    let mut blind: BTreeMap<Need, BTreeSet<&str>> = BTreeMap::new();
    let strict = OnceCell::new();
    for check in checks {
        if let Some(missing) = check.missing(evidence) {
            for need in missing {
                blind.entry(need).or_default().insert(check.code);
            }
            continue;
        }
        // What is compared with an earlier look is compared as a whole.
        let most = if earlier.is_some() { usize::MAX } else { FINDINGS_MAX };
        let mut look = Look::new(check).with_at_most(most);
        (check.look)(&case, &mut look);
        if case.take_passed_over() {
            let strict = strict.get_or_init(|| Case::strict(evidence, options));
            let why = format!(
                "it is younger than {} s, is being created or deleted, or may have changed since the list of pods was made",
                options.grace.as_secs()
            );
            report.not_judged.extend(not_judged(passed_over(check, strict, &look.findings), &why));
        }
        if let Some(earlier) = &earlier {
            let churn = drop_churn(check, earlier, &mut look.findings);
            report.not_judged.extend(not_judged(churn, "it was not so at the observation before"));
        }
        look.cut(FINDINGS_MAX);
        report.findings.append(&mut look.findings);
        report.unseen.append(&mut look.unseen);
    }
    report.unseen.extend(blind.into_iter().map(|(need, codes)| not_collected(need, &codes)));
    report.sort();
    report.findings = fold::fold(report.findings);
    report.drop_explained();
    report.sort();
    report
}

/// What a check would find if nothing were too young, besides what it found.
fn passed_over(check: &Check, strict: &Case<'_>, found: &[Finding]) -> Vec<Finding> {
    let mut look = Look::new(check).with_at_most(FINDINGS_MAX);
    (check.look)(strict, &mut look);
    let known: BTreeSet<_> = found.iter().map(Finding::identity).collect();
    look.findings.retain(|finding| !known.contains(&finding.identity()));
    look.findings
}

fn not_judged(findings: Vec<Finding>, why: &str) -> impl Iterator<Item = NotJudged> {
    let why = why.to_owned();
    findings.into_iter().map(move |Finding { code, subject, summary, .. }| NotJudged {
        code,
        subject,
        summary,
        why: why.clone(),
    })
}

/// Keeps what was already so at the earlier look, as far as that could see it. The rest comes back.
fn drop_churn(check: &Check, earlier: &Case<'_>, findings: &mut Vec<Finding>) -> Vec<Finding> {
    if check.settles == Settles::AtOnce || findings.is_empty() || check.missing(earlier.evidence).is_some() {
        return Vec::new();
    }
    let mut look = Look::new(check);
    (check.look)(earlier, &mut look);
    let before: BTreeSet<_> = look.findings.iter().map(Finding::identity).collect();
    let (kept, churn) =
        std::mem::take(findings).into_iter().partition(|finding| before.contains(&finding.identity()));
    *findings = kept;
    churn
}

fn not_collected(need: Need, codes: &BTreeSet<&str>) -> String {
    let codes: Vec<&str> = codes.iter().copied().collect();
    format!("{} {NOT_COLLECTED} {} could not be checked", need.words(), codes.join(", "))
}

const NOT_COLLECTED: &str = "were not collected, so";

/// Whether a line of [`Report::unseen`] tells that nobody collected something.
pub(crate) fn is_not_collected(line: &str) -> bool {
    line.contains(NOT_COLLECTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_evidence_is_not_a_clean_bill() {
        let report = diagnose(&Evidence::default());
        assert!(report.findings.is_empty());
        let about = |code: &str| report.unseen.iter().any(|line| line.contains(code));
        for check in checks::ALL.iter().filter(|check| !check.needs.is_empty()) {
            assert!(about(check.code), "{}", check.code);
        }
    }

    #[test]
    fn what_could_not_be_read_is_told_first() {
        let evidence =
            Evidence { unread: vec!["z.txt: nothing in it is known here".to_owned()], ..Evidence::default() };
        assert_eq!(diagnose(&evidence).unseen[0], evidence.unread[0]);
    }

    #[test]
    fn evidence_without_faults_is_a_clean_bill() {
        let mut evidence = Evidence { endpoints: Some(Vec::new()), ..Evidence::default() };
        evidence.records.looked_for(model::Kind::IpPool);
        let report =
            diagnose_with(&evidence, &[checks::find("address-shared").unwrap()], &Options::default());
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
        let check = checks::find("pod-without-endpoint").unwrap();
        let report = diagnose_with(&evidence, &[check], &Options::default());
        assert_eq!((report.findings.len(), report.not_judged.len()), (0, 1), "{report:?}");
        assert_eq!(report.not_judged[0].subject, Subject::Pod(pod));
        assert_eq!(report.not_judged[0].code, "pod-without-endpoint");
        let old = Options { grace: jiff::SignedDuration::from_secs(5) };
        let report = diagnose_with(&evidence, &[check], &old);
        assert_eq!((report.findings.len(), report.not_judged.len()), (1, 0), "{report:?}");
        assert_eq!(diagnose(&sample::small()).not_judged, []);
    }

    /// Every node that a look knows is a fault; nodes called `churn…` come and go.
    const NODES: Check = Check {
        code: "node-there",
        severity: Severity::Warning,
        title: "A node",
        explanation: "",
        remedy: "none",
        needs: &[&[Need::KubeNodes], &[Need::Pods, Need::Events]],
        settles: Settles::InTwoLooks,
        look: |case, look| {
            for node in case.kube_nodes.iter().flatten() {
                look.found(Subject::node(&node.seen.name), "it is there");
            }
        },
    };

    fn nodes(names: &[&str]) -> Evidence {
        let node = |name: &&str| {
            let node = evidence::KubeNode { name: (*name).to_owned(), ..Default::default() };
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
        let sure = Check { settles: Settles::AtOnce, ..NODES };
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
            let told =
                "3 more findings of node-there were left out: no more than 20000 of one code are listed";
            assert_eq!(report.unseen, [told]);
            evidence.earlier = Some(Box::new(nodes(&names)));
        }
    }

    #[test]
    fn what_is_missing_is_told_for_the_nearest_set() {
        let evidence = Evidence { pods: Some(Vec::new()), ..Evidence::default() };
        let report = diagnose_with(&evidence, &[&NODES], &Options::default());
        assert_eq!(
            report.unseen,
            ["Kubernetes nodes were not collected, so node-there could not be checked"]
        );
    }
}
