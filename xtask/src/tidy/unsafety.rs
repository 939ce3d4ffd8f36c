//! `unsafe` stands in the crate `host` and nowhere else. The compiler holds that line; this checks that nobody
//! moved it.

use anyhow::Result;

use super::Verdict;
use crate::metadata::Metadata;
use crate::workspace;

const MAY_BE_UNSAFE: &str = "host";
const FORBIDDEN: &str = "unsafe_code = \"forbid\"";
/// Can be lifted for one function, with a reason.
const DENIED: &str = "unsafe_code = \"deny\"";

pub(super) fn check() -> Result<Verdict> {
    let ours = workspace::read(&workspace::root().join("Cargo.toml"))?;
    let mut faults = Vec::new();
    if !section(&ours, "workspace.lints.rust").contains(&FORBIDDEN.to_owned()) {
        faults.push(format!("Cargo.toml: [workspace.lints.rust] must say {FORBIDDEN}"));
    }
    for package in Metadata::ours()?.packages {
        let manifest = workspace::read(&package.dir.join("Cargo.toml"))?;
        faults.extend(fault_in(&package.name, &manifest, &ours));
    }
    Ok(Verdict::Faults(faults))
}

/// A crate takes the workspace's lints whole. Only `host` spells them out, because cargo knows no "all but
/// one", and then they must be the same but for that one.
fn fault_in(name: &str, manifest: &str, workspace: &str) -> Option<String> {
    if name != MAY_BE_UNSAFE {
        let takes_all = section(manifest, "lints") == ["workspace = true"];
        return (!takes_all).then(|| format!("{name}: its Cargo.toml must say [lints] workspace = true"));
    }
    let same = |table: &str| {
        let mut wanted = section(workspace, &format!("workspace.lints.{table}"));
        wanted.iter_mut().filter(|line| *line == FORBIDDEN).for_each(|line| *line = DENIED.to_owned());
        wanted == section(manifest, &format!("lints.{table}"))
    };
    (!same("rust") || !same("clippy"))
        .then(|| format!("{name}: its lints must be those of the workspace, with {DENIED}"))
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

    const WORKSPACE: &str = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\nx = \"warn\"\n\n\
        [workspace.lints.clippy]\n# a reason\ny = \"warn\"\n";

    #[test]
    fn a_crate_takes_all_lints_of_the_workspace() {
        let whole = "[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n\n[dependencies]\n";
        let own = "[package]\nname = \"x\"\n\n[lints.rust]\nunsafe_code = \"allow\"\n";
        assert_eq!(fault_in("store", whole, WORKSPACE), None);
        assert!(fault_in("store", own, WORKSPACE).is_some());
        assert!(fault_in("store", "[package]\n", WORKSPACE).is_some());
    }

    #[test]
    fn host_may_differ_in_one_only() {
        let right = "[lints.rust]\nunsafe_code = \"deny\"\nx = \"warn\"\n\n[lints.clippy]\ny = \"warn\"\n";
        assert_eq!(fault_in("host", right, WORKSPACE), None);
        assert!(fault_in("host", &right.replace("y = \"warn\"\n", ""), WORKSPACE).is_some());
        assert!(fault_in("host", &right.replace("deny", "allow"), WORKSPACE).is_some());
    }
}
