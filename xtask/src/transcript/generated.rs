//! Pages that a program of ours writes as a whole.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::workspace;

/// The page, and the command that prints it.
const PAGES: &[(&str, &[&str])] = &[("docs/findings.md", &["plumb", "doctor", "explain", "--markdown"])];

/// How many pages are not what their command prints; with `accept` they are after this.
pub(super) fn compare(programs: &Path, accept: bool) -> Result<usize> {
    let mut outdated = 0;
    for (page, command) in PAGES {
        let (program, arguments) = command.split_first().context("a command has a program")?;
        let output = Command::new(programs.join(program)).args(arguments).output().context(*program)?;
        if !output.status.success() {
            bail!("{} failed: {}", command.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        let path = workspace::root().join(page);
        if std::fs::read(&path).ok().as_deref() == Some(&output.stdout) {
            continue;
        }
        println!("{page}: is not what {} prints", command.join(" "));
        outdated += 1;
        if accept {
            std::fs::write(&path, &output.stdout).with_context(|| format!("cannot write {page}"))?;
        }
    }
    Ok(outdated)
}
