//! The report for programs: the JSON that `docs/doctor.schema.json` describes.

use std::fmt::Write as _;

use doctor::{Finding, NotJudged, Report};
use evidence::Unseen;
use jiff::Timestamp;
use serde::Serialize;

use crate::group::Counts;
use model::text::is_deceptive;

/// Goes up when a program that reads it would have to change. New fields are no such change.
const VERSION: u32 = 1;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    version: u32,
    taken_at: Option<Timestamp>,
    counts: Counts,
    findings: &'a [Finding],
    unseen: &'a [Unseen],
    not_judged: &'a [NotJudged],
}

/// One JSON object, indented, every finding in it however many there are.
///
/// Texts are exactly what was found; what a terminal would obey is written as `\u…`, so that the JSON can be shown,
/// too.
pub fn json(report: &Report, taken_at: Option<Timestamp>) -> String {
    let document = Document {
        version: VERSION,
        taken_at,
        counts: Counts::of(report),
        findings: &report.findings,
        unseen: &report.unseen,
        not_judged: &report.not_judged,
    };
    let mut text = escaped(serde_json::to_string_pretty(&document).expect("a report can be written"));
    text.push('\n');
    text
}

/// Outside of strings JSON has no such characters, so escapes stand inside strings.
pub(crate) fn escaped(text: String) -> String {
    let is_fine = |character: char| character == '\n' || !is_deceptive(character);
    if text.chars().all(is_fine) {
        return text;
    }
    let mut safe = String::with_capacity(text.len() + 64);
    for character in text.chars() {
        if is_fine(character) {
            safe.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(safe, "\\u{unit:04x}").expect("a string takes any text");
        }
    }
    safe
}
