//! The interface of a check: what it says about itself, what it needs, and what it writes its findings into.

use model::FindingCode;

use crate::{Case, Certainty, Finding, Severity, Subject};
use evidence::{Evidence, Need, PartialList, Unseen};

/// One kind of finding. A check is a file under `checks/` with one constant of this type, a function `look`, and
/// tests that it fires and that it stays silent.
#[derive(Debug)]
pub struct Check {
    pub code: FindingCode,
    /// How bad it usually is. A finding may differ.
    pub severity: Severity,
    /// What is found, in a few words: a heading.
    pub title: &'static str,
    /// What it means, for someone who meets the code for the first time: `plumb doctor explain CODE`.
    pub explanation: &'static str,
    /// What would mend it, in general. A finding may be more precise.
    pub remedy: &'static str,
    /// The check runs if everything in one of these sets was collected.
    pub needs: &'static [&'static [Need]],
    /// Whether what is being created or deleted looks like this fault for a moment.
    pub certainty: Certainty,
    pub look: Run,
}

type Run = fn(&Case<'_>, &mut Look<'_>);

/// Where a check writes what it sees.
#[derive(Debug)]
pub struct Look<'a> {
    check: &'a Check,
    pub(crate) findings: Vec<Finding>,
    pub(crate) unseen: Vec<Unseen>,
    /// How many findings are kept, and how many more there were.
    most: usize,
    skipped: usize,
    /// What is written into a finding that is not kept.
    scrap: Finding,
}

impl<'a> Look<'a> {
    pub fn new(check: &'a Check) -> Look<'a> {
        let (findings, unseen) = (Vec::new(), Vec::new());
        let scrap = finding(check, Subject::node(""), String::new());
        Look { check, findings, unseen, most: usize::MAX, skipped: 0, scrap }
    }

    /// Keeps no more findings than this, and counts the others.
    #[must_use]
    pub(crate) fn with_at_most(self, most: usize) -> Look<'a> {
        Look { most, ..self }
    }

    /// Reports how many findings were not kept.
    pub(crate) fn note_skipped(&mut self) {
        if self.skipped > 0 {
            let (more, limit, check) = (self.skipped, self.most, self.check.code);
            self.unseen.push(Unseen::Findings { more, limit, check });
        }
    }

    /// A new finding of this check. `summary` is one sentence without a full stop, and says what is so, not what
    /// might be.
    pub fn found(&mut self, subject: impl Into<Subject>, summary: impl Into<String>) -> &mut Finding {
        let finding = finding(self.check, subject.into(), summary.into());
        if self.findings.len() >= self.most {
            self.skipped += 1;
            self.scrap = finding;
            return &mut self.scrap;
        }
        self.findings.push(finding);
        self.findings.last_mut().expect("just added")
    }

    /// The check could not run without the whole of a list.
    pub fn could_not_run(&mut self, list: PartialList) {
        self.unseen.push(Unseen::Incomplete { list, check: self.check.code });
    }

    /// The check skipped a value that cannot be read.
    pub fn skipped(&mut self, record: impl std::fmt::Display, value: impl std::fmt::Display) {
        let (record, value) = (record.to_string(), value.to_string());
        self.unseen.push(Unseen::Value { record, value, check: self.check.code });
    }

    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    pub fn unseen(&self) -> &[Unseen] {
        &self.unseen
    }
}

fn finding(check: &Check, subject: Subject, summary: String) -> Finding {
    Finding {
        code: check.code,
        severity: check.severity,
        subject,
        summary,
        cause: Vec::new(),
        evidence: Vec::new(),
        remedy: check.remedy.to_owned(),
        commands: Vec::new(),
        symptoms: Vec::new(),
        explains: Vec::new(),
        identity: None,
    }
}

impl Check {
    /// A check whose findings are usually errors. It adds its words and what it needs.
    pub const fn error(code: FindingCode, look: Run) -> Check {
        Check::of(code, Severity::Error, look)
    }

    pub const fn warning(code: FindingCode, look: Run) -> Check {
        Check::of(code, Severity::Warning, look)
    }

    pub const fn info(code: FindingCode, look: Run) -> Check {
        Check::of(code, Severity::Info, look)
    }

    /// Two observations must agree, unless a check says that its findings are certain.
    const fn of(code: FindingCode, severity: Severity, look: Run) -> Check {
        let (title, explanation, remedy, needs) = ("", "", "", &[] as &[&[Need]]);
        Check { code, severity, title, explanation, remedy, needs, certainty: Certainty::MayBeChurn, look }
    }

    /// Whether enough was collected. If not, what is missing for the set that lacks least.
    pub fn missing(&self, evidence: &Evidence) -> Option<Vec<Need>> {
        let missing = |set: &&'static [Need]| -> Vec<Need> {
            set.iter().copied().filter(|need| !need.is_met(evidence)).collect()
        };
        let least = self.needs.iter().map(missing).min_by_key(Vec::len)?;
        (!least.is_empty()).then_some(least)
    }

    /// What this check alone finds: for its tests.
    pub fn alone<'a>(&'a self, evidence: &Evidence) -> Look<'a> {
        let mut look = Look::new(self);
        (self.look)(&Case::new(evidence, &crate::Options::default()), &mut look);
        look
    }
}
