//! Findings with their evidence, grouped by code, the most important first.

use doctor::{Finding, Report};
use evidence::Exhibit;

use super::markup::{Markup, html};
use super::more;
use crate::count::count;
use crate::group::{Group, groups};

/// How many findings with one code are on the page.
const FINDINGS_SHOWN: usize = 100;
/// How many groups of few findings are shown open.
const OPEN_MAX: usize = 3;
const EXHIBITS_SHOWN: usize = 20;
const SYMPTOMS_SHOWN: usize = 20;

pub(super) fn section(page: &mut Markup, report: &Report) {
    page.section("findings", "Findings");
    if report.findings.is_empty() {
        page.raw("<p>There are none.</p>\n");
    }
    for group in groups(report) {
        show_group(page, &group);
    }
    page.raw("</section>\n");
}

fn show_group(page: &mut Markup, group: &Group<'_>) {
    let severity = group.severity.as_str();
    html!(
        page,
        "<article class=\"group {}\">\n<h3><span class=\"tag {}\">{}</span> {}</h3>\n",
        severity,
        severity,
        severity,
        group.title
    );
    html!(
        page,
        "<p class=\"soft\"><code>{}</code> · {}</p>\n",
        group.code,
        count(group.findings.len(), "finding")
    );
    let common = group.common_remedy();
    for finding in group.findings.iter().take(FINDINGS_SHOWN) {
        show(page, finding, common.is_none(), group.findings.len() <= OPEN_MAX);
    }
    more(page, group.findings.len().saturating_sub(FINDINGS_SHOWN), "more like these");
    if let Some(remedy) = common {
        html!(page, "<p class=\"next\"><b>Next:</b> {}</p>\n", remedy);
    }
    page.raw("</article>\n");
}

fn show(page: &mut Markup, finding: &Finding, has_own_remedy: bool, is_open: bool) {
    page.raw(if is_open { "<details open>" } else { "<details>" }).raw("<summary>");
    let subject = finding.subject.to_string();
    if !finding.summary.contains(&subject) {
        html!(page, "{}: ", subject);
    }
    html!(page, "{}</summary>\n<dl>\n", finding.summary);
    if !finding.cause.is_empty() {
        page.raw("<dt>Why</dt><dd><ol>");
        for step in &finding.cause {
            html!(page, "<li>{}</li>", step);
        }
        page.raw("</ol></dd>\n");
    }
    if !finding.symptoms.is_empty() {
        page.raw("<dt>Explains</dt><dd><ul>");
        for symptom in finding.symptoms.iter().take(SYMPTOMS_SHOWN) {
            html!(page, "<li><code>{}</code> {}</li>", symptom.code, symptom.summary);
        }
        page.raw("</ul>");
        more(page, finding.symptoms.len().saturating_sub(SYMPTOMS_SHOWN), "more");
        page.raw("</dd>\n");
    }
    if !finding.evidence.is_empty() {
        page.raw("<dt>Seen in</dt><dd>");
        for exhibit in finding.evidence.iter().take(EXHIBITS_SHOWN) {
            show_exhibit(page, exhibit);
        }
        more(page, finding.evidence.len().saturating_sub(EXHIBITS_SHOWN), "more");
        page.raw("</dd>\n");
    }
    page.raw("</dl>\n");
    if has_own_remedy {
        html!(page, "<p class=\"next\"><b>Next:</b> {}</p>\n", finding.remedy);
    }
    for command in &finding.commands {
        html!(page, "<pre class=\"run\">{}</pre>\n", command);
    }
    page.raw("</details>\n");
}

fn show_exhibit(page: &mut Markup, exhibit: &Exhibit) {
    let line = exhibit.line.map(|line| format!(":{line}")).unwrap_or_default();
    html!(
        page,
        "<span class=\"exhibit mono\"><span class=\"place\">{}{}</span>{}</span>",
        exhibit.file,
        line,
        exhibit.text
    );
}
