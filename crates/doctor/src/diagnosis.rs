//! Observations of a cluster, one after the other, and the report of what they confirm.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evidence::{Evidence, Need, Unseen};

use crate::finding::{FindingId, NotJudged};
use crate::{
    Case, Certainty, Check, Examination, Finding, FindingCode, Look, Next, Options, Report, Rule, checks,
    fold,
};

/// More findings of one code than this are counted and not listed: nobody reads them, and a text of a few bytes for each could
/// ask for any number.
pub(crate) const FINDINGS_MAX: usize = 20_000;

/// The checks, run over one observation after the other. [`Examination`] says when there are enough of them.
#[derive(Debug)]
pub struct Diagnosis<'c> {
    checks: &'c [&'c Check],
    options: Options,
    examination: Examination<FindingId>,
    /// Checks that could not run in the last observation.
    blind: BTreeSet<FindingCode>,
    /// What the last observation showed, until it is reported.
    observed: Option<Observed>,
}

/// What one observation shows, before anything is dropped or joined.
#[derive(Debug, Default)]
struct Observed {
    findings: Vec<Finding>,
    /// What would be findings if it were older.
    young: Vec<Finding>,
    unseen: Vec<Unseen>,
    blind: BTreeSet<FindingCode>,
}

impl<'c> Diagnosis<'c> {
    pub fn new(rule: Rule, options: Options) -> Diagnosis<'static> {
        Diagnosis::with_checks(checks::ALL, rule, options)
    }

    pub(crate) fn with_checks(checks: &'c [&'c Check], rule: Rule, options: Options) -> Diagnosis<'c> {
        let (examination, blind) = (Examination::new(rule), BTreeSet::new());
        Diagnosis { checks, options, examination, blind, observed: None }
    }

    /// Runs the checks over what was collected until `at`.
    pub fn observe(&mut self, at: Duration, evidence: &Evidence) {
        let observed = Observed::of(evidence, self.checks, &self.options, usize::MAX);
        let usual: BTreeMap<FindingCode, Certainty> =
            self.checks.iter().map(|check| (check.code, check.certainty)).collect();
        // What the observation before could not see, it does not contradict.
        let certainty = |finding: &Finding| match self.blind.contains(&finding.code) {
            true => Certainty::Certain,
            false => usual[&finding.code],
        };
        let found = observed.findings.iter().map(|finding| (finding.id(), certainty(finding)));
        let young = observed.young.iter().map(|finding| (finding.id(), Certainty::Young));
        // What is found is judged, also if something of the same identity is too young.
        self.examination.observe(at, young.chain(found));
        self.blind.clone_from(&observed.blind);
        // Another observation takes its place: its findings need not be kept until then.
        self.observed = (self.poll(at) == Next::Report).then_some(observed);
    }

    pub fn poll(&self, now: Duration) -> Next {
        self.examination.poll(now)
    }

    pub fn next_round(&mut self, at: Duration, rule: Rule) {
        self.examination.next_round(at, rule);
    }

    /// What is confirmed; and what is not, as not judged. Empty unless [`Diagnosis::poll`] says that it is time to report.
    pub fn report(&mut self) -> Report {
        let observed = self.observed.take().unwrap_or_default();
        observed.report(&self.options, |finding| self.examination.is_confirmed(&finding.id()))
    }
}

/// Runs these checks over evidence that is all there will be. If it has an earlier observation, that must show the same.
pub fn diagnose_with(evidence: &Evidence, checks: &[&Check], options: &Options) -> Report {
    let Some(earlier) = evidence.earlier.as_deref() else {
        return Observed::of(evidence, checks, options, FINDINGS_MAX).report(options, |_| true);
    };
    let mut diagnosis = Diagnosis::with_checks(checks, Rule::twice(Duration::ZERO), options.clone());
    diagnosis.observe(Duration::ZERO, earlier);
    diagnosis.observe(Duration::ZERO, evidence);
    diagnosis.report()
}

impl Observed {
    fn of(evidence: &Evidence, checks: &[&Check], options: &Options, most: usize) -> Observed {
        let case = Case::new(evidence, options);
        let strict = OnceCell::new();
        let mut observed = Observed { unseen: evidence.unseen.clone(), ..Observed::default() };
        let mut missing_for: BTreeMap<Need, BTreeSet<FindingCode>> = BTreeMap::new();
        for check in checks {
            if let Some(missing) = check.missing(evidence) {
                observed.blind.insert(check.code);
                for need in missing {
                    missing_for.entry(need).or_default().insert(check.code);
                }
                continue;
            }
            let mut look = Look::new(check).with_at_most(most);
            (check.look)(&case, &mut look);
            if case.take_passed_over() {
                let strict = strict.get_or_init(|| Case::strict(evidence, options));
                observed.young.extend(passed_over(check, strict, &look.findings));
            }
            look.note_skipped();
            observed.findings.append(&mut look.findings);
            observed.unseen.append(&mut look.unseen);
        }
        let not_collected = |(need, checks)| Unseen::NotCollected { need, checks };
        observed.unseen.extend(missing_for.into_iter().map(not_collected));
        observed
    }

    fn report(self, options: &Options, is_confirmed: impl Fn(&Finding) -> bool) -> Report {
        let (findings, churn): (Vec<Finding>, Vec<Finding>) =
            self.findings.into_iter().partition(|finding| is_confirmed(finding));
        let mut report = Report { unseen: self.unseen, ..Report::default() };
        report.findings = at_most(FINDINGS_MAX, findings, &mut report.unseen);
        let young = format!(
            "it is younger than {} s, is being created or deleted, or may have changed since the pods were listed",
            options.grace.as_secs()
        );
        report.not_judged.extend(not_judged(self.young, &young));
        report.not_judged.extend(not_judged(churn, "the previous observation did not find it"));
        report.sort();
        report.findings = fold::fold(report.findings);
        report.drop_explained();
        report.sort();
        report
    }
}

/// The first findings of each code, and how many there are besides. Those of one code stand together.
fn at_most(most: usize, mut findings: Vec<Finding>, unseen: &mut Vec<Unseen>) -> Vec<Finding> {
    let mut counts: BTreeMap<FindingCode, usize> = BTreeMap::new();
    findings.retain(|finding| {
        let count = counts.entry(finding.code).or_default();
        *count += 1;
        *count <= most
    });
    for (check, count) in counts.into_iter().filter(|(_, count)| *count > most) {
        unseen.push(Unseen::Findings { more: count - most, limit: most, check });
    }
    findings
}

/// What a check would find if nothing were too young, besides what it found.
fn passed_over(check: &Check, strict: &Case<'_>, found: &[Finding]) -> Vec<Finding> {
    let mut look = Look::new(check).with_at_most(FINDINGS_MAX);
    (check.look)(strict, &mut look);
    let found: BTreeSet<FindingId> = found.iter().map(Finding::id).collect();
    look.findings.retain(|finding| !found.contains(&finding.id()));
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
