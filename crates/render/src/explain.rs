//! What a code means: for a terminal, and as the page of all codes.

use std::fmt::Write as _;

use doctor::{Check, Need, Settles, Severity};

use crate::Style;
use crate::paint::Paint;
use crate::wrap::wrapped;

/// One code in full.
pub fn one(check: &Check, style: &Style) -> String {
    let mut text = String::new();
    let title = Paint::Strong.on(check.title, style.is_coloured);
    let severity = Paint::Of(check.severity).on(check.severity.as_str(), style.is_coloured);
    let mut line = |words: &str| writeln!(text, "{words}").expect("a string takes any text");
    line(&format!("{}: {title} ({severity})", check.code));
    line("");
    for words in wrapped(check.explanation, style.columns()) {
        line(&words);
    }
    for (label, words) in
        [("next", check.remedy.to_owned()), ("needs", needs(check)), ("told", settles(check).to_owned())]
    {
        line("");
        let indent = 7;
        for (index, words) in wrapped(&words, style.columns() - indent).iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            line(&format!("{}{words}", Paint::Faint.on(&format!("{label:<indent$}"), style.is_coloured)));
        }
    }
    text
}

/// Every code with its heading, worst first.
pub fn list(checks: &[&Check], style: &Style) -> String {
    let width = checks.iter().map(|check| check.code.len()).max().unwrap_or(0);
    let mut text = String::new();
    for severity in [Severity::Error, Severity::Warning, Severity::Info] {
        for check in checks.iter().filter(|check| check.severity == severity) {
            let word = Paint::Of(severity).on(&format!("{:<7}", severity.as_str()), style.is_coloured);
            writeln!(text, "{word}  {:<width$}  {}", check.code, check.title)
                .expect("a string takes any text");
        }
    }
    text
}

/// `docs/findings.md`.
pub fn page(checks: &[&Check]) -> String {
    let mut text = PAGE_HEAD.to_owned();
    for check in checks {
        let row = format!("| [`{0}`](#{0}) | {1} | {2} |", check.code, check.severity.as_str(), check.title);
        writeln!(text, "{row}").expect("a string takes any text");
    }
    for check in checks {
        writeln!(text, "\n## {}\n\n**{}** · {}\n", check.code, check.title, check.severity.as_str())
            .expect("a string takes any text");
        let remedy = markdown(check.remedy.trim_end_matches('.'));
        for paragraph in [markdown(check.explanation), format!("*What to do:* {remedy}.")] {
            for line in wrapped(&paragraph, PAGE_WIDTH) {
                writeln!(text, "{line}").expect("a string takes any text");
            }
            text.push('\n');
        }
        let conditions = format!("*Needs:* {}. *Told:* {}.", needs(check), settles(check));
        for line in wrapped(&conditions, PAGE_WIDTH) {
            writeln!(text, "{line}").expect("a string takes any text");
        }
    }
    text
}

const PAGE_WIDTH: usize = 120;

const PAGE_HEAD: &str = "\
# Findings

Every code that `plumb doctor` can give, in alphabetical order. `plumb doctor explain CODE` shows the same on a terminal.
What a severity means: an *error* breaks traffic or records now; a *warning* will hurt, or hurts where it cannot be seen from
here; *info* is worth knowing. This page is made from the checks themselves (`cargo xtask docs --accept`).

| code | severity | what is found |
|---|---|---|
";

/// What markdown would take for its own.
fn markdown(text: &str) -> String {
    text.replace('<', "&lt;").replace('*', "\\*").replace('_', "\\_")
}

/// `pools; or endpoints and IPAM records`.
fn needs(check: &Check) -> String {
    if check.needs.is_empty() {
        return "anything at all".to_owned();
    }
    let set = |set: &&[Need]| set.iter().map(|need| need.words()).collect::<Vec<_>>().join(" and ");
    check.needs.iter().map(set).collect::<Vec<_>>().join("; or ")
}

fn settles(check: &Check) -> &'static str {
    match check.settles {
        Settles::AtOnce => "as soon as it is seen",
        Settles::InTwoLooks => "if two looks in a row find it, so that what comes and goes is not told",
    }
}

#[cfg(test)]
mod tests {
    use doctor::checks;

    use super::*;

    #[test]
    fn a_code_is_explained() {
        let text = one(checks::find("pool-overlap").unwrap(), &Style { width: 60, ..Style::PLAIN });
        assert!(
            text.starts_with("pool-overlap: Pools share addresses (error)\n\nTwo IP pools contain"),
            "{text}"
        );
        assert!(text.contains("\nnext   let one pool keep"), "{text}");
        assert!(text.contains("\nneeds  IPPool records\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 60), "{text}");
    }

    #[test]
    fn every_code_is_listed_and_on_the_page() {
        let (list, page) = (list(checks::ALL, &Style::PLAIN), page(checks::ALL));
        assert_eq!(list.lines().count(), checks::ALL.len());
        for check in checks::ALL {
            assert!(
                list.contains(check.code) && page.contains(&format!("\n## {}\n", check.code)),
                "{}",
                check.code
            );
        }
        assert!(list.starts_with("error"), "{list}");
    }
}
