//! Which files the image has.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::debian::{self, Package};
use super::tree::{Entry, Tree};
use crate::scratch::Scratch;
use crate::workspace;

pub(super) const PROGRAMS: [&str; 3] = ["plumb", "plumbd", "plumb-cni"];
/// Programs of others: the package, and the path in it. The rest of these packages stays out.
const FOREIGN: [(&str, &str); 5] = [
    ("nftables", "usr/sbin/nft"),
    ("bird2", "usr/sbin/bird"),
    ("containernetworking-plugins", "usr/lib/cni/portmap"),
    ("containernetworking-plugins", "usr/lib/cni/bandwidth"),
    ("containernetworking-plugins", "usr/lib/cni/loopback"),
];
const LOADER: &str = "ld-linux-x86-64.so.2";
/// Where Debian keeps shared libraries.
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu/", "usr/lib/x86_64-linux-gnu/"];

/// Links that a Debian system has, so that every path of a package leads below /usr.
const LINKS: [(&str, &str); 5] = [
    ("bin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("sbin", "usr/sbin"),
    ("var/run", "/run"),
];
/// Directories that are there before anything is mounted.
const DIRECTORIES: [(&str, u32); 14] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("host", 0o755),
    ("proc", 0o755),
    ("run", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("usr/lib", 0o755),
    ("usr/lib64", 0o755),
    ("usr/sbin", 0o755),
    ("var", 0o755),
    ("var/lib", 0o755),
];

#[derive(Debug)]
pub(super) struct Contents {
    /// What others made: it changes seldom, so it is a layer of its own.
    pub(super) foreign: Tree,
    pub(super) own: Tree,
    /// Packages of which something is in the image.
    pub(super) packages: Vec<Package>,
    /// Programs of ours that need shared libraries.
    pub(super) not_static: Vec<String>,
}

impl Contents {
    pub(super) fn collect(programs: &Path, packages: &Path) -> Result<Contents> {
        let mut own = Tree::new();
        for name in PROGRAMS {
            let path = programs.join(name);
            let content =
                std::fs::read(&path).with_context(|| format!("cannot read {}", workspace::shown(&path)))?;
            own.insert(format!("usr/bin/{name}"), Entry::File { mode: 0o755, content });
        }
        let mut contents =
            Contents { foreign: frame(), own, packages: debian::fetch(packages)?, not_static: Vec::new() };
        contents.add_foreign()?;
        let licence = std::fs::read(workspace::root().join("LICENSE")).context("the licence")?;
        contents.add_own("usr/share/doc/plumbline/LICENSE", licence);
        Ok(contents)
    }

    /// One archive for each layer, the lowest first.
    pub(super) fn layers(&self) -> Result<Vec<Vec<u8>>> {
        [&self.foreign, &self.own].into_iter().map(super::tree::write_tar).collect()
    }

    fn add_own(&mut self, path: &str, content: Vec<u8>) {
        for parent in parents(path) {
            self.own.entry(parent).or_insert(Entry::Directory { mode: 0o755 });
        }
        self.own.insert(path.to_owned(), Entry::File { mode: 0o644, content });
    }

    fn add_foreign(&mut self) -> Result<()> {
        let packages = std::mem::take(&mut self.packages);
        let mut used = BTreeSet::new();
        let mut needed: Vec<String> = Vec::new();
        for (name, path) in FOREIGN {
            let package = packages.iter().find(|package| package.name == name);
            let entry = package.and_then(|package| package.files.get(path));
            let Some(entry @ Entry::File { content, .. }) = entry else {
                bail!("the Debian package {name} has no file {path}");
            };
            needed.extend(libraries_of(content)?);
            self.add(path, entry.clone());
            used.insert(name.to_owned());
        }
        for (path, entry) in &self.own {
            let Entry::File { content, .. } = entry else { continue };
            let libraries = libraries_of(content)?;
            if !libraries.is_empty() {
                self.not_static.push(path.clone());
            }
            needed.extend(libraries);
        }
        self.add_libraries(&packages, needed, &mut used)?;
        // Their licences ask for it.
        for package in packages.into_iter().filter(|package| used.contains(&package.name)) {
            let path = format!("usr/share/doc/{}/copyright", package.name);
            if let Some(entry @ Entry::File { .. }) = package.files.get(&path) {
                self.add(&path, entry.clone());
            }
            self.packages.push(package);
        }
        Ok(())
    }

    /// All that the programs load, and all that this loads in turn.
    fn add_libraries(
        &mut self,
        packages: &[Package],
        mut needed: Vec<String>,
        used: &mut BTreeSet<String>,
    ) -> Result<()> {
        let mut done = BTreeSet::new();
        while let Some(name) = needed.pop() {
            if !done.insert(name.clone()) {
                continue;
            }
            let (package, content) = find_library(packages, &name).with_context(|| {
                format!("no package of the image has the library {name}: add it to xtask/src/image/debian.rs")
            })?;
            used.insert(package.name.clone());
            needed.extend(libraries_of(&content)?);
            let folder = if name == LOADER { "usr/lib64" } else { "usr/lib/x86_64-linux-gnu" };
            self.add(&format!("{folder}/{name}"), Entry::File { mode: 0o755, content });
        }
        Ok(())
    }

    fn add(&mut self, path: &str, entry: Entry) {
        for parent in parents(path) {
            self.foreign.entry(parent).or_insert(Entry::Directory { mode: 0o755 });
        }
        self.foreign.insert(path.to_owned(), entry);
    }
}

/// What is there before any program.
fn frame() -> Tree {
    let mut tree = Tree::new();
    tree.extend(DIRECTORIES.map(|(path, mode)| (path.to_owned(), Entry::Directory { mode })));
    tree.extend(LINKS.map(|(path, target)| (path.to_owned(), Entry::Link { target: target.to_owned() })));
    tree
}

/// `usr`, `usr/lib` for `usr/lib/x`.
fn parents(path: &str) -> Vec<String> {
    path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect()
}

/// A library by its name, whatever version of it the name stands for.
fn find_library<'p>(packages: &'p [Package], name: &str) -> Option<(&'p Package, Vec<u8>)> {
    packages.iter().find_map(|package| {
        let folders = LIBRARIES.iter().chain(["lib64/", "usr/lib64/"].iter());
        let mut paths = folders.map(|folder| format!("{folder}{name}"));
        let content = paths.find_map(|path| resolve(package, &path))?;
        Some((package, content))
    })
}

/// The content of a file, through links within its package.
fn resolve(package: &Package, path: &str) -> Option<Vec<u8>> {
    let mut path = path.to_owned();
    for _ in 0..8 {
        match package.files.get(&path)? {
            Entry::File { content, .. } => return Some(content.clone()),
            Entry::Link { target } => {
                path = match target.strip_prefix('/') {
                    Some(absolute) => absolute.to_owned(),
                    None => format!("{}/{target}", path.rsplit_once('/')?.0),
                };
            }
            Entry::Directory { .. } => return None,
        }
    }
    None
}

/// The libraries that a program or library asks for, and the loader that a program asks for. None of a static one.
fn libraries_of(content: &[u8]) -> Result<Vec<String>> {
    let scratch = Scratch::new()?;
    let path = scratch.path().join("program");
    std::fs::File::create(&path)?.write_all(content)?;
    let output = Command::new("readelf")
        .args(["--dynamic", "--program-headers", "--wide"])
        .arg(&path)
        .env("LC_ALL", "C")
        .output();
    let output = output.context("readelf could not be started: install binutils")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !text.contains("Program Headers") {
        bail!("this is no program: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let between =
        |line: &str, start: &str, end: char| Some(line.split_once(start)?.1.split_once(end)?.0.to_owned());
    let mut found = Vec::new();
    for line in text.lines() {
        let is_needed = line.contains("(NEEDED)");
        found.extend(is_needed.then(|| between(line, "[", ']')).flatten());
        let loader = between(line, "program interpreter: ", ']');
        found.extend(loader.and_then(|path| Some(path.rsplit_once('/')?.1.to_owned())));
    }
    Ok(found)
}
