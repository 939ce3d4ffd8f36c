//! One experiment: its folder, its namespaces, the plugin's configuration.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::name::RunName;
use crate::{Namespace, Node, Pod, Programs, namespace};

/// Dropping it removes its folder; nodes and pods remove themselves.
#[derive(Debug)]
pub struct Lab {
    name: RunName,
    folder: PathBuf,
    programs: Programs,
    containers: AtomicU32,
}

impl Lab {
    /// The network name of every lab.
    pub const NETWORK: &str = "lab";

    pub fn new(programs: Programs) -> Result<Lab> {
        if let Some(reason) = crate::missing() {
            bail!("a lab cannot run here: {reason}");
        }
        namespace::remove_stale()?;
        remove_stale_folders();
        let name = RunName::of_this_process();
        let folder = std::env::temp_dir().join(name.to_string());
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot create directory {}", folder.display()))?;
        Ok(Lab { name, folder, programs, containers: AtomicU32::new(1) })
    }

    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// A place for files of this experiment.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn store_path(&self) -> PathBuf {
        self.folder.join("plumb.db")
    }

    /// A node: a namespace with an address of its own, which its pods can reach.
    pub fn node(&self, name: &str) -> Result<Node> {
        Node::new(name, Namespace::create(self.name.thing(name))?)
    }

    /// A pod's sandbox as a runtime makes it: a new namespace and a container ID that was never used before.
    pub fn pod(&self, namespace: &str, name: &str) -> Result<Pod> {
        let number = self.containers.fetch_add(1, Ordering::Relaxed);
        let netns = Namespace::create(self.name.thing(&format!("pod{number}")))?;
        Ok(Pod::new(namespace, name, format!("{number:064x}"), netns))
    }

    /// Where a node keeps what it must remember.
    pub fn state_folder(&self, node: &Node) -> PathBuf {
        self.folder.join(format!("state-{}", node.name()))
    }

    /// The plugin's configuration for a node.
    pub fn netconf(&self, node: &Node) -> Value {
        json!({
            "cniVersion": "1.0.0",
            "name": Lab::NETWORK,
            "type": "plumb-cni",
            "datastore_type": "sqlite",
            "sqlite_path": self.store_path(),
            "nodename": node.name(),
            "state_dir": self.state_folder(node),
            "mtu": 1450,
        })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("lab: directory {} was not removed: {error}", self.folder.display());
        }
    }
}

fn remove_stale_folders() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if RunName::of_thing(&name).is_some_and(|run| !run.is_alive()) {
            // Another run may be cleaning up at the same time.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
