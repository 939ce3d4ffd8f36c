//! Which code of others we may build on: `deny.toml` says it, for `cargo deny` and for this check alike. The
//! check reads only what cargo already has here, so it holds without network and without another tool.

use anyhow::{Context as _, Result, bail};

use super::Verdict;
use super::licence::is_allowed;
use crate::metadata::{Metadata, Package};
use crate::workspace;

#[derive(Debug, Default, PartialEq, Eq)]
struct Policy {
    licences: Vec<String>,
    /// A licence that only one crate may have: crate and licence.
    exceptions: Vec<(String, String)>,
    banned: Vec<String>,
    registries: Vec<String>,
}

pub(super) fn check() -> Result<Verdict> {
    let policy = parse(&workspace::read(&workspace::root().join("deny.toml"))?)?;
    let tree = Metadata::whole_tree()?;
    let used = tree.packages.iter().filter(|package| tree.needs.contains_key(&package.id));
    Ok(Verdict::Faults(used.flat_map(|package| faults_in(package, &policy)).collect()))
}

fn faults_in(package: &Package, policy: &Policy) -> Vec<String> {
    let name = format!("{} {}", package.name, package.version);
    let mut faults = Vec::new();
    if policy.banned.contains(&package.name) {
        faults.push(format!(
            "{name} is banned by deny.toml; `cargo tree -i {}` shows who wants it",
            package.name
        ));
    }
    if let Some(source) = &package.source
        && !policy.registries.iter().any(|registry| source == &format!("registry+{registry}"))
    {
        faults.push(format!("{name} comes from {source}, which deny.toml does not allow"));
    }
    let mut allowed = policy.licences.clone();
    let own = policy.exceptions.iter().filter(|(crate_name, _)| *crate_name == package.name);
    allowed.extend(own.map(|(_, licence)| licence.clone()));
    match package.license.as_deref().map(|expression| is_allowed(expression, &allowed)) {
        Some(Ok(true)) => {}
        Some(Ok(false)) => {
            let licence = package.license.as_deref().unwrap_or_default();
            faults.push(format!("{name} has the licence {licence}, which deny.toml does not allow"));
        }
        Some(Err(error)) => faults.push(format!("{name}: {error:#}")),
        None => faults.push(format!("{name} does not say which licence it has")),
    }
    faults
}

/// Reads the lists of `deny.toml` that we share with `cargo deny`. Not a TOML reader: it knows tables, and
/// arrays with one entry per line, which is how that file is written.
fn parse(text: &str) -> Result<Policy> {
    let mut policy = Policy::default();
    let (mut table, mut array) = (String::new(), String::new());
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = name.to_owned();
        } else if let Some((name, "[")) = line.split_once(" = ") {
            array = name.to_owned();
        } else if line == "]" {
            array.clear();
        } else if !array.is_empty() && !line.is_empty() {
            let mut quoted = line.split('"').skip(1).step_by(2).map(str::to_owned);
            let first =
                quoted.next().with_context(|| format!("deny.toml: {line}: expected a quoted word"))?;
            match (table.as_str(), array.as_str()) {
                ("licenses", "allow") => policy.licences.push(first),
                ("licenses", "exceptions") => {
                    let crate_name =
                        quoted.next().with_context(|| format!("deny.toml: {line}: which crate?"))?;
                    policy.exceptions.push((crate_name, first));
                }
                ("bans", "deny") => policy.banned.push(first),
                ("sources", "allow-registry") => policy.registries.push(first),
                _ => {}
            }
        }
    }
    if policy.licences.is_empty() || policy.banned.is_empty() || policy.registries.is_empty() {
        bail!("deny.toml: a list of licences, bans or registries is empty: one entry per line");
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = r#"
[licenses]
allow = [
    "MIT", # a comment
    "Apache-2.0",
]
exceptions = [
    { allow = ["Zlib"], crate = "foldhash" },
]

[bans]
multiple-versions = "allow"
deny = [
    { crate = "openssl", reason = "one TLS library" },
]

[sources]
allow-registry = [
    "https://example.org/index",
]
"#;

    fn package(name: &str, license: Option<&str>, source: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
            source: source.map(str::to_owned),
            ..Package::default()
        }
    }

    #[test]
    fn the_lists_of_the_policy_are_read() {
        let policy = parse(DENY).unwrap();
        assert_eq!(policy.licences, ["MIT", "Apache-2.0"]);
        assert_eq!(policy.exceptions, [("foldhash".to_owned(), "Zlib".to_owned())]);
        assert_eq!(policy.banned, ["openssl"]);
        assert_eq!(policy.registries, ["https://example.org/index"]);
        assert!(parse("[licenses]\nallow = [\"MIT\"]\n").is_err(), "a list on one line would be missed");
    }

    #[test]
    fn what_the_policy_forbids_is_found() {
        let policy = parse(DENY).unwrap();
        let check = |package: Package, words: &[&str]| {
            let faults = faults_in(&package, &policy);
            assert_eq!(faults.len(), words.len(), "{faults:?}");
            assert!(faults.iter().zip(words).all(|(fault, word)| fault.contains(word)), "{faults:?}");
        };
        let registry = Some("registry+https://example.org/index");
        check(package("fine", Some("MIT OR GPL-2.0"), registry), &[]);
        check(package("ours", Some("Apache-2.0"), None), &[]);
        check(package("openssl", Some("Apache-2.0"), registry), &["banned"]);
        check(package("copyleft", Some("GPL-3.0-only"), registry), &["GPL-3.0-only"]);
        check(package("foldhash", Some("Zlib"), registry), &[]);
        check(package("other", Some("Zlib"), registry), &["Zlib"]);
        check(package("silent", None, registry), &["does not say"]);
        check(package("forked", Some("MIT"), Some("git+https://example.org/fork")), &["comes from"]);
    }

    #[test]
    fn the_policy_of_this_repository_can_be_read() {
        let text = std::fs::read_to_string(workspace::root().join("deny.toml")).unwrap();
        let policy = parse(&text).unwrap();
        for banned in ["aws-lc-rs", "openssl-sys", "native-tls"] {
            assert!(policy.banned.iter().any(|name| name == banned), "{banned}");
        }
    }
}
