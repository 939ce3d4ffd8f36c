//! Runs the commands of one page, one after the other, in a small world of their own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::matching::matches;
use super::page::{Item, Page, Step};
use crate::process::{self, End, Finished};
use crate::workspace;

const ALLOWED: Duration = Duration::from_secs(120);

/// What became of one command.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The page's line of the fence that the command stands in.
    pub(crate) fence: usize,
    pub(crate) failure: Option<String>,
    /// As it can be written into the page: the folder it ran in is another one each time.
    actual: String,
}

pub(crate) fn run(page: &Page, programs: &Path, scratch: &Path) -> Result<Vec<Outcome>> {
    let world = World::new(page, programs, scratch)?;
    let mut outcomes = Vec::new();
    let mut last_code = 0;
    for item in &page.items {
        match item {
            Item::File { name, text } => world.write(name, text)?,
            Item::Untested { .. } => {}
            Item::Session { line, steps } => {
                for (index, step) in steps.iter().enumerate() {
                    let finished = world.run(&step.command, last_code)?;
                    let next_asks = steps.get(index + 1).is_some_and(|next| next.command == "echo $?");
                    let failure = judge(page, *line, step, &finished, next_asks);
                    last_code = exit_code(&finished);
                    let actual = world.without_own_path(&finished.output);
                    outcomes.push(Outcome { fence: *line, failure, actual });
                }
            }
        }
    }
    Ok(outcomes)
}

/// The page with every output replaced by what was really printed, where the two differ.
pub(crate) fn accepted(page: &Page, outcomes: &[Outcome]) -> String {
    let mut lines: Vec<String> = page.text.lines().map(str::to_owned).collect();
    let steps = page.items.iter().flat_map(|item| match item {
        Item::Session { steps, .. } => steps.as_slice(),
        _ => &[],
    });
    let mut changed: Vec<(&Step, &Outcome)> = steps.zip(outcomes).collect();
    changed.retain(|(step, outcome)| !matches(&step.expected, &outcome.actual));
    // From the end, so that the line numbers before stay true.
    for (step, outcome) in changed.into_iter().rev() {
        let new = outcome.actual.lines().map(|line| format!("{}{line}", step.indent).trim_end().to_owned());
        lines.splice(step.expected_at.clone(), new);
    }
    lines.join("\n") + "\n"
}

fn judge(page: &Page, fence: usize, step: &Step, finished: &Finished, code_is_shown: bool) -> Option<String> {
    let place = format!("{}:{fence}: $ {}", page.name, step.command);
    if !matches(&step.expected, &finished.output) {
        let expected = step.expected.join("\n");
        return Some(format!(
            "{place}\n--- the page says\n{expected}\n--- it prints\n{}---",
            finished.output
        ));
    }
    match finished.end {
        End::Exited(status) if status.success() || code_is_shown => None,
        end => Some(format!("{place}\n{end}, and no `echo $?` follows\n{}", finished.output)),
    }
}

fn exit_code(finished: &Finished) -> i32 {
    match finished.end {
        End::Exited(status) => status.code().unwrap_or(-1),
        End::TimedOut(_) | End::Quiet(_) => -1,
    }
}

struct World {
    folder: PathBuf,
    /// Outside the folder, so that `ls` shows the reader's files only.
    variables: PathBuf,
    path: String,
    scratch: PathBuf,
}

impl World {
    fn new(page: &Page, programs: &Path, scratch: &Path) -> Result<World> {
        let name: String =
            page.name.chars().map(|char| if char.is_alphanumeric() { char } else { '-' }).collect();
        let folder = scratch.join("docs").join(&name);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(World {
            variables: scratch.join(format!("{name}.variables")),
            path: format!("{}:{}", programs.display(), workspace::search_path()),
            scratch: scratch.to_owned(),
            folder,
        })
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        }
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn without_own_path(&self, output: &str) -> String {
        output.replace(&self.folder.display().to_string(), "[..]")
    }

    /// Each command has a shell of its own, which starts with the exported variables and the exit code that
    /// the one before left.
    fn run(&self, command: &str, last_code: i32) -> Result<Finished> {
        let script = format!(
            "exec 2>&1; trap 'code=$?; export -p >\"$VARIABLES\"; exit $code' EXIT\n\
             [ -e \"$VARIABLES\" ] && . \"$VARIABLES\"\n(exit {last_code})\n{command}"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(&self.folder).env_clear();
        shell.env("PATH", &self.path).env("HOME", &self.folder).env("TMPDIR", &self.scratch);
        shell.env("LANG", "C.UTF-8").env("VARIABLES", &self.variables);
        shell.env("SQLITE_PATH", self.folder.join("plumb.db"));
        process::capture(&mut shell, ALLOWED, &mut |_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::transcript::parse;

    fn outcomes(text: &str) -> (Page, Vec<Outcome>) {
        let page = parse("page.md", text).unwrap();
        let scratch = Scratch::new().unwrap();
        let outcomes = run(&page, Path::new("/nowhere"), scratch.path()).unwrap();
        (page, outcomes)
    }

    #[track_caller]
    fn check(text: &str, failures: &[&str]) {
        let (_, outcomes) = outcomes(text);
        let found: Vec<String> = outcomes.into_iter().filter_map(|outcome| outcome.failure).collect();
        assert_eq!(found.len(), failures.len(), "{found:#?}");
        for (found, wanted) in found.iter().zip(failures) {
            assert!(found.contains(wanted), "{found}");
        }
    }

    #[test]
    fn right_output_passes_and_wrong_output_is_shown() {
        check("```console\n$ echo a; echo b >&2\na\nb\n```\n", &[]);
        check("```console\n$ echo a\nb\n```\n", &["--- it prints\na\n"]);
    }

    #[test]
    fn a_failure_must_be_shown_to_the_reader() {
        check("```console\n$ exit 3\n```\n", &["exit status: 3"]);
        check("```console\n$ exit 3\n$ echo $?\n3\n```\n", &[]);
        check("```console\n$ exit 3\n$ echo $?\n4\n```\n", &["--- it prints\n3\n"]);
    }

    #[test]
    fn files_variables_and_the_folder_are_shared_within_a_page() {
        let text = "<!-- file: a/b.txt -->\n```text\nhello\n```\n\n```console\n$ cat a/b.txt\nhello\n$ export X=\"1 2\"\n```\n\
                    \n```console\n$ echo \"$X\" >c; cat c; ls\n1 2\na\nc\n$ ls plumb.db\n...\n$ echo $?\n2\n```\n";
        check(text, &[]);
    }

    #[test]
    fn the_environment_of_the_caller_does_not_leak_in() {
        check(
            "```console\n$ echo ${CARGO_MANIFEST_DIR-none}; basename $SQLITE_PATH\nnone\nplumb.db\n```\n",
            &[],
        );
    }

    #[test]
    fn accepting_rewrites_only_what_differs() {
        let text = "A\n```console\n$ echo 1; echo 2\n...\n$ echo 3\n4\n5\n$ echo 6\n$ echo $PWD/x\n```\nB\n";
        let (page, outcomes) = outcomes(text);
        let new = accepted(&page, &outcomes);
        let expected =
            "A\n```console\n$ echo 1; echo 2\n...\n$ echo 3\n3\n$ echo 6\n6\n$ echo $PWD/x\n[..]/x\n```\nB\n";
        assert_eq!(new, expected);
    }
}
