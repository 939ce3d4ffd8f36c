//! Every test that the threat model and the pages about roles name is there, and every promise names one.

use std::collections::BTreeSet;

use anyhow::Result;

use super::Verdict;
use crate::workspace;

const PAGES: [&str; 3] = ["docs/threat-model.md", "docs/etcd-roles.md", "docs/kubernetes.md"];
/// The last column of a table of promises.
const HELD_BY: &str = "held by";

pub(super) fn check() -> Result<Verdict> {
    let root = workspace::root();
    let mut tests = BTreeSet::new();
    for path in workspace::files_with_extension("rs") {
        tests.extend(functions(&workspace::read(&path)?).map(str::to_owned));
    }
    let mut faults = Vec::new();
    for page in PAGES {
        faults.extend(faults_in(page, &workspace::read(&root.join(page))?, &tests));
    }
    Ok(Verdict::Faults(faults))
}

/// The names of a file's functions.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (_, after) = line.split_once("fn ")?;
        let end = after.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')?;
        after[end..].starts_with('(').then_some(&after[..end])
    })
}

fn faults_in(page: &str, text: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut is_promises = false;
    for (number, line) in text.lines().enumerate() {
        let mut fault = |what: String| faults.push(format!("{page}:{}: {what}", number + 1));
        for name in named_tests(line).filter(|name| !tests.contains(*name)) {
            fault(format!("there is no test {name}"));
        }
        let Some(cells) = cells(line) else {
            is_promises = false;
            continue;
        };
        let last = cells.last().copied().unwrap_or_default();
        if last == HELD_BY {
            is_promises = true;
        } else if is_promises && !last.starts_with("---") && named_tests(last).next().is_none() {
            fault("a promise that names no test".to_owned());
        }
    }
    faults
}

/// Of what stands between backquotes, that which is named like a test: words joined by underscores.
fn named_tests(line: &str) -> impl Iterator<Item = &str> {
    let is_name = |text: &&str| {
        let is_word = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        text.matches('_').count() >= 3 && text.chars().all(is_word)
    };
    line.split('`').skip(1).step_by(2).filter(is_name)
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_promises_without_a_test_are_found() {
        let tests: BTreeSet<String> = functions("    async fn a_pod_is_kept_out() {\nfn other<T>(x: T) {\n")
            .map(str::to_owned)
            .collect();
        assert_eq!(tests, ["a_pod_is_kept_out".to_owned()].into());
        let page = "`route_localnet` is no test, `a_b_c_d` is.\n\n| promise | held by |\n|---|---|\n\
                    | pods stay out | `a_pod_is_kept_out` |\n| nodes too | by and by |\n\n| a | b |\n|---|---|\n| c | d |\n";
        assert_eq!(
            faults_in("page.md", page, &tests),
            ["page.md:1: there is no test a_b_c_d", "page.md:6: a promise that names no test"]
        );
    }
}
