//! Findings with their evidence, grouped by code, the most important first.

use doctor::{Finding, Report};
use evidence::Exhibit;

use super::markup::Markup;
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
    page.raw("<section id=\"findings\" aria-labelledby=\"findings-title\">\n<h2 id=\"findings-title\">Findings</h2>\n");
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
    page.raw("<article class=\"group ")
        .raw(severity)
        .raw("\">\n<h3><span class=\"tag ")
        .raw(severity)
        .raw("\">");
    page.raw(severity)
        .raw("</span> ")
        .text(group.title)
        .raw("</h3>\n<p class=\"soft\"><code>")
        .text(group.code.as_str());
    page.raw("</code> · ").text(&count(group.findings.len(), "finding")).raw("</p>\n");
    let common = group.common_remedy();
    for finding in group.findings.iter().take(FINDINGS_SHOWN) {
        show(page, finding, common.is_none(), group.findings.len() <= OPEN_MAX);
    }
    more(page, group.findings.len().saturating_sub(FINDINGS_SHOWN), "more like these");
    if let Some(remedy) = common {
        page.raw("<p class=\"next\"><b>Next:</b> ").text(remedy).raw("</p>\n");
    }
    page.raw("</article>\n");
}

fn show(page: &mut Markup, finding: &Finding, has_own_remedy: bool, is_open: bool) {
    page.raw(if is_open { "<details open>" } else { "<details>" }).raw("<summary>");
    let subject = finding.subject.to_string();
    if !finding.summary.contains(&subject) {
        page.text(&subject).raw(": ");
    }
    page.text(&finding.summary).raw("</summary>\n<dl>\n");
    if !finding.cause.is_empty() {
        page.raw("<dt>Why</dt><dd><ol>");
        for step in &finding.cause {
            page.element("li", "", step);
        }
        page.raw("</ol></dd>\n");
    }
    if !finding.symptoms.is_empty() {
        page.raw("<dt>Explains</dt><dd><ul>");
        for symptom in finding.symptoms.iter().take(SYMPTOMS_SHOWN) {
            page.raw("<li><code>")
                .text(symptom.code.as_str())
                .raw("</code> ")
                .text(&symptom.summary)
                .raw("</li>");
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
        page.raw("<p class=\"next\"><b>Next:</b> ").text(&finding.remedy).raw("</p>\n");
    }
    for command in &finding.commands {
        page.raw("<pre class=\"run\">").text(&command.to_string()).raw("</pre>\n");
    }
    page.raw("</details>\n");
}

fn show_exhibit(page: &mut Markup, exhibit: &Exhibit) {
    page.raw("<span class=\"exhibit mono\"><span class=\"place\">").text(&exhibit.file);
    if let Some(line) = exhibit.line {
        page.raw(":").number(line as usize);
    }
    page.raw("</span>").text(&exhibit.text).raw("</span>");
}
