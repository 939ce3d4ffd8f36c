//! `cargo xtask demo`: builds the programs and lets `plumb-demo` show the main job with them.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::metadata::Metadata;
use crate::{packages, workspace};

/// The demonstration itself, a program of the crate `lab`.
pub(crate) const PROGRAM: &str = "plumb-demo";

pub(crate) fn run(args: &[String]) -> Result<bool> {
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
    let status =
        command(&metadata).args(args).status().with_context(|| format!("{PROGRAM} could not be started"))?;
    Ok(status.success())
}

/// The demonstration with the programs that were built last.
pub(crate) fn command(metadata: &Metadata) -> Command {
    let programs = metadata.program_dir();
    let mut command = Command::new(programs.join(PROGRAM));
    command.arg("--incidents").arg(workspace::root().join("tests/incidents"));
    command.arg("--bin-dir").arg(programs).env("PATH", workspace::search_path());
    command
}
