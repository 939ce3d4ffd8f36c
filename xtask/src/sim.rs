//! `cargo xtask sim --seed N …`: hands its arguments to the simulator, once there is one.

use anyhow::{Context as _, Result, bail};

use crate::metadata::Metadata;
use crate::workspace;

pub(crate) fn run(args: &[String]) -> Result<bool> {
    if !exists(&Metadata::ours()?) {
        bail!("the crate `sim` has no program yet: the simulator comes later");
    }
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--package", "sim", "--"]).args(args);
    Ok(command.status().context("cargo run --package sim")?.success())
}

pub(crate) fn exists(metadata: &Metadata) -> bool {
    metadata.package("sim").is_some_and(|package| !package.programs.is_empty())
}
