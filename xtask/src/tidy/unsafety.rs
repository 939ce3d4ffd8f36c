//! `unsafe` stands in the crate `host` and nowhere else. The compiler holds that line; this checks that nobody
//! moved it.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::Verdict;
use crate::metadata::Metadata;
use crate::workspace;

const MAY_BE_UNSAFE: &str = "host";

pub(super) fn check() -> Result<Verdict> {
    let mut faults = Vec::new();
    if !section(&read(workspace::root().join("Cargo.toml"))?, "workspace.lints.rust")
        .contains(&"unsafe_code = \"forbid\"".to_owned())
    {
        faults.push("Cargo.toml: [workspace.lints.rust] must say unsafe_code = \"forbid\"".to_owned());
    }
    for package in Metadata::ours()?.packages {
        let manifest = read(package.dir.join("Cargo.toml"))?;
        faults.extend(fault_in(&package.name, &manifest));
    }
    Ok(Verdict::Faults(faults))
}

fn read(path: PathBuf) -> Result<String> {
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// A crate either takes the workspace's lints whole, or is the one that may differ.
fn fault_in(name: &str, manifest: &str) -> Option<String> {
    let takes_all = section(manifest, "lints") == ["workspace = true"];
    (!takes_all && name != MAY_BE_UNSAFE)
        .then(|| format!("{name}: its Cargo.toml must say [lints] workspace = true and nothing else there"))
}

/// The lines of one table of a manifest.
fn section(manifest: &str, name: &str) -> Vec<String> {
    let heading = format!("[{name}]");
    let after = manifest.lines().skip_while(|line| line.trim() != heading).skip(1);
    let lines = after.take_while(|line| !line.starts_with('['));
    lines
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_may_have_lints_of_its_own() {
        let whole = "[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n\n[dependencies]\n";
        let own = "[package]\nname = \"x\"\n\n[lints.rust]\nunsafe_code = \"allow\"\n";
        assert_eq!(fault_in("store", whole), None);
        assert!(fault_in("store", own).is_some());
        assert!(fault_in("store", "[package]\n").is_some());
        assert_eq!(fault_in("host", own), None);
    }
}
