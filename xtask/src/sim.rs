//! `cargo xtask sim --seed N …`: builds the simulator and hands it the arguments.

use anyhow::{Context as _, Result};

use crate::workspace;

pub(crate) const PROGRAM: &str = "plumb-sim";

pub(crate) fn run(args: &[String]) -> Result<bool> {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--package", "sim", "--bin", PROGRAM, "--"]).args(args);
    Ok(command.status().context("cargo run --package sim")?.success())
}
