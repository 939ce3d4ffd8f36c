//! DELs that could not be finished: each in a file that survives a power failure, until it is done.
//!
//! The plugin puts them here while there is no agent, the agent while there is no store. Working one off is the same
//! DEL once more: it is idempotent and fenced by its sandbox.

mod worker;

use std::io;
use std::path::Path;
use std::time::SystemTime;

use doctor::evidence::node::UnfinishedDel;
use jiff::Timestamp;
use model::Sandbox;
use tokio::sync::Notify;
use tracing::info;

pub(crate) use worker::{work, work_once};

use crate::cni::CallRequest;
use crate::files::{Folder, Survives};

const FOLDER: &str = "queue";

#[derive(Debug)]
pub(crate) struct Queue {
    folder: Folder,
    news: Notify,
}

impl Queue {
    /// The queue in a state folder. Nothing is made there before it is needed.
    pub(crate) fn at(state: &Path) -> Queue {
        Queue { folder: Folder::at(state.join(FOLDER)), news: Notify::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Whether anything waits, or was left unfinished, as far as can be told.
    pub(crate) fn has_any(&self) -> bool {
        self.folder.has_any()
    }

    /// Keeps a DEL. When this returns, it is not forgotten any more.
    pub(crate) fn keep(&self, request: &CallRequest) -> io::Result<()> {
        let content = request.encode();
        self.folder.make_durably()?;
        self.folder.write(&format!("del-{:016x}", fingerprint(&content)), &content, Survives::Machine)?;
        self.news.notify_one();
        Ok(())
    }

    /// Whether a DEL could be kept now, as far as can be told without making anything.
    pub(crate) fn try_to_write(&self) -> io::Result<()> {
        if self.folder.path().exists() { self.folder.try_to_write() } else { Ok(()) }
    }

    /// Everything that waits, the oldest first. What cannot be understood is set aside.
    pub(crate) fn waiting(&self) -> io::Result<Vec<(String, CallRequest)>> {
        let mut found = Vec::new();
        for name in self.folder.names()? {
            let Some(content) = self.folder.read(&name)? else { continue };
            match CallRequest::decode(&content) {
                Ok(request) if request.environment.get("CNI_COMMAND") == Some("DEL") => {
                    found.push((name, request));
                }
                Ok(_) => self.folder.set_aside(&name, "it is not a DEL"),
                Err(error) => self.folder.set_aside(&name, &error.to_string()),
            }
        }
        Ok(found)
    }

    /// What is not done yet, for a doctor to judge: what waits, and what was set aside.
    pub(crate) fn unfinished(&self) -> io::Result<Vec<UnfinishedDel>> {
        let mut found = Vec::new();
        for (changed, name) in self.folder.dated()? {
            // Gone in between: done.
            let Some(content) = self.folder.read(&name)? else { continue };
            let sandbox = CallRequest::decode(&content).ok().and_then(|request| request.sandbox());
            let container_id = sandbox.map(|sandbox| sandbox.container_id().to_owned());
            found.push(unfinished(changed, name, container_id, false));
        }
        found.extend(
            self.folder.aside()?.into_iter().map(|(changed, name)| unfinished(changed, name, None, true)),
        );
        Ok(found)
    }

    /// Removes what was not wholly written when its writer was killed: nobody was told of a success.
    fn remove_unfinished(&self) -> io::Result<()> {
        self.folder.remove_unfinished()
    }

    /// What waits for this sandbox. An ADD under the same ID must not be undone by it later.
    pub(crate) fn waiting_for(&self, sandbox: &Sandbox) -> io::Result<Vec<(String, CallRequest)>> {
        let mut waiting = self.waiting()?;
        waiting.retain(|(_, request)| request.sandbox().as_ref() == Some(sandbox));
        Ok(waiting)
    }

    /// Forgets a DEL: it is done.
    pub(crate) fn done(&self, name: &str) -> io::Result<()> {
        info!(queued = name, "a queued DEL is done");
        self.folder.remove(name)
    }

    fn set_aside(&self, name: &str, problem: &str) {
        self.folder.set_aside(name, problem);
    }

    async fn news(&self) {
        self.news.notified().await;
    }
}

fn unfinished(
    changed: SystemTime,
    file: String,
    container_id: Option<String>,
    is_set_aside: bool,
) -> UnfinishedDel {
    let since = Timestamp::try_from(changed).unwrap_or_default();
    UnfinishedDel { file, since, container_id, is_set_aside }
}

/// FNV-1a, as the plugin does: the same DEL again is the same file.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::Role;

    fn del(container: &str) -> CallRequest {
        let environment = [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", container), ("CNI_IFNAME", "eth0")];
        CallRequest {
            role: Role::Network,
            environment: environment.into_iter().collect(),
            config: r#"{"cniVersion":"1.0.0","name":"net"}"#.to_owned(),
        }
    }

    #[test]
    fn what_is_kept_waits_until_it_is_done() {
        let state = tempfile::tempdir().unwrap();
        let queue = Queue::at(state.path());
        for container in ["c1", "c2", "c1"] {
            queue.keep(&del(container)).unwrap();
        }
        let queue = Queue::at(state.path());
        let waiting = queue.waiting().unwrap();
        assert_eq!(waiting.len(), 2, "the same DEL twice is one");
        let sandbox = Sandbox::new("net", "c2", "eth0").unwrap();
        let found = queue.waiting_for(&sandbox).unwrap();
        assert_eq!(found.iter().map(|(_, request)| request.clone()).collect::<Vec<_>>(), [del("c2")]);
        queue.done(&found[0].0).unwrap();
        assert_eq!(queue.waiting_for(&sandbox).unwrap(), []);
        assert_eq!(queue.waiting().unwrap().len(), 1);
    }

    #[test]
    fn what_cannot_be_understood_is_set_aside() {
        let state = tempfile::tempdir().unwrap();
        let queue = Queue::at(state.path());
        let mut add = del("c1");
        add.environment = [("CNI_COMMAND", "ADD")].into_iter().collect();
        queue.keep(&add).unwrap();
        std::fs::write(queue.path().join("torn.json"), b"{").unwrap();
        assert_eq!(queue.waiting().unwrap(), []);
        let left = std::fs::read_dir(queue.path()).unwrap();
        assert!(left.map(|entry| entry.unwrap().path()).all(|path| path.extension().unwrap() == "broken"));
    }

    #[test]
    fn what_is_not_done_is_told_with_its_age() {
        let state = tempfile::tempdir().unwrap();
        let queue = Queue::at(state.path());
        assert_eq!(queue.unfinished().unwrap(), []);
        queue.keep(&del("c1")).unwrap();
        let torn = queue.path().join("torn.json");
        std::fs::write(&torn, b"{").unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        std::fs::File::open(&torn).unwrap().set_modified(long_ago).unwrap();
        let told = queue.unfinished().unwrap();
        let ids: Vec<_> = told.iter().map(|del| (del.container_id.as_deref(), del.is_set_aside)).collect();
        assert_eq!(ids, [(None, false), (Some("c1"), false)]);
        queue.waiting().unwrap();
        let told = queue.unfinished().unwrap();
        assert_eq!(told.len(), 2);
        assert!(told[1].is_set_aside && told[1].since.as_second() == 1_000_000_000, "{told:?}");
    }
}
