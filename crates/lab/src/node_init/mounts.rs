//! A node's own folders, in its own mount namespace: what a node writes stays in the node.
//!
//! The rest of the machine is seen through: each folder in which a node needs something of its own is replaced by the
//! node's, with links to the machine's entries. (An overlay would do the same, but not on every file system.)

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, mount, mount_bind_recursive};

/// Where the machine's own folders are seen.
const MACHINE: &str = "/run/machine";

/// A folder of which the node has its own version.
struct Own {
    path: &'static str,
    /// Below the node's folder.
    name: &'static str,
    /// Entries that are never the machine's.
    private: &'static [&'static str],
}

const OWN: [Own; 3] = [
    Own { path: "/etc", name: "etc", private: &["cni", "calico"] },
    Own { path: "/opt", name: "opt", private: &["cni"] },
    Own { path: "/var/lib", name: "var-lib", private: &["plumb", "cni", "calico", "containerd", "kubelet"] },
];

/// Folders that a node has from the start.
const MADE: [&str; 7] =
    ["etc/cni/net.d", "opt/cni/bin", "var-lib/plumb", "var-lib/cni", "var-lib/kubelet", "log", SOCKETS];
/// The node's /run/plumb, below its folder: its agent can be asked from elsewhere.
pub(crate) const SOCKETS: &str = "run";

/// What a node's folder holds before its first start.
pub(crate) fn prepare(node_folder: &Path) -> Result<()> {
    for folder in MADE {
        let path = node_folder.join(folder);
        fs::create_dir_all(&path).with_context(|| format!("cannot create directory {}", path.display()))?;
    }
    Ok(())
}

pub(super) fn make(node_folder: &Path) -> Result<()> {
    mount_new("proc", "/proc")?;
    mount_new("tmpfs", "/run")?;
    for folder in ["/run/netns", "/run/lock", MACHINE] {
        fs::create_dir_all(folder)?;
    }
    share_sockets(&node_folder.join(SOCKETS))?;
    // Shows the node's own devices. Not every machine allows it, and hardly anything needs it.
    if let Err(error) = mount_new("sysfs", "/sys") {
        eprintln!("/sys is still that of the machine: {error:#}");
    }
    OWN.iter().try_for_each(|own| replace(own, node_folder))
}

/// As everything in /run, it is empty after a boot.
fn share_sockets(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::DirBuilder::new().mode(0o700).create(folder)?;
    fs::create_dir("/run/plumb")?;
    bind(folder, Path::new("/run/plumb"))
}

fn replace(own: &Own, node_folder: &Path) -> Result<()> {
    let machine = Path::new(MACHINE).join(own.name);
    fs::create_dir(&machine)?;
    bind(Path::new(own.path), &machine)?;
    let folder = node_folder.join(own.name);
    link_entries(&machine, &folder, own.private)?;
    bind(&folder, Path::new(own.path))
}

/// Gives a folder links to another's entries, unless it has its own. Those of an earlier boot are replaced: the
/// machine may have changed.
fn link_entries(machine: &Path, folder: &Path, private: &[&str]) -> Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        if fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(MACHINE)) {
            fs::remove_file(entry.path())?;
        }
    }
    for entry in fs::read_dir(machine)?.flatten() {
        let own: PathBuf = folder.join(entry.file_name());
        let is_private = private.iter().any(|name| entry.file_name() == *name);
        if !is_private && own.symlink_metadata().is_err() {
            symlink(entry.path(), own)?;
        }
    }
    Ok(())
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    mount_bind_recursive(from, to)
        .with_context(|| format!("cannot mount {} at {}", from.display(), to.display()))
}

fn mount_new(kind: &str, at: &str) -> Result<()> {
    mount(kind, at, kind, MountFlags::empty(), None).with_context(|| format!("cannot mount {kind} at {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_sees_the_machine_except_where_it_has_its_own() {
        let scratch = tempfile::tempdir().unwrap();
        let (machine, node) = (scratch.path().join("machine"), scratch.path().join("node"));
        for folder in [machine.join("ssl"), machine.join("cni"), machine.join("app"), node.join("app")] {
            fs::create_dir_all(folder).unwrap();
        }
        symlink(format!("{MACHINE}/gone"), node.join("gone")).unwrap();
        for _ in 0..2 {
            link_entries(&machine, &node, &["cni"]).unwrap();
            assert_eq!(fs::read_link(node.join("ssl")).unwrap(), machine.join("ssl"));
            assert!(!node.join("cni").exists());
            assert!(node.join("app").symlink_metadata().unwrap().is_dir());
            assert!(node.join("gone").symlink_metadata().is_err());
        }
    }
}
