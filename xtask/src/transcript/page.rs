//! A Markdown page, reduced to what is to be done with it: files to write and commands to run.

use anyhow::{Result, bail};

#[derive(Debug)]
pub(crate) struct Page {
    /// As shown in messages: the path from the root.
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) items: Vec<Item>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Text that a later command reads from a file of this name.
    File { name: String, text: String },
    /// A fence of commands.
    Session { line: usize, steps: Vec<Step> },
    /// A fence of commands that the page says are not to be run, and why.
    Untested { line: usize, reason: String },
}

/// One command and what it prints.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) command: String,
    /// Which lines of the page the output takes up, counted from 0, and how far they are indented.
    pub(crate) expected_at: std::ops::Range<usize>,
    pub(crate) indent: String,
    pub(crate) expected: Vec<String>,
}

struct Fence<'a> {
    language: &'a str,
    indent: usize,
    /// The number of the fence's first inner line, counted from 0.
    first: usize,
    lines: Vec<&'a str>,
}

pub(crate) fn parse(name: &str, text: &str) -> Result<Page> {
    let lines: Vec<&str> = text.lines().collect();
    let mut items = Vec::new();
    let mut at = 0;
    let mut note: Option<Note<'_>> = None;
    while at < lines.len() {
        let line = lines[at].trim();
        at += 1;
        if let Some(found) = parse_note(line) {
            note = Some(found);
        } else if let Some(marks) = fence_marks(line) {
            let fence = take_fence(name, &lines, at - 1, marks)?;
            at = fence.first + fence.lines.len() + 1;
            items.extend(item(name, &fence, note.take())?);
        } else if !line.is_empty() {
            note = None;
        }
    }
    Ok(Page { name: name.to_owned(), text: text.to_owned(), items })
}

#[derive(Clone, Copy)]
enum Note<'a> {
    NotTested(&'a str),
    File(&'a str),
}

fn parse_note(line: &str) -> Option<Note<'_>> {
    let inner = line.strip_prefix("<!--")?.strip_suffix("-->")?.trim();
    match inner.split_once(':')? {
        ("not tested", reason) => Some(Note::NotTested(reason.trim())),
        ("file", name) => Some(Note::File(name.trim())),
        _ => None,
    }
}

/// The marks that open a fence: three backticks or more.
fn fence_marks(line: &str) -> Option<&str> {
    let length = line.chars().take_while(|char| *char == '`').count();
    (length >= 3).then(|| &line[..length])
}

fn take_fence<'a>(name: &str, lines: &[&'a str], opening: usize, marks: &str) -> Result<Fence<'a>> {
    let head = lines[opening];
    let language = head.trim().trim_start_matches('`').trim();
    let indent = head.len() - head.trim_start().len();
    let inner = &lines[opening + 1..];
    let Some(length) = inner.iter().position(|line| line.trim() == marks) else {
        bail!("{name}:{}: this fence is never closed", opening + 1);
    };
    Ok(Fence { language, indent, first: opening + 1, lines: inner[..length].to_vec() })
}

fn item(name: &str, fence: &Fence<'_>, note: Option<Note<'_>>) -> Result<Option<Item>> {
    let line = fence.first;
    match (fence.language, note) {
        ("console", Some(Note::NotTested(""))) => bail!("{name}:{line}: why is this not tested?"),
        ("console", Some(Note::NotTested(reason))) => {
            Ok(Some(Item::Untested { line, reason: reason.to_owned() }))
        }
        ("console", _) => Ok(Some(Item::Session { line, steps: steps(name, fence)? })),
        ("sh" | "bash" | "shell", _) => {
            bail!("{name}:{line}: commands go into a fence marked `console`, so that they are run")
        }
        (_, Some(Note::File(file))) => {
            let text =
                fence.lines.iter().map(|line| format!("{}\n", unindented(line, fence.indent))).collect();
            Ok(Some(Item::File { name: file.to_owned(), text }))
        }
        _ => Ok(None),
    }
}

fn steps(name: &str, fence: &Fence<'_>) -> Result<Vec<Step>> {
    let lines: Vec<&str> = fence.lines.iter().map(|line| unindented(line, fence.indent)).collect();
    let mut steps: Vec<Step> = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(first) = lines[at].strip_prefix("$ ") else {
            bail!("{name}:{}: a fence of commands starts with `$ command`", fence.first + at + 1);
        };
        let (command, after) = take_command(first, &lines, at + 1);
        let end = (after..lines.len()).find(|at| lines[*at].starts_with("$ ")).unwrap_or(lines.len());
        steps.push(Step {
            command,
            expected_at: fence.first + after..fence.first + end,
            indent: " ".repeat(fence.indent),
            expected: lines[after..end].iter().map(|line| (*line).to_owned()).collect(),
        });
        at = end;
    }
    Ok(steps)
}

/// The whole command, and the number of the line after it: a trailing `\` and a here-document go on.
fn take_command(first: &str, lines: &[&str], mut at: usize) -> (String, usize) {
    let mut command = first.to_owned();
    while command.ends_with('\\') && at < lines.len() {
        command = format!("{command}\n{}", lines[at]);
        at += 1;
    }
    if let Some(word) = here_document_word(&command) {
        while at < lines.len() {
            command = format!("{command}\n{}", lines[at]);
            at += 1;
            if lines[at - 1] == word {
                break;
            }
        }
    }
    (command, at)
}

fn here_document_word(command: &str) -> Option<String> {
    let (_, rest) = command.split_once("<<")?;
    let word: String =
        rest.chars().filter(|char| *char != '\'').take_while(|char| char.is_ascii_alphanumeric()).collect();
    (!word.is_empty()).then_some(word)
}

fn unindented(line: &str, indent: usize) -> &str {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    &line[spaces.min(indent)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_session(text: &str) -> Vec<Step> {
        let page = parse("page.md", text).unwrap();
        match page.items.into_iter().next() {
            Some(Item::Session { steps, .. }) => steps,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands_and_their_output_are_told_apart() {
        let steps = only_session("Text\n\n```console\n$ one\nout\n\nmore\n$ two\n```\n");
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0].command, "one");
        assert_eq!(steps[0].expected, ["out", "", "more"]);
        assert_eq!(steps[0].expected_at, 4..7);
        assert_eq!(steps[1].command, "two");
        assert!(steps[1].expected.is_empty());
    }

    #[test]
    fn a_command_may_go_on() {
        let steps =
            only_session("```console\n$ cat <<EOF | wc -l\na\n$ b\nEOF\n2\n$ echo a \\\n  b\na b\n```\n");
        assert_eq!(steps[0].command, "cat <<EOF | wc -l\na\n$ b\nEOF");
        assert_eq!(steps[0].expected, ["2"]);
        assert_eq!(steps[1].command, "echo a \\\n  b");
    }

    #[test]
    fn a_fence_inside_a_list_loses_its_indent() {
        let steps = only_session("1. do\n\n   ```console\n   $ echo a\n     a\n   ```\n");
        assert_eq!(steps[0].expected, ["  a"]);
    }

    #[test]
    fn notes_decide_what_happens_to_a_fence() {
        let text = "<!-- file: a.yaml -->\n\n```yaml\na: 1\n```\n<!-- not tested: needs etcd -->\n```console\n$ x\n```\n\
                    <!-- file: b -->\nText\n```yaml\nb: 1\n```\n";
        let page = parse("page.md", text).unwrap();
        assert_eq!(
            page.items,
            [
                Item::File { name: "a.yaml".to_owned(), text: "a: 1\n".to_owned() },
                Item::Untested { line: 7, reason: "needs etcd".to_owned() },
            ]
        );
    }

    #[test]
    fn what_would_go_untested_unseen_is_refused() {
        let refused = |text: &str, message: &str| {
            let error = parse("page.md", text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        };
        refused("```sh\nplumb get nodes\n```\n", "marked `console`");
        refused("<!-- not tested: -->\n```console\n$ x\n```\n", "why is this not tested?");
        refused("```console\nplumb get nodes\n```\n", "starts with `$ command`");
        refused("```console\n$ x\n", "never closed");
    }

    #[test]
    fn a_longer_fence_may_hold_a_shorter_one() {
        let page = parse("page.md", "````text\n```console\n$ x\n```\n````\n").unwrap();
        assert!(page.items.is_empty());
    }
}
