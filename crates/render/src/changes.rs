//! What is different between two looks.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use doctor::{Finding, FindingCode, Report};
use jiff::Timestamp;
use serde_json::json;

use crate::Style;
use crate::group::Counts;
use crate::json::escaped;
use crate::paint::Paint;
use model::text::harmless;

/// Findings are the same if code and subject are.
#[derive(Debug)]
pub struct Changes<'a> {
    pub new: Vec<&'a Finding>,
    pub gone: Vec<&'a Finding>,
    counts: Counts,
}

/// Changes that are told one by one.
const TOLD_MAX: usize = 20;

impl<'a> Changes<'a> {
    pub fn between(before: &'a Report, after: &'a Report) -> Changes<'a> {
        let known = |report: &'a Report| -> BTreeSet<_> { report.findings.iter().map(identity).collect() };
        let (then, now) = (known(before), known(after));
        let missing = |report: &'a Report, other: &BTreeSet<_>| {
            report.findings.iter().filter(|finding| !other.contains(&identity(finding))).collect()
        };
        Changes { new: missing(after, &then), gone: missing(before, &now), counts: Counts::of(after) }
    }

    /// A line for each change; one line if there is none.
    pub fn text(&self, at: Timestamp, style: &Style) -> String {
        let at = at.strftime("%H:%M:%S");
        let words = self.counts.words();
        let state = if words.is_empty() { "nothing wrong" } else { &words };
        if self.new.is_empty() && self.gone.is_empty() {
            return format!("{at} no change: {state}\n");
        }
        let mut text = format!("{at} {state}\n");
        for (sign, findings) in [("new ", &self.new), ("gone", &self.gone)] {
            let told = if style.is_whole { findings.len() } else { findings.len().min(TOLD_MAX) };
            for finding in &findings[..told] {
                let sign = Paint::Of(finding.severity).on(sign, style.is_coloured);
                let summary = harmless(&finding.summary);
                writeln!(text, "  {sign} {} [{}] {summary}", finding.severity.as_str(), finding.code)
                    .expect("a string takes any text");
            }
            if findings.len() > told {
                writeln!(text, "  {sign} {} more", findings.len() - told).expect("a string takes any text");
            }
        }
        text
    }

    /// One line: `{"takenAt":…,"new":[…],"gone":[…]}`.
    pub fn json(&self, at: Timestamp) -> String {
        let line = json!({"takenAt": at, "counts": self.counts, "new": self.new, "gone": self.gone});
        escaped(line.to_string()) + "\n"
    }
}

fn identity(finding: &Finding) -> (FindingCode, String) {
    (finding.code, finding.subject.to_string())
}
