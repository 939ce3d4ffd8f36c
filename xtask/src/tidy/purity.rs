//! The decision crates decide and do nothing else: no clock, no randomness, no files, no sockets, no threads.
//!
//! Three fences. Their `clippy.toml` bans what the standard library offers for it (clippy enforces that). They
//! may name only the crates listed here. And nothing that talks to the system may be anywhere below them.

use std::path::Path;

use anyhow::Result;

use super::Verdict;
use crate::metadata::{Metadata, Package};
use crate::workspace;

const DECISION_CRATES: &[&str] =
    &["model", "ipam", "plan", "policy", "evidence", "intake", "doctor", "repair", "render"];

/// Crates from outside that a decision crate may name. Each computes; none acts.
const MAY_NAME: &[&str] = &[
    "base64",
    "fnv",
    "ipnet",
    "jiff",
    "regex-lite",
    "regex-syntax",
    "serde",
    "serde_json",
    "serde-saphyr",
    "sha1",
    "sha2",
    "sha3",
    "thiserror",
];

/// Crates that reach the system. They must not come in through another crate either.
const REACHES_THE_SYSTEM: &[&str] = &[
    "async-std",
    "fastrand",
    "getrandom",
    "inotify",
    "libc",
    "mio",
    "netlink-sys",
    "nix",
    "notify",
    "rand",
    "rusqlite",
    "rustix",
    "rustls",
    "signal-hook",
    "socket2",
    "tempfile",
    "tokio",
    "tonic",
    "uuid",
];

pub(super) fn check() -> Result<Verdict> {
    let tree = Metadata::whole_tree()?;
    let mut faults = Vec::new();
    for name in DECISION_CRATES {
        let Some(package) = tree.package(name) else {
            faults.push(format!("there is no crate {name}"));
            continue;
        };
        faults.extend(naming_faults(package));
        faults.extend(reaching_faults(name, &tree.closure(package)));
        faults.extend(fence_fault(name, &package.dir));
    }
    Ok(Verdict::Faults(faults))
}

fn naming_faults(package: &Package) -> Vec<String> {
    let used = package.dependencies.iter().filter(|used| !used.is_dev).map(|used| used.name.as_str());
    used.filter(|used| !MAY_NAME.contains(used) && !DECISION_CRATES.contains(used))
        .map(|used| format!("{} is a decision crate and must not use {used}", package.name))
        .collect()
}

fn reaching_faults(name: &str, closure: &[&Package]) -> Vec<String> {
    let reaching = closure.iter().filter(|package| REACHES_THE_SYSTEM.contains(&package.name.as_str()));
    reaching
        .map(|package| {
            format!(
                "{name} is a decision crate and must not contain {}; `cargo tree -p {name} -i {0}` shows the way",
                package.name
            )
        })
        .collect()
}

/// Every decision crate has the same fence: that of `model`, to which the others link.
fn fence_fault(name: &str, dir: &Path) -> Option<String> {
    let fence = |dir: &Path| std::fs::read_to_string(dir.join("clippy.toml")).ok();
    let wanted = fence(&workspace::root().join("crates/model"));
    let found = fence(dir);
    (found.is_none() || found != wanted)
        .then(|| format!("crates/{name}/clippy.toml must be a link to ../model/clippy.toml"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::metadata::Dependency;
    use crate::scratch::Scratch;

    #[test]
    fn a_crate_that_acts_is_not_let_in() {
        let dependency = |name: &str, is_dev| Dependency { name: name.to_owned(), is_dev };
        let package = Package {
            name: "ipam".to_owned(),
            dependencies: vec![
                dependency("model", false),
                dependency("tokio", false),
                dependency("proptest", true),
            ],
            ..Package::default()
        };
        assert_eq!(naming_faults(&package), ["ipam is a decision crate and must not use tokio"]);
        let below = Package { name: "getrandom".to_owned(), ..Package::default() };
        assert_eq!(reaching_faults("ipam", &[&package, &below]).len(), 1);
    }

    /// One line per ban, each of a kind that a decision crate might be tempted to write.
    const TEMPTATIONS: &[(&str, &str)] = &[
        ("clock", "pub fn t1() -> std::time::SystemTime { std::time::SystemTime::now() }"),
        ("clock", "pub fn t2() { let _ = std::time::Instant::now(); }"),
        ("randomness", "pub fn t3() { let _ = std::collections::HashMap::<u8, u8>::new(); }"),
        ("randomness", "pub fn t4() { let _ = std::hash::RandomState::new(); }"),
        ("files", "pub fn t5() { let _ = std::fs::read(\"x\"); }"),
        ("files", "pub fn t6() { let _ = std::fs::File::open(\"x\"); }"),
        ("files", "pub fn t7() { let _ = std::path::Path::new(\"x\").exists(); }"),
        ("sockets", "pub fn t8() { let _ = std::net::UdpSocket::bind(\"[::1]:0\"); }"),
        ("sockets", "pub fn t9() { let _ = std::os::unix::net::UnixStream::connect(\"x\"); }"),
        ("processes", "pub fn t10() { let _ = std::process::Command::new(\"x\"); }"),
        ("processes", "pub fn t11() { std::process::exit(1) }"),
        ("environment", "pub fn t12() { let _ = std::env::var(\"X\"); }"),
        ("threads", "pub fn t13() { std::thread::spawn(|| ()); }"),
        ("threads", "pub fn t14() { std::thread::sleep(std::time::Duration::ZERO); }"),
        ("output", "pub fn t15() { println!(\"x\"); }"),
        ("input", "pub fn t16() { let _ = std::io::stdin(); }"),
    ];

    /// Clippy itself is asked, with the fence as it stands in the repository.
    #[test]
    fn the_fence_fires_on_every_temptation() {
        let scratch = Scratch::new().unwrap();
        let dir = scratch.path().join("tempted");
        std::fs::create_dir_all(dir.join("src")).unwrap();
        let manifest =
            "[package]\nname = \"tempted\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n";
        std::fs::write(dir.join("Cargo.toml"), manifest).unwrap();
        std::fs::copy(workspace::root().join("crates/model/clippy.toml"), dir.join("clippy.toml")).unwrap();
        let source: Vec<&str> = TEMPTATIONS.iter().map(|(_, line)| *line).collect();
        std::fs::write(dir.join("src/lib.rs"), source.join("\n") + "\n").unwrap();

        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["clippy", "--offline", "--quiet", "--message-format=short"])
            .current_dir(&dir)
            .env("CARGO_TARGET_DIR", scratch.path().join("target"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        for (number, (kind, line)) in TEMPTATIONS.iter().enumerate() {
            let place = format!("src/lib.rs:{}:", number + 1);
            let fired = said.lines().any(|line| line.starts_with(&place) && line.contains("disallowed"));
            assert!(fired, "nothing kept a decision crate from {kind}: {line}\n{said}");
        }
        assert!(!said.contains("does not refer to"), "the fence names something that is not there:\n{said}");
    }
}
