//! What the logs tell, in the order in which it happened. Lines on which a finding rests are marked.

use std::collections::{BTreeMap, BTreeSet};

use doctor::Report;
use evidence::LogEvent;
use evidence::{Evidence, Origin, Sighted};
use model::NodeName;

use super::markup::{Markup, html};
use super::more;
use crate::happening::words;

/// Events on the page. Those that findings rest on come before all others.
const EVENTS_SHOWN: usize = 1_000;

/// Says whether there was anything to show.
pub(super) fn section(page: &mut Markup, report: &Report, evidence: &Evidence) -> bool {
    let Some(log) = evidence.log.as_deref().filter(|log| !log.is_empty()) else { return false };
    let marks = marks(report);
    let code = |event: &Sighted<LogEvent>| -> Option<&str> {
        let Origin::File { name, line: Some(line), .. } = &event.origin else { return None };
        marks.get(&(name.as_str(), *line)).copied()
    };
    let mut chosen: BTreeSet<usize> =
        (0..log.len()).filter(|index| code(&log[*index]).is_some()).take(EVENTS_SHOWN).collect();
    for index in 0..log.len() {
        if chosen.len() >= EVENTS_SHOWN {
            break;
        }
        chosen.insert(index);
    }
    let mut events: Vec<&Sighted<LogEvent>> = chosen.iter().map(|index| &log[*index]).collect();
    events.sort_by_key(|event| event.seen.at);
    page.section("timeline", "Timeline");
    page.raw("<p class=\"soft\">Times are those of the machines that wrote the logs. Marked: what a finding rests on.</p>\n");
    page.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"timeline-title\">");
    page.raw("<table class=\"timeline\">\n<thead><tr><th scope=\"col\">when</th><th scope=\"col\">node</th>");
    page.raw("<th scope=\"col\">what</th><th scope=\"col\">where</th></tr></thead>\n<tbody>\n");
    for event in events {
        row(page, event, code(event));
    }
    page.raw("</tbody></table></div>\n");
    more(page, log.len().saturating_sub(EVENTS_SHOWN), "more events");
    page.raw("</section>\n");
    true
}

/// Lines that findings rest on, with the code.
fn marks(report: &Report) -> BTreeMap<(&str, u32), &str> {
    let mut marks = BTreeMap::new();
    for finding in &report.findings {
        for exhibit in &finding.evidence {
            if let Some(line) = exhibit.line {
                marks.entry((exhibit.file.as_str(), line)).or_insert(finding.code.as_str());
            }
        }
    }
    marks
}

fn row(page: &mut Markup, event: &Sighted<LogEvent>, code: Option<&str>) {
    page.raw(if code.is_some() { "<tr class=\"marked\">" } else { "<tr>" });
    let at = event.seen.at.map(|at| at.strftime("%m-%d %H:%M:%S").to_string()).unwrap_or_default();
    let node = event.seen.node.as_ref().map_or("", NodeName::as_str);
    html!(page, "<td>{}</td><td>{}</td><td>{}", at, node, words(&event.seen.what));
    if event.seen.count > 1 {
        html!(page, " ({} times)", event.seen.count);
    }
    if let Some(code) = code {
        html!(page, " <code>{}</code>", code);
    }
    html!(page, "</td><td class=\"mono soft\">{}</td></tr>\n", place(&event.origin));
}

fn place(origin: &Origin) -> String {
    match origin {
        Origin::File { name, line: Some(line), .. } => format!("{name}:{line}"),
        other => other.exhibit("").file,
    }
}
