//! DELs that could not be completed: each in a file that survives a power failure, until a retry completes it.
//!
//! The plugin queues them while no agent answers, the agent while the store does not. A retry is the same DEL again: it is idempotent and
//! fenced by its sandbox.

mod worker;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use evidence::node::UnfinishedDel;
use jiff::Timestamp;
use model::Sandbox;
use tokio::sync::Notify;
use tracing::info;

pub(crate) use worker::{work, work_once};

use crate::files::{Directory, Survives};
use crate::verbs::sandbox_of;

#[derive(Debug)]
pub(crate) struct DelQueue {
    files: Directory,
    added: Notify,
}

impl DelQueue {
    /// The queue in a state directory. Nothing is created there before it is needed.
    pub(crate) fn at(state_dir: &Path) -> DelQueue {
        DelQueue { files: Directory::at(state_dir.join(wire::QUEUE_DIR)), added: Notify::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.files.path()
    }

    /// Whether there are DELs or left-over temporary files, as far as the directory can be read.
    pub(crate) fn has_any(&self) -> bool {
        self.files.has_any()
    }

    /// Queues a DEL. When this returns, it survives a power failure.
    pub(crate) fn add(&self, request: &wire::Call) -> io::Result<()> {
        let content = request.encode();
        self.files.create_durably()?;
        self.files.write(&wire::queue_name(&content), &content, Survives::PowerFailure)?;
        self.added.notify_one();
        Ok(())
    }

    /// Whether a DEL could be queued now, tested without creating the directory.
    pub(crate) fn test_write(&self) -> io::Result<()> {
        if self.files.path().exists() { self.files.test_write() } else { Ok(()) }
    }

    /// All queued DELs, the oldest first. Files that cannot be read as a DEL are quarantined.
    pub(crate) fn waiting(&self) -> io::Result<Vec<(String, wire::Call)>> {
        let mut found = Vec::new();
        for (_, name) in self.files.names_with_times()? {
            let Some(content) = self.files.read(&name)? else { continue };
            match wire::Call::decode(&content) {
                Ok(request) if request.verb() == "DEL" => {
                    found.push((name, request));
                }
                Ok(_) => self.files.quarantine(&name, "not a DEL"),
                Err(error) => self.files.quarantine(&name, &error.to_string()),
            }
        }
        Ok(found)
    }

    /// Evidence for the doctor: what is queued, and what was quarantined.
    pub(crate) fn evidence(&self) -> io::Result<Vec<UnfinishedDel>> {
        let mut found = Vec::new();
        for (changed, name) in self.files.names_with_times()? {
            // Gone since it was listed: completed.
            let Some(content) = self.files.read(&name)? else { continue };
            let sandbox = wire::Call::decode(&content).ok().and_then(|request| sandbox_of(&request));
            let container_id = sandbox.map(|sandbox| sandbox.container_id().to_owned());
            found.push(unfinished_del(changed, name, container_id, false));
        }
        let quarantined = self.files.quarantined()?.into_iter();
        found.extend(quarantined.map(|(changed, name)| unfinished_del(changed, name, None, true)));
        Ok(found)
    }

    /// Removes temporary files of writers that were killed: they had not reported success.
    fn remove_stale_temporaries(&self) -> io::Result<()> {
        self.files.remove_stale_temporaries()
    }

    /// The queued DELs of this sandbox. They must not undo a later ADD under the same ID.
    pub(crate) fn waiting_for(&self, sandbox: &Sandbox) -> io::Result<Vec<(String, wire::Call)>> {
        let mut waiting = self.waiting()?;
        waiting.retain(|(_, request)| sandbox_of(request).as_ref() == Some(sandbox));
        Ok(waiting)
    }

    /// The sandboxes with queued DELs, as far as the queue can be read.
    pub(crate) fn sandboxes(&self) -> BTreeSet<Sandbox> {
        let waiting = self.waiting().unwrap_or_default();
        waiting.iter().filter_map(|(_, request)| sandbox_of(request)).collect()
    }

    /// Whether this DEL is still queued. An unreadable file counts as completed: the directory is listed again soon.
    pub(crate) fn contains(&self, name: &str) -> bool {
        matches!(self.files.read(name), Ok(Some(_)))
    }

    /// Removes a DEL that was completed.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        info!(queued = name, "completed a queued DEL");
        self.files.remove(name)
    }

    fn quarantine(&self, name: &str, problem: &str) {
        self.files.quarantine(name, problem);
    }

    /// Waits until this process queues a DEL.
    async fn added(&self) {
        self.added.notified().await;
    }
}

fn unfinished_del(
    changed: SystemTime,
    file: String,
    container_id: Option<String>,
    is_set_aside: bool,
) -> UnfinishedDel {
    let since = Timestamp::try_from(changed).unwrap_or_default();
    UnfinishedDel { file, since, container_id, is_set_aside }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Role;

    fn del(container: &str) -> wire::Call {
        call("DEL", container)
    }

    fn call(verb: &str, container: &str) -> wire::Call {
        let variables = [("CNI_COMMAND", verb), ("CNI_CONTAINERID", container), ("CNI_IFNAME", "eth0")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        wire::Call::new(Role::Network, variables, r#"{"cniVersion":"1.0.0","name":"net"}"#)
    }

    #[test]
    fn a_del_stays_queued_until_it_is_removed() {
        let state = tempfile::tempdir().unwrap();
        let queue = DelQueue::at(state.path());
        for container in ["c1", "c2", "c1"] {
            queue.add(&del(container)).unwrap();
        }
        let queue = DelQueue::at(state.path());
        let waiting = queue.waiting().unwrap();
        assert_eq!(waiting.len(), 2, "the same DEL twice is one");
        let sandboxes = queue.sandboxes();
        assert_eq!(sandboxes.iter().map(Sandbox::container_id).collect::<Vec<_>>(), ["c1", "c2"]);
        let sandbox = Sandbox::new("net", "c2", "eth0").unwrap();
        let found = queue.waiting_for(&sandbox).unwrap();
        assert_eq!(found.iter().map(|(_, request)| request.clone()).collect::<Vec<_>>(), [del("c2")]);
        queue.remove(&found[0].0).unwrap();
        assert_eq!(queue.waiting_for(&sandbox).unwrap(), []);
        assert_eq!(queue.waiting().unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_a_del_is_quarantined() {
        let state = tempfile::tempdir().unwrap();
        let queue = DelQueue::at(state.path());
        queue.add(&call("ADD", "c1")).unwrap();
        std::fs::write(queue.path().join("torn.json"), b"{").unwrap();
        assert_eq!(queue.waiting().unwrap(), []);
        let left = std::fs::read_dir(queue.path()).unwrap();
        assert!(left.map(|entry| entry.unwrap().path()).all(|path| path.extension().unwrap() == "broken"));
    }

    #[test]
    fn evidence_has_the_age_of_each_del() {
        let state = tempfile::tempdir().unwrap();
        let queue = DelQueue::at(state.path());
        assert_eq!(queue.evidence().unwrap(), []);
        queue.add(&del("c1")).unwrap();
        let torn = queue.path().join("torn.json");
        std::fs::write(&torn, b"{").unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        std::fs::File::open(&torn).unwrap().set_modified(long_ago).unwrap();
        let dels = queue.evidence().unwrap();
        let ids: Vec<_> = dels.iter().map(|del| (del.container_id.as_deref(), del.is_set_aside)).collect();
        assert_eq!(ids, [(None, false), (Some("c1"), false)]);
        queue.waiting().unwrap();
        let dels = queue.evidence().unwrap();
        assert_eq!(dels.len(), 2);
        assert!(dels[1].is_set_aside && dels[1].since.as_second() == 1_000_000_000, "{dels:?}");
    }
}
