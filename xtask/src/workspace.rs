//! Where things are: the repository, its files, and the programs that were built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::go_tools;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest_dir.parent().expect("xtask lies in a folder of the repository").to_owned()
}

/// `cargo`, the same one that runs us, at the root of the repository.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(describes_xtask) {
            command.env_remove(name);
        }
    }
    command
}

/// Variables in which cargo told us about ourselves. Build scripts look at some of them: passed on, they would
/// make the same crate compile anew each time `cargo xtask` and plain `cargo` take turns.
fn describes_xtask(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
        .iter()
        .any(|own| variable.starts_with(own))
}

/// Every file below `dir` that belongs to the project, in a stable order: build output and git's own are left
/// out. Does not ask git, so that a file counts from the moment it is written.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            let is_link = path.is_symlink();
            if path.is_dir() && !is_link {
                if !is_left_out(&path) {
                    folders.push(path);
                }
            } else if !is_link {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A folder that holds no source: git's own, a build folder, which cargo marks, or what the fuzzer found.
fn is_left_out(folder: &Path) -> bool {
    let is_of_fuzzer = ["corpus", "artifacts"].iter().any(|name| folder.ends_with(format!("fuzz/{name}")));
    is_of_fuzzer
        || folder.ends_with(".git")
        || folder.ends_with("target")
        || folder.join("CACHEDIR.TAG").exists()
}

/// The files below the root whose names end in `.extension`.
pub(crate) fn files_with_extension(extension: &str) -> Vec<PathBuf> {
    files(&root())
        .into_iter()
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}

/// The text of a file that must exist.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", shown(path)))
}

/// A path as it is written in messages: from the root.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The search path for programs, with the folders where administration tools are, which an ordinary user's
/// path may lack, and those where we keep programs that we built ourselves.
pub(crate) fn search_path() -> String {
    let given = std::env::var("PATH").unwrap_or_default();
    let mut folders: Vec<&str> = given.split(':').filter(|folder| !folder.is_empty()).collect();
    for folder in ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"] {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    let built = go_tools::folders();
    folders.extend(built.iter().map(String::as_str));
    folders.join(":")
}

/// Whether `program` can be started by its bare name.
pub(crate) fn has_program(program: &str) -> bool {
    search_path().split(':').any(|folder| Path::new(folder).join(program).is_file())
}

/// Whether we may change the machine: make network namespaces, install packages.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective_uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    effective_uid == Some("0")
}
