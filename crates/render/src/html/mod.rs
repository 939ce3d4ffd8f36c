//! The report as one page that can be opened anywhere and sent to anybody: no script, nothing from the network.
//!
//! Its size is bounded. What is left out is counted on the page; JSON has all of it.

mod findings;
mod map;
mod markup;
mod matrix;
mod timeline;

use doctor::{Case, NotJudged, Options, Report, Severity};
use evidence::Evidence;
use evidence::Unseen;

use crate::count::{count, grouped};
use crate::group::Counts;
use crate::text::not_judged_words;
use crate::text::unseen_in_short;
use markup::{Markup, html};

const STYLE: &str = include_str!("style.css");

/// Even if a name got in as markup, a browser would neither run it nor fetch anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// How many things that were not looked at are named.
const UNSEEN_SHOWN: usize = 100;

/// The whole page.
pub fn html(report: &Report, evidence: &Evidence) -> String {
    let mut page = Markup::default();
    let title = match Counts::of(report).words() {
        words if words.is_empty() => "Plumbline doctor: nothing wrong was found".to_owned(),
        words => format!("Plumbline doctor: {words}"),
    };
    page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"").raw(POLICY).raw("\">\n");
    page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.raw("<meta name=\"referrer\" content=\"no-referrer\">\n");
    html!(page, "<title>{}</title>\n<style>\n", title);
    page.raw(STYLE).raw("</style>\n</head>\n<body>\n");
    let options = Options::default();
    let case = Case::new(evidence, &options);
    let mut sections = Markup::default();
    let mut contents = vec![("findings", "Findings")];
    findings::section(&mut sections, report);
    if matrix::section(&mut sections, &case) {
        contents.push(("reachability", "Reachability"));
    }
    if map::section(&mut sections, report, evidence) {
        contents.push(("addresses", "Addresses"));
    }
    if timeline::section(&mut sections, report, evidence) {
        contents.push(("timeline", "Timeline"));
    }
    if not_judged(&mut sections, &report.not_judged) {
        contents.push(("not-judged", "Not judged yet"));
    }
    if unseen(&mut sections, &report.unseen) {
        contents.push(("unseen", "Not checked"));
    }
    summary(&mut page, report, evidence, &contents);
    let mut text = page.finish();
    text.push_str(&sections.finish());
    text.push_str("</main>\n</body>\n</html>\n");
    text
}

fn summary(
    page: &mut Markup,
    report: &Report,
    evidence: &Evidence,
    contents: &[(&'static str, &'static str)],
) {
    let at = evidence.taken_at.map(|at| at.strftime(" of %Y-%m-%d %H:%M:%S UTC").to_string());
    html!(page, "<header>\n<h1>{}</h1>\n<p class=\"soft\">", headline(report));
    html!(page, "Evidence{}: {}</p>\n<ul class=\"counts\">\n", at.unwrap_or_default(), seen(evidence));
    let counts = Counts::of(report);
    for (severity, number, words) in [
        (Severity::Error, counts.error, "errors: traffic or records are broken now"),
        (Severity::Warning, counts.warning, "warnings: will cause trouble"),
        (Severity::Info, counts.info, "notes: worth knowing"),
    ] {
        let class = if number == 0 { "none" } else { severity.as_str() };
        html!(page, "<li class=\"{}\"><b>{}</b>{}</li>\n", class, grouped(number), words);
    }
    page.raw("</ul>\n<nav aria-label=\"On this page\">\n");
    for (id, words) in contents {
        html!(page, "<a href=\"#{}\">{}</a>\n", id, words);
    }
    page.raw("</nav>\n</header>\n<main>\n");
}

fn headline(report: &Report) -> String {
    let words = found(report);
    match report.not_judged.len() {
        0 => words,
        new => format!("{words}. {}", not_judged_words(new)),
    }
}

fn found(report: &Report) -> String {
    match (Counts::of(report).words(), report.unseen.is_empty()) {
        (words, true) if words.is_empty() => "Nothing wrong was found".to_owned(),
        (words, false) if words.is_empty() => {
            let unseen = unseen_in_short(report).unwrap_or_default();
            format!("Incomplete evidence: {unseen}. Nothing wrong was found in the rest")
        }
        (words, _) => format!("The doctor found {words}"),
    }
}

/// What was looked at, in numbers.
fn seen(evidence: &Evidence) -> String {
    let lists = [
        (evidence.kube_nodes.as_ref().map(Vec::len), "Kubernetes node"),
        (evidence.pods.as_ref().map(Vec::len), "pod"),
        (evidence.endpoints.as_ref().map(Vec::len), "endpoint"),
        (evidence.ipam.as_ref().map(|ipam| ipam.books.blocks.len()), "block"),
        (evidence.ipam.as_ref().map(|ipam| ipam.books.handles.len()), "handle"),
        (Some(evidence.nodes.len()).filter(|nodes| *nodes > 0), "node's kernel and settings"),
        (evidence.log.as_ref().map(Vec::len), "log event"),
    ];
    let told: Vec<String> =
        lists.into_iter().filter_map(|(number, word)| Some(counted(number?, word))).collect();
    if told.is_empty() { "none that could be used".to_owned() } else { told.join(", ") }
}

fn counted(number: usize, word: &str) -> String {
    match word {
        "node's kernel and settings" => format!("kernel and settings of {}", count(number, "node")),
        _ => count(number, word),
    }
}

/// Says whether there is anything of the sort.
fn not_judged(page: &mut Markup, new: &[NotJudged]) -> bool {
    if new.is_empty() {
        return false;
    }
    page.section("not-judged", "Not judged yet");
    page.raw("<ul>\n");
    for NotJudged { code, summary, why, .. } in new.iter().take(UNSEEN_SHOWN) {
        html!(page, "<li>[{}] {}: {}</li>\n", code, summary, why);
    }
    page.raw("</ul>\n");
    more(page, new.len().saturating_sub(UNSEEN_SHOWN), "more");
    page.raw("</section>\n");
    true
}

/// Says whether there is anything of the sort.
fn unseen(page: &mut Markup, unseen: &[Unseen]) -> bool {
    if unseen.is_empty() {
        return false;
    }
    page.section("unseen", "Not checked");
    page.raw("<p class=\"soft\">The report makes no statement about these.</p>\n<ul>\n");
    for what in unseen.iter().take(UNSEEN_SHOWN) {
        html!(page, "<li>{}</li>\n", what);
    }
    page.raw("</ul>\n");
    more(page, unseen.len().saturating_sub(UNSEEN_SHOWN), "more");
    page.raw("</section>\n");
    true
}

/// Says how many are left out, if any.
fn more(page: &mut Markup, number: usize, words: &'static str) {
    if number > 0 {
        html!(page, "<p class=\"soft\">{} {}, not shown here; ", grouped(number), words);
        page.raw("<code>-o json</code> lists all.</p>\n");
    }
}
