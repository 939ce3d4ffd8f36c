//! What the stand-in remembers, on the node's disk: pods it was told to run, sandboxes it has made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// By UID.
    pub(super) pods: BTreeMap<String, PodRecord>,
    /// By container ID.
    pub(super) sandboxes: BTreeMap<String, SandboxRecord>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PodRecord {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) is_deleted: bool,
    /// Sandboxes tried so far.
    pub(super) attempts: u32,
    pub(super) last_error: Option<String>,
    /// What the plugins are offered as runtimeConfig.
    pub(super) offers: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SandboxRecord {
    pub(super) id: String,
    pub(super) pod: PodRecord,
    pub(super) created_at: i64,
    /// Where its network namespace is, until it is closed.
    pub(super) netns: Option<String>,
    pub(super) state: State,
    pub(super) addresses: Vec<String>,
    pub(super) device: String,
    /// Kubernetes, where the lab has it, has been told that the pod runs in it.
    #[serde(default)]
    pub(super) is_reported: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    /// Its ADD has not answered yet; real runtimes do not list it.
    #[default]
    Creating,
    Ready,
    Stopped,
}

/// The memory, shared by all that goes on at once, and its file.
#[derive(Debug)]
pub(super) struct Records {
    memory: Mutex<Memory>,
    changed: Condvar,
    path: PathBuf,
}

impl Records {
    /// `None`: nothing is remembered.
    pub(super) fn open(path: &Path, is_forgetful: bool) -> Result<Records> {
        let memory = match std::fs::read(path) {
            Ok(text) if !is_forgetful => {
                serde_json::from_slice(&text).with_context(|| format!("cannot parse {}", path.display()))?
            }
            _ => Memory::default(),
        };
        Ok(Records { memory: Mutex::new(memory), changed: Condvar::new(), path: path.to_owned() })
    }

    pub(super) fn look(&self) -> Memory {
        self.lock().clone()
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Memory) -> T) -> Result<T> {
        let mut memory = self.lock();
        let outcome = change(&mut memory);
        crate::file::replace(&self.path, serde_json::to_string(&*memory)?.as_bytes())?;
        drop(memory);
        self.changed.notify_all();
        Ok(outcome)
    }

    /// Waits until `is_so`, or as long as `patience`; whether it is so.
    pub(super) fn wait(&self, patience: Duration, is_so: impl Fn(&Memory) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        let mut memory = self.lock();
        loop {
            if is_so(&memory) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            memory = self.changed.wait_timeout(memory, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    pub(super) fn sandboxes_of(&self, uid: &str) -> Vec<String> {
        let own = self.sandboxes.values().filter(|sandbox| sandbox.pod.uid == uid);
        own.map(|sandbox| sandbox.id.clone()).collect()
    }

    pub(super) fn ready_sandbox(&self, uid: &str) -> Option<&SandboxRecord> {
        self.sandboxes.values().find(|sandbox| sandbox.pod.uid == uid && sandbox.state == State::Ready)
    }
}
