//! Findings of one sort together, the most important sort first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use doctor::{Finding, FindingCode, Report, Severity, checks};

/// Findings with one code and one severity, in the report's order.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    pub(crate) severity: Severity,
    pub(crate) code: FindingCode,
    /// What is found, in a few words.
    pub(crate) title: &'a str,
    pub(crate) findings: Vec<&'a Finding>,
}

/// How many findings there are of each severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) error: usize,
    pub(crate) warning: usize,
    pub(crate) info: usize,
}

/// Worst first; of the equally bad, those that explain most, then those of which there are most.
pub(crate) fn groups(report: &Report) -> Vec<Group<'_>> {
    let mut by_sort: BTreeMap<(Reverse<Severity>, FindingCode), Vec<&Finding>> = BTreeMap::new();
    for finding in &report.findings {
        by_sort.entry((Reverse(finding.severity), finding.code)).or_default().push(finding);
    }
    let mut groups: Vec<Group<'_>> = by_sort
        .into_iter()
        .map(|((Reverse(severity), code), findings)| Group {
            severity,
            code,
            title: checks::find(code).title,
            findings,
        })
        .collect();
    groups.sort_by_key(|group| {
        (Reverse(group.severity), Reverse(group.explained()), Reverse(group.findings.len()))
    });
    groups
}

impl<'a> Group<'a> {
    /// How many other findings these explain.
    fn explained(&self) -> usize {
        self.findings.iter().map(|finding| finding.symptoms.len()).sum()
    }

    /// The remedy, if it is the same for all of them.
    pub(crate) fn common_remedy(&self) -> Option<&'a str> {
        let (first, rest) = self.findings.split_first()?;
        rest.iter().all(|finding| finding.remedy == first.remedy).then_some(&first.remedy)
    }
}

impl Counts {
    pub(crate) fn of(report: &Report) -> Counts {
        let mut counts = Counts::default();
        for finding in &report.findings {
            match finding.severity {
                Severity::Error => counts.error += 1,
                Severity::Warning => counts.warning += 1,
                Severity::Info => counts.info += 1,
            }
        }
        counts
    }

    /// `2 errors, 1 warning`; nothing if there are no findings.
    pub(crate) fn words(self) -> String {
        let all = [(self.error, "error"), (self.warning, "warning"), (self.info, "note")];
        let some = all.into_iter().filter(|(number, _)| *number > 0);
        some.map(|(number, word)| crate::count::count(number, word)).collect::<Vec<_>>().join(", ")
    }
}

/// What findings explain, by code: `route-missing (2)`.
pub(crate) fn symptom_codes(finding: &Finding) -> String {
    let mut by_code: BTreeMap<FindingCode, usize> = BTreeMap::new();
    for symptom in &finding.symptoms {
        *by_code.entry(symptom.code).or_default() += 1;
    }
    let one = |(code, number): (FindingCode, usize)| {
        if number == 1 { code.to_string() } else { format!("{code} ({number})") }
    };
    by_code.into_iter().map(one).collect::<Vec<_>>().join(", ")
}
