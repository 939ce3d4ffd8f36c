//! What cargo knows about the workspace: crates, their dependencies, licences, and where build output goes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace;

#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) target_dir: PathBuf,
    pub(crate) packages: Vec<Package>,
    /// What each package needs to run, by package id. Empty unless the whole tree was asked for.
    pub(crate) needs: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    /// The registry it comes from; `None` for our own.
    pub(crate) source: Option<String>,
    pub(crate) dir: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Needed by tests and benches only.
    pub(crate) is_dev: bool,
}

impl Metadata {
    /// Our own crates only. Answers at once and needs no network.
    pub(crate) fn ours() -> Result<Metadata> {
        read(&["--no-deps", "--offline"])
    }

    /// Our crates and all they need on this platform, every feature on.
    pub(crate) fn whole_tree() -> Result<Metadata> {
        let platform = host_platform()?;
        read(&["--locked", "--all-features", "--filter-platform", &platform])
    }

    /// Where plain `cargo build` leaves the programs.
    pub(crate) fn program_dir(&self) -> PathBuf {
        self.target_dir.join("debug")
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name && package.source.is_none())
    }

    /// Everything `package` needs to run, itself included.
    pub(crate) fn closure(&self, package: &Package) -> Vec<&Package> {
        let mut ids = BTreeSet::from([package.id.as_str()]);
        let mut waiting = vec![package.id.as_str()];
        while let Some(id) = waiting.pop() {
            let needed = self.needs.get(id).into_iter().flatten();
            waiting.extend(needed.map(String::as_str).filter(|id| ids.insert(id)));
        }
        self.packages.iter().filter(|package| ids.contains(package.id.as_str())).collect()
    }
}

fn read(args: &[&str]) -> Result<Metadata> {
    let output = workspace::cargo()
        .args(["metadata", "--format-version", "1"])
        .args(args)
        .output()
        .context("cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let json: Value = serde_json::from_slice(&output.stdout).context("the answer of cargo metadata")?;
    Ok(parse(&json))
}

fn host_platform() -> Result<String> {
    let output = workspace::cargo().args(["--version", "--verbose"]).output().context("cargo --version")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("cargo does not say which platform it runs on")?.to_owned())
}

fn parse(json: &Value) -> Metadata {
    Metadata {
        target_dir: PathBuf::from(text(&json["target_directory"])),
        packages: list(&json["packages"]).iter().map(parse_package).collect(),
        needs: list(&json["resolve"]["nodes"]).iter().map(parse_node).collect(),
    }
}

fn parse_package(json: &Value) -> Package {
    Package {
        id: text(&json["id"]),
        name: text(&json["name"]),
        version: text(&json["version"]),
        license: json["license"].as_str().map(str::to_owned),
        source: json["source"].as_str().map(str::to_owned),
        dir: PathBuf::from(text(&json["manifest_path"])).parent().map(PathBuf::from).unwrap_or_default(),
        dependencies: list(&json["dependencies"]).iter().map(parse_dependency).collect(),
    }
}

fn parse_dependency(json: &Value) -> Dependency {
    Dependency { name: text(&json["name"]), is_dev: json["kind"] == "dev" }
}

/// Which packages a package needs in order to run: what only its tests or its build script need is left out.
fn parse_node(json: &Value) -> (String, BTreeSet<String>) {
    let is_normal = |edge: &&Value| list(&edge["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
    let needed = list(&json["deps"]).iter().filter(is_normal).map(|edge| text(&edge["pkg"])).collect();
    (text(&json["id"]), needed)
}

fn list(json: &Value) -> &[Value] {
    json.as_array().map_or(&[], Vec::as_slice)
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_crates_are_found() {
        let metadata = Metadata::ours().unwrap();
        let model = metadata.package("model").unwrap();
        assert!(model.dir.ends_with("crates/model"));
        assert_eq!(model.source, None);
    }

    #[test]
    fn what_only_tests_need_is_not_in_the_closure() {
        let json = serde_json::json!({
            "target_directory": "/target",
            "packages": [{"id": "a", "name": "a"}, {"id": "b", "name": "b"}, {"id": "c", "name": "c"},
                         {"id": "t", "name": "t"}],
            "resolve": {"nodes": [
                {"id": "a", "deps": [{"pkg": "b", "dep_kinds": [{"kind": null}]},
                                     {"pkg": "t", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "b", "deps": [{"pkg": "c", "dep_kinds": [{"kind": null}, {"kind": "dev"}]}]},
            ]},
        });
        let metadata = parse(&json);
        let names: Vec<&str> = metadata
            .closure(metadata.package("a").unwrap())
            .iter()
            .map(|package| package.name.as_str())
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}
