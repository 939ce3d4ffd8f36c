//! The report for people at a terminal: grouped, the most important first, the next step with each.

use std::fmt::Write as _;

use doctor::{Finding, NotJudged, Report};
use evidence::Exhibit;
use evidence::Unseen;
use model::ShellCommand;

use crate::count::grouped;
use crate::group::{Counts, Group, groups, symptom_codes};
use crate::paint::Paint;
use crate::wrap::wrapped;
use model::text::harmless;

/// How the text is to look.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub is_coloured: bool,
    /// Columns of the terminal.
    pub width: usize,
    /// Show everything instead of the first few of a kind.
    pub is_whole: bool,
}

impl Style {
    /// What is narrower is treated as if it were this wide.
    const WIDTH_MIN: usize = 40;
    /// Longer lines are hard to read, however wide the terminal is.
    const WIDTH_MAX: usize = 120;
    pub const PLAIN: Style = Style { is_coloured: false, width: 100, is_whole: false };

    pub(crate) fn columns(&self) -> usize {
        self.width.clamp(Style::WIDTH_MIN, Style::WIDTH_MAX)
    }

    /// How many of a kind are shown.
    fn limit(&self, usually: usize) -> usize {
        if self.is_whole { usize::MAX } else { usually }
    }
}

/// How many findings with one code are shown unless all are asked for.
const FINDINGS_SHOWN: usize = 10;
/// How many pieces of evidence of one finding.
const EXHIBITS_SHOWN: usize = 5;
/// How many steps of one cause.
const STEPS_SHOWN: usize = 8;
/// How many things that were not looked at.
const UNSEEN_SHOWN: usize = 10;

/// The whole report.
pub fn text(report: &Report, style: &Style) -> String {
    let mut out = Out { text: String::new(), style };
    out.summary(report);
    for group in groups(report) {
        out.group(&group);
    }
    out.not_judged(&report.not_judged);
    out.unseen(&report.unseen);
    if !report.findings.is_empty() {
        out.blank();
        out.lines("", "plumb doctor explain CODE describes a code in full");
    }
    out.text
}

/// What a reader must know before anything else: the first thing that could not be observed, and how many more there are.
pub(crate) fn unseen_in_short(report: &Report) -> Option<String> {
    let first = report.unseen.first()?;
    let first = harmless(&first.cause()).trim_end_matches('.').to_owned();
    Some(match report.unseen.len() - 1 {
        0 => first,
        more => format!("{first}; and {} more, listed at the end", grouped(more)),
    })
}

struct Out<'a> {
    text: String,
    style: &'a Style,
}

impl Out<'_> {
    fn summary(&mut self, report: &Report) {
        if let Some(unseen) = unseen_in_short(report) {
            self.lines("", &format!("Incomplete evidence: {unseen}."));
        }
        let words = match (report.findings.is_empty(), report.unseen.is_empty()) {
            (true, true) => "Nothing wrong was found.".to_owned(),
            (true, false) => "Nothing wrong was found in the rest.".to_owned(),
            (false, _) => format!("Found {}.", Counts::of(report).words()),
        };
        let words = match report.not_judged.len() {
            0 => words,
            new => format!("{words} {}", not_judged_words(new)),
        };
        let words = match report.worst() {
            Some(worst) => Paint::Of(worst).on(&words, self.style.is_coloured),
            None => words,
        };
        writeln!(self.text, "{words}").expect("a string takes any text");
    }

    fn group(&mut self, group: &Group<'_>) {
        self.blank();
        let word = group.severity.as_str().to_uppercase();
        let word = Paint::Of(group.severity).on(&word, self.style.is_coloured);
        let title = Paint::Strong.on(&harmless(group.title), self.style.is_coloured);
        let code = Paint::Faint.on(&format!("[{}]", group.code), self.style.is_coloured);
        writeln!(self.text, "{word} {title} {code}").expect("a string takes any text");
        let shown = group.findings.len().min(self.style.limit(FINDINGS_SHOWN));
        let common = group.common_remedy();
        for finding in &group.findings[..shown] {
            self.finding(finding, common.is_none());
        }
        self.left_out("  ", group.findings.len() - shown, "more like these");
        if let Some(remedy) = common {
            self.labelled("  ", "next", remedy);
        }
    }

    fn finding(&mut self, finding: &Finding, has_own_remedy: bool) {
        let subject = finding.subject.to_string();
        let told = if finding.summary.contains(&subject) {
            finding.summary.clone()
        } else {
            format!("{subject}: {}", finding.summary)
        };
        self.lines("  - ", &told);
        let steps = finding.cause.len().min(self.style.limit(STEPS_SHOWN));
        for step in &finding.cause[..steps] {
            self.labelled("    ", "why", step);
        }
        self.left_out("    ", finding.cause.len() - steps, "more steps");
        if !finding.symptoms.is_empty() {
            self.labelled("    ", "also", &format!("explains {}", symptom_codes(finding)));
        }
        let exhibits = finding.evidence.len().min(self.style.limit(EXHIBITS_SHOWN));
        for exhibit in &finding.evidence[..exhibits] {
            self.labelled("    ", "seen", &place(exhibit));
        }
        self.left_out("    ", finding.evidence.len() - exhibits, "more pieces of evidence");
        if has_own_remedy {
            self.labelled("    ", "next", &finding.remedy);
        }
        for command in &finding.commands {
            self.command(command);
        }
    }

    fn not_judged(&mut self, new: &[NotJudged]) {
        if new.is_empty() {
            return;
        }
        self.blank();
        let heading = Paint::Strong.on("Not judged yet", self.style.is_coloured);
        writeln!(self.text, "{heading}").expect("a string takes any text");
        let shown = new.len().min(self.style.limit(UNSEEN_SHOWN));
        for NotJudged { code, summary, why, .. } in &new[..shown] {
            self.lines("  - ", &format!("[{code}] {summary}: {why}"));
        }
        self.left_out("  ", new.len() - shown, "more");
    }

    fn unseen(&mut self, unseen: &[Unseen]) {
        if unseen.is_empty() {
            return;
        }
        self.blank();
        let heading = Paint::Strong.on("Could not be checked", self.style.is_coloured);
        writeln!(self.text, "{heading}").expect("a string takes any text");
        let shown = unseen.len().min(self.style.limit(UNSEEN_SHOWN));
        for what in &unseen[..shown] {
            self.lines("  - ", &what.to_string());
        }
        self.left_out("  ", unseen.len() - shown, "more");
    }

    /// Says that there is more, and how to see it.
    fn left_out(&mut self, indent: &str, number: usize, words: &str) {
        if number > 0 {
            let told = format!("{} {words}: --all shows them", grouped(number));
            writeln!(self.text, "{indent}{}", Paint::Faint.on(&told, self.style.is_coloured))
                .expect("a string takes any text");
        }
    }

    fn labelled(&mut self, indent: &str, label: &str, words: &str) {
        let first = format!("{indent}{label:<4}  ");
        let lines = self.broken(first.len(), words);
        let label = Paint::Faint.on(&format!("{label:<4}"), self.style.is_coloured);
        self.hanging(&format!("{indent}{label}  "), first.len(), &lines);
    }

    /// On one line, however wide: whoever pastes it gets all of it, and nothing else.
    fn command(&mut self, command: &ShellCommand) {
        let label = Paint::Faint.on("run ", self.style.is_coloured);
        writeln!(self.text, "    {label}  {command}").expect("a string takes any text");
    }

    /// A paragraph whose first line begins with `first`, and the others below its text.
    fn lines(&mut self, first: &str, words: &str) {
        let lines = self.broken(first.len(), words);
        self.hanging(first, first.len(), &lines);
    }

    fn broken(&self, indent: usize, words: &str) -> Vec<String> {
        wrapped(&harmless(words), self.style.columns().saturating_sub(indent))
    }

    fn hanging(&mut self, first: &str, indent: usize, lines: &[String]) {
        for (index, line) in lines.iter().enumerate() {
            let start = if index == 0 { first.to_owned() } else { " ".repeat(indent) };
            writeln!(self.text, "{}", format!("{start}{line}").trim_end()).expect("a string takes any text");
        }
    }

    fn blank(&mut self) {
        self.text.push('\n');
    }
}

/// How much is too new to be judged.
pub(crate) fn not_judged_words(new: usize) -> String {
    match new {
        1 => "1 possible fault is too new to be judged.".to_owned(),
        several => format!("{} possible faults are too new to be judged.", grouped(several)),
    }
}

/// Where it was seen, and what it says there.
fn place(exhibit: &Exhibit) -> String {
    let Exhibit { file, line, text } = exhibit;
    match (line, text.is_empty()) {
        (Some(line), false) => format!("{file}:{line}  {text}"),
        (Some(line), true) => format!("{file}:{line}"),
        (None, false) => format!("{file}  {text}"),
        (None, true) => file.clone(),
    }
}
