//! `cargo xtask demo`: builds the programs and lets `plumb-demo` show the main job with them.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::metadata::Metadata;
use crate::{packages, picture, workspace};

/// The demonstration itself, a program of the crate `lab`.
pub(crate) const PROGRAM: &str = "plumb-demo";

const PICTURE_TITLE: &str = "Part of what cargo xtask demo prints: pods start and reach each other, the doctor explains an outage, plumb repair fixes it";
/// Which steps of the demo a picture shows, by how their titles begin, and how many lines of each.
const SHOWN: &[(&str, usize)] = &[
    ("The runtimes call plumb-cni", 3),
    ("All pods ping each other", 1),
    ("Fourth outage, from collected evidence", 11),
    ("The fourth outage live, fixed with plumb repair", 12),
];
/// How the last line begins, which a picture shows, too.
const LAST_LINE: &str = "Done in";

pub(crate) fn run(args: &[String]) -> Result<bool> {
    let (place, args) = picture_of(args)?;
    if !workspace::is_root() {
        bail!("the demo makes network namespaces, which needs root");
    }
    packages::ensure(&[packages::IP, packages::PING, packages::BIRD])?;
    let metadata = Metadata::ours()?;
    // The same selection as `cargo build --workspace`, so that the two share what they compile.
    let built =
        workspace::cargo().args(["build", "--workspace", "--bins"]).status().context("cargo build")?;
    if !built.success() {
        bail!("the programs could not be built");
    }
    let mut demo = command(&metadata);
    demo.args(args);
    let Some(place) = place else {
        return Ok(demo.status().with_context(not_started)?.success());
    };
    let (succeeded, output) = watched(demo)?;
    if succeeded {
        let lines = excerpt(&output)?;
        std::fs::write(&place, picture::svg(PICTURE_TITLE, &lines))
            .with_context(|| format!("cannot write {}", place.display()))?;
    }
    Ok(succeeded)
}

/// The demonstration with the programs that were built last.
pub(crate) fn command(metadata: &Metadata) -> Command {
    let programs = metadata.program_dir();
    let mut command = Command::new(programs.join(PROGRAM));
    command.arg("--incidents").arg(workspace::root().join("tests/incidents"));
    command.arg("--bin-dir").arg(programs).env("PATH", workspace::search_path());
    command
}

fn not_started() -> String {
    format!("{PROGRAM} could not be started")
}

/// Where a picture is wanted, and the arguments that are the demo's own.
fn picture_of(args: &[String]) -> Result<(Option<PathBuf>, &[String])> {
    match args {
        [flag] if flag == "--picture" => bail!("usage: cargo xtask demo [--picture FILE]"),
        [flag, file, rest @ ..] if flag == "--picture" => Ok((Some(workspace::root().join(file)), rest)),
        rest => Ok((None, rest)),
    }
}

/// Runs it, shows what it prints as it comes, and keeps it.
fn watched(mut demo: Command) -> Result<(bool, String)> {
    let mut child = demo.stdout(Stdio::piped()).spawn().with_context(not_started)?;
    let mut output = String::new();
    for line in BufReader::new(child.stdout.take().context("stdout is piped")?).lines() {
        let line = line.context("cannot read what the demo prints")?;
        println!("{line}");
        output += &format!("{line}\n");
    }
    Ok((child.wait().context("the demo has no end")?.success(), output))
}

/// The lines that a picture shows.
fn excerpt(output: &str) -> Result<Vec<&str>> {
    let mut lines = vec!["$ cargo xtask demo"];
    for (title, count) in SHOWN {
        let is_step = |line: &&str| line.strip_prefix("== ").is_some_and(|found| found.starts_with(title));
        let mut from = output.lines().skip_while(|line| !is_step(line));
        lines.extend(["", from.next().with_context(|| format!("the demo has no step {title:?}"))?]);
        // An empty line stands before each step, and only there.
        lines.extend(from.take_while(|line| !line.is_empty()).take(*count));
    }
    let last = output.lines().rfind(|line| line.starts_with(LAST_LINE));
    lines.extend(["", last.context("the demo did not reach its end")?]);
    refuse_own_paths(&lines)?;
    Ok(lines)
}

/// A picture is for everybody: where this machine keeps its files is nobody's business.
fn refuse_own_paths(lines: &[&str]) -> Result<()> {
    let own = [workspace::root(), std::env::temp_dir(), std::env::home_dir().unwrap_or_default()];
    let own = own.iter().filter(|path| path.components().count() > 1);
    let own: Vec<String> = own.map(|path| path.display().to_string()).collect();
    match lines.iter().find(|line| own.iter().any(|path| line.contains(path))) {
        None => Ok(()),
        Some(line) => bail!("a picture would show a path of this machine: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(of_last_step: &str) -> String {
        let steps: String = SHOWN
            .iter()
            .map(|(title, count)| format!("\n== {title}, and so on\n{}", "   shown\n".repeat(*count)))
            .collect();
        format!("Three nodes\n\n== Another step\n   not shown\n{steps}{of_last_step}\nDone in 60 s\n")
    }

    #[test]
    fn a_picture_shows_some_steps_and_the_end() {
        let output = output("   too much\n");
        let lines = excerpt(&output).unwrap();
        assert_eq!(lines.iter().filter(|line| line.starts_with("== ")).count(), SHOWN.len());
        assert_eq!(lines[0], "$ cargo xtask demo");
        assert_eq!(lines.last(), Some(&"Done in 60 s"));
        assert!(
            !lines.iter().any(|line| line.contains("not shown") || line.contains("too much")),
            "{lines:?}"
        );
        assert!(excerpt("== A demo that has changed\nDone in 1 s\n").is_err());
    }

    #[test]
    fn a_picture_shows_no_path_of_this_machine() {
        let root = workspace::root().display().to_string();
        let error = refuse_own_paths(&["fine", &format!("read {root}/x")]).unwrap_err();
        assert!(error.to_string().contains("a path of this machine"), "{error}");
        assert!(refuse_own_paths(&["/var/lib/plumb/plumb.db"]).is_ok());
    }

    #[test]
    fn every_step_that_is_shown_is_a_step_of_the_demo() {
        let folder = workspace::root().join("crates/lab/src/bin/plumb-demo");
        let source: String =
            workspace::files(&folder).iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        for title in SHOWN.iter().map(|(title, _)| *title).chain([LAST_LINE]) {
            assert!(source.contains(title), "{title}");
        }
    }
}
