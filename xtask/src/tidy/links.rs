//! What Markdown points at is there: linked files and headings, paths and tests named in code marks. And every
//! command shown is one that is run, or says why not.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Verdict;
use crate::{transcript, workspace};

pub(super) fn check() -> Result<Verdict> {
    let mut faults = Vec::new();
    let functions = function_names()?;
    for path in workspace::files_with_extension("md") {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let faulty = links(&text).into_iter().filter_map(|(line, target)| {
            let fault = link_fault(&target, &text, |file| text_of(&folder.join(file)))?;
            Some(format!("{}:{line}: {target}: {fault}", workspace::shown(&path)))
        });
        faults.extend(faulty);
        // Pages for operators speak of settings, those at the root of tests.
        let functions = (!workspace::shown(&path).starts_with("docs/")).then_some(&functions);
        let faulty = named_things(&text).into_iter().filter_map(|(line, name)| {
            let fault = naming_fault(&name, |path| workspace::root().join(path).exists(), functions)?;
            Some(format!("{}:{line}: {name}: {fault}", workspace::shown(&path)))
        });
        faults.extend(faulty);
    }
    for path in transcript::pages() {
        if let Err(error) = transcript::read(&path) {
            faults.push(format!("{error:#}"));
        }
    }
    Ok(Verdict::Faults(faults))
}

/// What a heading can be looked for in. A folder and a picture have none, but are there.
fn text_of(path: &Path) -> Option<String> {
    if path.is_dir() {
        return Some(String::new());
    }
    std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The lines outside fences, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_fence = false;
    let mut is_prose = |line: &str| {
        let is_mark = line.trim_start().starts_with("```");
        in_fence ^= is_mark;
        !in_fence && !is_mark
    };
    text.lines().enumerate().filter(|(_, line)| is_prose(line)).map(|(at, line)| (at + 1, line)).collect()
}

/// Every `](target)` outside code, with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece between backticks is code.
        let words: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let targets = words.split("](").skip(1).filter_map(|piece| piece.split_once(')'));
        found.extend(targets.map(|(target, _)| (number, target.to_owned())));
    }
    found
}

/// Everything in backticks outside fences, with its line.
fn named_things(text: &str) -> Vec<(usize, String)> {
    let of_line = |(number, line): (usize, &str)| {
        let code = line.split('`').skip(1).step_by(2);
        code.map(|name| (number, name.to_owned())).collect::<Vec<_>>()
    };
    prose(text).into_iter().flat_map(of_line).collect()
}

/// Paths of ours must exist. So must tests, where `functions` are given: names of four words and more are theirs.
fn naming_fault(
    name: &str,
    exists: impl Fn(&str) -> bool,
    functions: Option<&BTreeSet<String>>,
) -> Option<&'static str> {
    let is_path = ["crates/", "xtask/", "docs/", ".ci/"].iter().any(|folder| name.starts_with(folder));
    if is_path && !name.contains(['*', ' ', '<']) && !exists(name) {
        return Some("there is no such file");
    }
    let is_snake_case =
        name.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_');
    let is_test = is_snake_case && name.matches('_').count() >= 3;
    let is_gone = functions.is_some_and(|functions| !functions.contains(name));
    (is_test && is_gone).then_some("there is no such test")
}

fn function_names() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for path in workspace::files_with_extension("rs") {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let declared = text.lines().filter_map(|line| line.trim_start().split_once("fn ")?.1.split_once('('));
        names.extend(declared.map(|(name, _)| name.to_owned()));
    }
    Ok(names)
}

/// Links to other sites are not followed: tests use no network.
fn link_fault(target: &str, own_text: &str, read: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) =
        target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let text = match file {
        "" => own_text.to_owned(),
        file => match read(file) {
            Some(text) => text,
            None => return Some("there is no such file"),
        },
    };
    let has_heading = |heading: &str| headings(&text).iter().any(|found| found == heading);
    heading.filter(|heading| !has_heading(heading)).map(|_| "there is no such heading")
}

/// Headings as they are written in a link: lower case, spaces as `-`, without punctuation.
fn headings(text: &str) -> Vec<String> {
    let titles =
        text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let anchor = |title: &str| {
        let kept = title.to_lowercase().replace(' ', "-");
        kept.chars().filter(|char| char.is_alphanumeric() || "-_".contains(*char)).collect()
    };
    titles.map(anchor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let text = "[a](b.md) and [c](d.md#e)\n`[x](y.md)`\n```text\n[x](z.md)\n```\n![p](q.png)\n";
        let found: Vec<String> = links(text).into_iter().map(|(_, target)| target).collect();
        assert_eq!(found, ["b.md", "d.md#e", "q.png"]);
    }

    #[test]
    fn named_paths_and_tests_must_exist() {
        let functions = BTreeSet::from(["a_test_that_is_there".to_owned()]);
        let fault =
            |name: &str| naming_fault(name, |path| path == "crates/model/src/key.rs", Some(&functions));
        assert_eq!(fault("crates/model/src/key.rs"), None);
        assert_eq!(fault("crates/model/src/gone.rs"), Some("there is no such file"));
        assert_eq!(fault("crates/*/Cargo.toml"), None);
        assert_eq!(fault("a_test_that_is_there"), None);
        assert_eq!(fault("a_test_that_is_gone"), Some("there is no such test"));
        assert_eq!(fault("unsafe_code"), None);
        let text = "`a` and `b c`\n```text\n`not this`\n```\n";
        assert_eq!(named_things(text), [(1, "a".to_owned()), (1, "b c".to_owned())]);
    }

    #[test]
    fn a_link_must_lead_somewhere() {
        let read = |file: &str| (file == "there.md").then(|| "# One `two`: three\n".to_owned());
        let fault = |target: &str| link_fault(target, "## Own part\n", read);
        assert_eq!(fault("there.md"), None);
        assert_eq!(fault("there.md#one-two-three"), None);
        assert_eq!(fault("there.md#one"), Some("there is no such heading"));
        assert_eq!(fault("gone.md"), Some("there is no such file"));
        assert_eq!(fault("#own-part"), None);
        assert_eq!(fault("#other"), Some("there is no such heading"));
        assert_eq!(fault("https://example.org/x"), None);
    }
}
