//! Programs as they are released.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Builds the static program `name` by `cargo xtask build`, into the build directory that the running test or bench comes from.
pub fn build(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("where this program lies")?;
    let target_dir =
        own.ancestors().nth(3).context("a test lies three directories below the build directory")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["xtask", "build", name]).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    cargo.env("CARGO_TARGET_DIR", target_dir).stdout(Stdio::null());
    ensure!(cargo.status().context("cargo xtask build")?.success(), "{name} does not build");
    Ok(target_dir.join("release").join(name))
}
