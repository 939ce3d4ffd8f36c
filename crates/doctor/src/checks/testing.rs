//! For the tests of checks: what a check says of evidence.

use crate::{Check, Finding};
use evidence::Evidence;

/// What it finds, by subject.
pub(super) fn subjects(check: &Check, evidence: &Evidence) -> Vec<String> {
    check.alone(evidence).findings().iter().map(|finding| finding.subject.to_string()).collect()
}

/// The one thing that it finds.
pub(super) fn only(check: &Check, evidence: &Evidence) -> Finding {
    let look = check.alone(evidence);
    assert_eq!(look.findings().len(), 1, "{:#?}", look.findings());
    look.findings()[0].clone()
}

#[track_caller]
/// The commands that a finding offers.
pub(super) fn advised(finding: &Finding) -> Vec<String> {
    finding.commands.iter().map(ToString::to_string).collect()
}

pub(super) fn silent(check: &Check, evidence: &Evidence) {
    assert_eq!(check.alone(evidence).findings(), [], "{} is to be silent", check.code);
}
