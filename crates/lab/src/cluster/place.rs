//! Where labs keep their files.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::LabName;
use crate::node_init::SOCKETS;

/// Names another folder for all labs.
pub const VARIABLE: &str = "PLUMB_LAB_DIR";
const USUAL: &str = "/var/lib/plumb-lab";

/// A lab's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    folder: PathBuf,
}

impl Place {
    pub(crate) fn of(name: &LabName) -> Place {
        Place { folder: all_labs().join(name.as_str()) }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn store_file(&self) -> PathBuf {
        self.folder.join("store").join("plumb.db")
    }

    pub(crate) fn etcd_folder(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    /// What the API server keeps, and what lets programs in.
    pub(crate) fn kubernetes_folder(&self) -> PathBuf {
        self.folder.join("kubernetes")
    }

    /// May do everything.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.kubernetes_folder().join("kubeconfig")
    }

    /// What a node's agent may do: what the shipped roles and policies let it.
    pub(crate) fn agent_kubeconfig(&self, node: &str) -> PathBuf {
        self.kubernetes_folder().join(format!("{node}.kubeconfig"))
    }

    /// A node's agent reads it again and again, because it changes.
    pub(crate) fn agent_token(&self, node: &str) -> PathBuf {
        self.kubernetes_folder().join(format!("{node}.token"))
    }

    /// What a node keeps: its disk, its logs, the sockets at which its processes take orders.
    pub(crate) fn node(&self, node: &str) -> PathBuf {
        self.folder.join("nodes").join(node)
    }

    pub(crate) fn init_socket(&self, node: &str) -> PathBuf {
        self.node(node).join("init.sock")
    }

    pub(crate) fn kubelet_socket(&self, node: &str) -> PathBuf {
        self.node(node).join("kubelet.sock")
    }

    /// The node's /run/plumb/agent.sock.
    pub(crate) fn agent_socket(&self, node: &str) -> PathBuf {
        self.node(node).join(SOCKETS).join("agent.sock")
    }

    pub(crate) fn log(&self, node: &str, program: &str) -> PathBuf {
        self.node(node).join("log").join(program)
    }

    /// Keeps others from making or removing this lab until it is dropped, also by being killed. Outside of the lab's
    /// folder, which is removed while the lock is held.
    pub(crate) fn lock(&self) -> Result<File> {
        let locks = all_labs().join(".locks");
        let path = locks.join(self.folder.file_name().unwrap_or_default());
        loop {
            fs::create_dir_all(&locks)
                .with_context(|| format!("cannot create directory {}", locks.display()))?;
            let opened = File::options().create(true).append(true).open(&path);
            // Whoever held the lock may just be removing the folder.
            let Ok(file) = opened else { continue };
            file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
            let is_same = |on_disk: fs::Metadata, held: fs::Metadata| on_disk.ino() == held.ino();
            if fs::metadata(&path)
                .is_ok_and(|on_disk| file.metadata().is_ok_and(|held| is_same(on_disk, held)))
            {
                return Ok(file);
            }
        }
    }

    /// Removes the lab's folder; the lock stays.
    pub(crate) fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.folder.display()))
            }
            _ => Ok(()),
        }
    }

    /// The holder of the lock is done with the lab for good.
    pub(crate) fn remove_lock(&self) {
        let labs = all_labs();
        // The last one closes the door; if other labs are there, the folders stay, and that is right.
        let _ = fs::remove_file(labs.join(".locks").join(self.folder.file_name().unwrap_or_default()));
        let _ = fs::remove_dir(labs.join(".locks"));
        let _ = fs::remove_dir(labs);
    }
}

/// Every lab that has a folder, whole or not.
pub(crate) fn names() -> Vec<LabName> {
    let entries = fs::read_dir(all_labs()).into_iter().flatten().flatten();
    let mut names: Vec<LabName> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    names.sort();
    names
}

fn all_labs() -> PathBuf {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map_or_else(|| USUAL.into(), PathBuf::from)
}
