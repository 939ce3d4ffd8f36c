//! What Markdown points at is there: linked files and headings, paths, tests and items of crates named in code marks. And
//! every command shown is one that is run, or says why not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use super::Verdict;
use crate::{transcript, workspace};

pub(super) fn check() -> Result<Verdict> {
    let mut faults = Vec::new();
    let declared = Declared::ours()?;
    for path in workspace::files_with_extension("md") {
        let text = workspace::read(&path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let faulty = links(&text).into_iter().filter_map(|(line, target)| {
            let fault = link_fault(&target, &text, |file| text_of(&folder.join(file)))?;
            Some(format!("{}:{line}: {target}: {fault}", workspace::shown(&path)))
        });
        faults.extend(faulty);
        let declared = is_for_developers(&workspace::shown(&path)).then_some(&declared);
        let named = named_things(&text).into_iter().chain(listed_files(&text));
        let faulty = named.filter_map(|(line, name)| {
            let fault = naming_fault(&name, |path| workspace::root().join(path).exists(), declared)?;
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

/// Pages for operators speak of settings, those for developers of tests and items.
fn is_for_developers(page: &str) -> bool {
    !page.starts_with("docs/") || page.starts_with("docs/internals/")
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

/// The files that tables list in their first column, with their lines: those of a folder that the heading of this column names.
fn listed_files(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut folder: Option<&str> = None;
    let mut is_in_table = false;
    for (number, line) in prose(text) {
        let Some(row) = line.trim_start().strip_prefix('|') else {
            (folder, is_in_table) = (None, false);
            continue;
        };
        let names = row.split('|').next().unwrap_or_default().split('`').skip(1).step_by(2);
        if is_in_table {
            let files = folder
                .into_iter()
                .flat_map(|folder| names.clone().map(move |name| format!("{folder}{name}")));
            found.extend(files.map(|file| (number, file)));
        } else {
            folder = names.clone().find(|name| name.starts_with("crates/") && name.ends_with('/'));
            is_in_table = true;
        }
    }
    found
}

/// Paths of ours must exist. So must tests and items, where declarations are given: names of four words and more are tests'.
fn naming_fault(
    name: &str,
    exists: impl Fn(&str) -> bool,
    declared: Option<&Declared>,
) -> Option<&'static str> {
    let is_path = ["crates/", "xtask/", "docs/", ".ci/"].iter().any(|folder| name.starts_with(folder));
    if is_path && !name.contains(['*', ' ', '<']) && !exists(name) {
        return Some("there is no such file");
    }
    let is_snake_case =
        name.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_');
    let is_test = is_snake_case && name.matches('_').count() >= 3;
    let declared = declared?;
    if is_test && !declared.functions.contains(name) {
        return Some("there is no such test");
    }
    (!declared.has_item(name)).then_some("this crate declares no such item")
}

/// What the source declares.
#[derive(Debug, Default)]
struct Declared {
    functions: BTreeSet<String>,
    /// By crate.
    items: BTreeMap<String, BTreeSet<String>>,
}

impl Declared {
    fn ours() -> Result<Declared> {
        let mut declared = Declared::default();
        for path in workspace::files_with_extension("rs") {
            declared.add(&workspace::shown(&path), &workspace::read(&path)?);
        }
        Ok(declared)
    }

    fn add(&mut self, path: &str, text: &str) {
        let package = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        for line in text.lines() {
            let words: Vec<&str> = line.split(|char: char| !char.is_alphanumeric() && char != '_').collect();
            for pair in words.windows(2) {
                let [keyword, name] = [pair[0], pair[1]];
                if keyword == "fn" {
                    self.functions.insert(name.to_owned());
                }
                if ["fn", "struct", "enum", "trait", "mod", "const", "type"].contains(&keyword)
                    && let Some((package, _)) = package
                {
                    self.items.entry(package.to_owned()).or_default().insert(name.to_owned());
                }
            }
        }
    }

    /// Whether `crate::module::Item` is there. Anything else is not for us to judge.
    fn has_item(&self, name: &str) -> bool {
        let mut segments = name.split("::");
        let Some(items) = segments.next().and_then(|package| self.items.get(package)) else { return true };
        let is_word = |segment: &str| segment.chars().all(|char| char.is_alphanumeric() || char == '_');
        segments.all(|segment| !is_word(segment) || items.contains(segment))
    }
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
        let mut declared = Declared::default();
        declared.add("crates/model/tests/all.rs", "fn a_test_that_is_there() {");
        declared
            .add("crates/doctor/src/lib.rs", "pub mod checks;\npub struct Report<T> {\n  pub const fn find(");
        let fault =
            |name: &str| naming_fault(name, |path| path == "crates/model/src/key.rs", Some(&declared));
        assert_eq!(fault("crates/model/src/key.rs"), None);
        assert_eq!(fault("crates/model/src/gone.rs"), Some("there is no such file"));
        assert_eq!(fault("crates/*/Cargo.toml"), None);
        assert_eq!(fault("a_test_that_is_there"), None);
        assert_eq!(fault("a_test_that_is_gone"), Some("there is no such test"));
        assert_eq!(fault("unsafe_code"), None);
        for there in ["doctor::Report", "doctor::checks::find", "Store::get", "doctor", "doctor::find(code)"]
        {
            assert_eq!(fault(there), None, "{there}");
        }
        for gone in ["doctor::Evidence", "doctor::text::find"] {
            assert_eq!(fault(gone), Some("this crate declares no such item"), "{gone}");
        }
        let text = "`a` and `b c`\n```text\n`not this`\n```\n";
        assert_eq!(named_things(text), [(1, "a".to_owned()), (1, "b c".to_owned())]);
        assert!(is_for_developers("ARCHITECTURE.md") && is_for_developers("docs/internals/store.md"));
        assert!(!is_for_developers("docs/stores.md"));
    }

    #[test]
    fn files_that_a_table_lists_are_below_the_folder_of_its_heading() {
        let text = "| part of `crates/agent/src/` | |\n|---|---|\n| `cni/`, `files.rs` | `other.rs` |\n\n\
                    | file | |\n|---|---|\n| `lib.rs` | |\n";
        let found = [(3, "crates/agent/src/cni/".to_owned()), (3, "crates/agent/src/files.rs".to_owned())];
        assert_eq!(listed_files(text), found);
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
