//! Files out of Debian packages, by the package's name: downloaded once, never installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::tree::{Entry, read_tar};
use crate::go_tools;

/// Packages that the image may take files from. Those that no program in the image needs are left out.
pub(super) const PACKAGES: &[&str] = &[
    "bird2",
    "containernetworking-plugins",
    "libbsd0",
    "libc6",
    "libcom-err2",
    "libedit2",
    "libgcc-s1",
    "libgcrypt20",
    "libgmp10",
    "libgpg-error0",
    "libgssapi-krb5-2",
    "libjansson4",
    "libk5crypto3",
    "libkeyutils1",
    "libkrb5-3",
    "libkrb5support0",
    "libmd0",
    "libmnl0",
    "libnftables1",
    "libnftnl11",
    "libssh-gcrypt-4",
    "libtinfo6",
    "libxtables12",
    "nftables",
    "zlib1g",
];

#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// Of the package's file.
    pub(super) sha256: String,
    /// Everything in it, by its path without the first slash.
    pub(super) files: BTreeMap<String, Entry>,
}

/// Where downloaded packages are kept, beside all work trees.
pub(super) fn cache() -> Result<PathBuf> {
    let beside = go_tools::cache().context("without HOME there is no cache for Debian packages")?;
    Ok(beside.with_file_name("debian"))
}

/// What this machine's sources offer now; without a network, what was downloaded before.
pub(super) fn fetch(folder: &Path) -> Result<Vec<Package>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let offered = offered().unwrap_or_default();
    PACKAGES.iter().map(|name| read(&find(folder, name, offered.get(*name))?)).collect()
}

/// Which version of each the sources offer.
fn offered() -> Result<BTreeMap<String, String>> {
    let output = Command::new("apt-cache").args(["policy"]).args(PACKAGES).env("LC_ALL", "C").output();
    let output = output.context("apt-cache could not be started: images are made on Debian only")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut versions = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(candidate) = line.trim().strip_prefix("Candidate: ") {
            versions.insert(name.clone(), candidate.to_owned());
        } else if let Some(package) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            name = package.to_owned();
        }
    }
    Ok(versions)
}

fn find(folder: &Path, name: &str, version: Option<&String>) -> Result<PathBuf> {
    // apt writes a colon of a version so.
    let version = version.map(|version| version.replace(':', "%3a"));
    let wanted = format!("{name}_{}", version.clone().unwrap_or_default());
    if let Some(path) = newest(folder, &wanted) {
        return Ok(path);
    }
    let outcome = Command::new("apt-get").args(["download", name]).current_dir(folder).output();
    let outcome = outcome.context("apt-get could not be started: images are made on Debian only")?;
    // What was downloaded before serves, too: the list of parts says which version it is.
    newest(folder, &wanted).or_else(|| newest(folder, &format!("{name}_"))).with_context(|| {
        let why = String::from_utf8_lossy(&outcome.stderr).trim().to_owned();
        format!("cannot download the Debian package {name}: {why}. Run apt-get update, or make the image where there is a network")
    })
}

fn newest(folder: &Path, beginning: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let is_meant = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(beginning) && name.ends_with(".deb")
    };
    entries.filter(is_meant).max()
}

fn read(path: &Path) -> Result<Package> {
    let field = |name: &str| dpkg(&["-f", &path.to_string_lossy(), name]);
    let content = dpkg(&["--fsys-tarfile", &path.to_string_lossy()])?;
    let own = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    let files = read_tar(&content).with_context(|| format!("{} is damaged", path.display()))?;
    Ok(Package {
        name: text(field("Package")?),
        version: text(field("Version")?),
        sha256: super::tree::sha256(&own),
        files,
    })
}

fn dpkg(arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new("dpkg-deb").args(arguments).env("LC_ALL", "C").output();
    let output = output.context("dpkg-deb could not be started: images are made on Debian only")?;
    if !output.status.success() {
        bail!("dpkg-deb {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}
