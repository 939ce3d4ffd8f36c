//! The container runtime's half: sandboxes with real network namespaces, and the plugins called for them the way
//! containerd does it.
//!
//! * Each sandbox has a container ID of its own; an ADD is never repeated with the same one.
//! * A failed ADD is followed by a DEL whose failure nobody hears of.
//! * Stopping runs a DEL each time: with the namespace while it is open, with an empty `CNI_NETNS` afterwards.
//!   Removing runs one more.
//! * `CNI_ARGS` come in any order.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use uuid::Uuid;

use super::chain::{self, Attachment, Chain};
use super::conflist::Conflist;
use super::protocol::LeftBehind;
use super::records::{PodRecord, Records, SandboxRecord, State};
use crate::namespace::{NAMESPACES, ip};

const INTERFACE: &str = "eth0";

#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) records: Records,
    pub(super) chain: Chain,
    pub(super) configuration: PathBuf,
    /// While held, DELs wait.
    is_held: Mutex<bool>,
    released: Condvar,
}

impl Runtime {
    pub(super) fn new(records: Records) -> Runtime {
        Runtime {
            records,
            chain: Chain { bin: "/opt/cni/bin".into(), cache: "/var/lib/cni".into() },
            configuration: "/etc/cni/net.d".into(),
            is_held: Mutex::default(),
            released: Condvar::new(),
        }
    }

    /// Makes a sandbox; its container ID.
    pub(super) fn run_sandbox(&self, pod: &PodRecord) -> Result<String> {
        let network = self.network()?;
        let id = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let netns = open_namespace()?;
        let sandbox = SandboxRecord {
            id: id.clone(),
            pod: pod.clone(),
            created_at: now(),
            netns: Some(netns),
            ..SandboxRecord::default()
        };
        self.records.change(|memory| memory.sandboxes.insert(id.clone(), sandbox.clone()))?;
        let attachment = attachment(&sandbox);
        match self.chain.add(&network, &attachment) {
            Ok(result) => {
                let ready = SandboxRecord {
                    state: State::Ready,
                    addresses: chain::addresses(&result),
                    device: chain::device(&result).unwrap_or_default(),
                    ..sandbox
                };
                self.records.change(|memory| memory.sandboxes.insert(id.clone(), ready))?;
                Ok(id)
            }
            Err(error) => {
                if let Err(ignored) = self.chain.del(&network, &attachment) {
                    eprintln!("{id}: after a failed ADD: {ignored:#}");
                }
                close_namespace(&sandbox)?;
                self.records.change(|memory| memory.sandboxes.remove(&id))?;
                Err(error)
            }
        }
    }

    /// DEL, and the namespace is closed. May be repeated.
    pub(super) fn stop_sandbox(&self, id: &str) -> Result<()> {
        self.wait_while_held();
        let Some(sandbox) = self.records.look().sandboxes.get(id).cloned() else { return Ok(()) };
        self.chain.del(&self.network()?, &attachment(&sandbox))?;
        close_namespace(&sandbox)?;
        self.records.change(|memory| {
            if let Some(sandbox) = memory.sandboxes.get_mut(id) {
                sandbox.state = State::Stopped;
                sandbox.netns = None;
            }
        })
    }

    /// Stops it if need be, one DEL more, and forgets it.
    pub(super) fn remove_sandbox(&self, id: &str) -> Result<()> {
        let Some(sandbox) = self.records.look().sandboxes.get(id).cloned() else { return Ok(()) };
        if sandbox.state != State::Stopped {
            self.stop_sandbox(id)?;
        }
        let closed = SandboxRecord { netns: None, ..sandbox };
        self.chain.del(&self.network()?, &attachment(&closed))?;
        self.records.change(|memory| memory.sandboxes.remove(id))?;
        Ok(())
    }

    /// What is left of a sandbox that was lost as in a crash or an upgrade: no DEL.
    pub(super) fn leave_behind(&self, sandbox: &SandboxRecord, leaves: LeftBehind) -> Result<()> {
        match leaves {
            LeftBehind::Namespace => Ok(()),
            LeftBehind::Devices => {
                move_device_out(sandbox)?;
                close_namespace(sandbox)
            }
            LeftBehind::Nothing => close_namespace(sandbox),
        }
    }

    pub(super) fn hold_dels(&self, is_held: bool) {
        *self.is_held.lock().unwrap_or_else(PoisonError::into_inner) = is_held;
        self.released.notify_all();
    }

    fn wait_while_held(&self) {
        let is_held = self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.released.wait_while(is_held, |is_held| *is_held));
    }

    pub(super) fn network(&self) -> Result<Conflist> {
        Conflist::find(&self.configuration)?
            .context("cni plugin not initialized: there is no network configuration")
    }
}

pub(super) fn attachment(sandbox: &SandboxRecord) -> Attachment {
    let pod = &sandbox.pod;
    let mut arguments = vec![
        ("IgnoreUnknown", "1"),
        ("K8S_POD_NAMESPACE", &*pod.namespace),
        ("K8S_POD_NAME", &*pod.name),
        ("K8S_POD_INFRA_CONTAINER_ID", &*sandbox.id),
        ("K8S_POD_UID", &*pod.uid),
    ];
    // containerd keeps them in a map without order.
    let turn = Uuid::new_v4().as_u128() % arguments.len() as u128;
    arguments.rotate_left(usize::try_from(turn).unwrap_or_default());
    let netns = sandbox.netns.clone().filter(|path| Path::new(path).exists());
    Attachment {
        container_id: sandbox.id.clone(),
        netns: netns.unwrap_or_default(),
        interface: INTERFACE.to_owned(),
        arguments: arguments.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        offers: pod.offers.clone(),
    }
}

fn open_namespace() -> Result<String> {
    let name = format!("cni-{}", Uuid::new_v4());
    ip(&["netns", "add", &name])?;
    // Runtimes call the plugin `loopback` for this.
    ip(&["-n", &name, "link", "set", "lo", "up"])?;
    Ok(format!("{NAMESPACES}/{name}"))
}

fn close_namespace(sandbox: &SandboxRecord) -> Result<()> {
    let Some(path) = sandbox.netns.as_deref().filter(|path| Path::new(path).exists()) else { return Ok(()) };
    let name = path.rsplit('/').next().unwrap_or_default();
    ip(&["netns", "del", name]).map(|_| ())
}

/// Into the node's own namespace, under a name that nobody else has there.
fn move_device_out(sandbox: &SandboxRecord) -> Result<()> {
    let Some(path) = &sandbox.netns else { return Ok(()) };
    let namespace = path.rsplit('/').next().unwrap_or_default();
    let name: String = format!("left{}", sandbox.id).chars().take(15).collect();
    ip(&["-n", namespace, "link", "set", "dev", INTERFACE, "down", "name", &name, "netns", "1"]).map(|_| ())
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
