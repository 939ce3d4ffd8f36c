//! Checks that Rust's own tools make: format and lints.

use std::process::Command;

use anyhow::{Context as _, Result};

use super::Verdict;
use crate::workspace;

pub(super) fn format() -> Result<Verdict> {
    run_component("rustfmt", workspace::cargo().args(["fmt", "--all", "--check"]))
}

pub(super) fn clippy() -> Result<Verdict> {
    run_component(
        "clippy",
        workspace::cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--keep-going",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]),
    )
}

/// Runs one of cargo's components, which a bare toolchain may lack: `rust-toolchain.toml` makes rustup install
/// them, but not everyone has rustup.
fn run_component(component: &str, command: &mut Command) -> Result<Verdict> {
    let output = command.output().with_context(|| format!("{component} could not be started"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    if output.status.success() {
        return Ok(Verdict::Faults(Vec::new()));
    }
    if said.contains("no such command") || said.contains("is not installed for the toolchain") {
        return Ok(Verdict::Skipped(format!(
            "{component} is not installed: rustup component add {component}"
        )));
    }
    Ok(Verdict::Faults(vec![said]))
}
