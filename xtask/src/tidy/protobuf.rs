//! Committed protobuf code is what `tools/protobuf` generates. The tool needs protoc and crates that an ordinary build does
//! not, so where those cannot be had the check is skipped.

use anyhow::{Context as _, Result};

use super::Verdict;
use crate::workspace;

const MANIFEST: &str = "tools/protobuf/Cargo.toml";

pub(super) fn check() -> Result<Verdict> {
    if !workspace::has_program("protoc") {
        return Ok(Verdict::Skipped("there is no protoc (Debian package protobuf-compiler)".to_owned()));
    }
    let cargo = |args: &[&str]| {
        let mut cargo = workspace::cargo();
        cargo.args(args).args(["--quiet", "--locked", "--manifest-path", MANIFEST]);
        cargo
    };
    if !cargo(&["fetch"]).output().context("cargo fetch")?.status.success() {
        return Ok(Verdict::Skipped("the crates of tools/protobuf cannot be fetched".to_owned()));
    }
    let output = cargo(&["run"]).args(["--", "--check"]).output().context("tools/protobuf")?;
    if output.status.success() {
        return Ok(Verdict::Faults(Vec::new()));
    }
    let printed = [output.stdout, output.stderr].concat();
    Ok(Verdict::Faults(vec![String::from_utf8_lossy(&printed).trim().to_owned()]))
}
