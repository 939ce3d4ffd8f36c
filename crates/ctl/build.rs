//! Tells `plumb version` which commit it is built from, if the source is a git work tree. Nothing but files is read: a
//! build needs no git.

use std::path::{Path, PathBuf};

const VARIABLE: &str = "PLUMB_COMMIT";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    let source = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let commit = source.ancestors().find_map(git_folder).and_then(|folder| commit(&folder));
    if let Some(commit) = commit {
        println!("cargo::rustc-env={VARIABLE}={commit}");
    }
}

/// The folder of git's own files; of a linked work tree it is elsewhere.
fn git_folder(folder: &Path) -> Option<PathBuf> {
    let git = folder.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let link = std::fs::read_to_string(&git).ok()?;
    Some(folder.join(link.strip_prefix("gitdir: ")?.trim_end()))
}

/// The commit that is checked out, shortened as git shows it.
fn commit(git: &Path) -> Option<String> {
    const LENGTH: usize = 10;
    let head = read(&git.join("HEAD"))?;
    let commit = match head.strip_prefix("ref: ") {
        None => head,
        Some(name) => {
            let common = std::fs::read_to_string(git.join("commondir")).ok();
            let common = common.map_or_else(|| git.to_owned(), |path| git.join(path.trim_end()));
            read(&common.join(name)).or_else(|| packed(&common.join("packed-refs"), name))?
        }
    };
    let is_commit = commit.len() >= LENGTH && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| commit.chars().take(LENGTH).collect())
}

fn read(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text.trim_end().to_owned())
}

fn packed(path: &Path, name: &str) -> Option<String> {
    let text = read(path)?;
    let line = text.lines().find(|line| line.split_once(' ').is_some_and(|(_, of)| of == name))?;
    line.split_once(' ').map(|(commit, _)| commit.to_owned())
}
