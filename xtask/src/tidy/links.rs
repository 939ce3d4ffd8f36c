//! Links in Markdown lead somewhere, and every command shown is one that is run, or says why not.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::Verdict;
use crate::{transcript, workspace};

pub(super) fn check() -> Result<Verdict> {
    let mut faults = Vec::new();
    for path in workspace::files_with_extension("md") {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let faulty = links(&text).into_iter().filter_map(|(line, target)| {
            let fault = link_fault(&target, &text, |file| text_of(&folder.join(file)))?;
            Some(format!("{}:{line}: {target}: {fault}", workspace::shown(&path)))
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

/// Every `](target)` outside code, with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_fence = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        if in_fence {
            continue;
        }
        // Every second piece between backticks is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for piece in prose.split("](").skip(1) {
            if let Some((target, _)) = piece.split_once(')') {
                found.push((number + 1, target.to_owned()));
            }
        }
    }
    found
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
