//! The node's own memory of its attachments: a file each, and a copy of all of them at hand.
//!
//! With the endpoint records it is the desired state of the node: a live sandbox whose endpoint key a namesake took
//! over still keeps its network. It also knows what no record does: the path of the pod's namespace.
//!
//! An entry is written after the kernel was read back and before ADD answers, and removed as the last step of DEL.
//! It need not survive a power failure, because no sandbox does; what such a failure leaves in the store is found by
//! the records themselves. So no ADD waits for the disk.

mod entry;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::Sandbox;
use tokio::sync::Notify;

pub(crate) use entry::Entry;
#[cfg(test)]
pub(crate) use entry::tests::example;

use crate::files::{Folder, Survives};

const FOLDER: &str = "attachments";

#[derive(Debug)]
pub(crate) struct Journal {
    folder: Folder,
    entries: Mutex<BTreeMap<Sandbox, Entry>>,
    /// How many there were so far.
    changes: AtomicU64,
    changed: Notify,
}

/// What was wrong with the folder and is put right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restored {
    pub(crate) written: usize,
    pub(crate) set_aside: usize,
}

impl Journal {
    /// Reads what is there. What cannot be understood is set aside, and said.
    pub(crate) fn open(state: &Path) -> io::Result<Journal> {
        let folder = Folder::open(state.join(FOLDER))?;
        folder.remove_unfinished()?;
        let mut entries = BTreeMap::new();
        for name in folder.names()? {
            let Some(content) = folder.read(&name)? else { continue };
            match Entry::decode(&content) {
                Ok(entry) if file_name(&entry.attachment.sandbox) == name => {
                    entries.insert(entry.attachment.sandbox.clone(), entry);
                }
                Ok(_) => folder.set_aside(&name, "it is not the entry that its name says"),
                Err(problem) => folder.set_aside(&name, &problem),
            }
        }
        Ok(Journal {
            folder,
            entries: Mutex::new(entries),
            changes: AtomicU64::new(0),
            changed: Notify::new(),
        })
    }

    pub(crate) fn get(&self, sandbox: &Sandbox) -> Option<Entry> {
        self.entries().get(sandbox).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Entry> {
        self.entries().values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries().len()
    }

    /// Notes an attachment, or what has become of it.
    pub(crate) fn put(&self, entry: Entry) -> io::Result<()> {
        let mut entries = self.entries();
        if entries.get(&entry.attachment.sandbox) == Some(&entry) {
            return Ok(());
        }
        self.folder.write(&file_name(&entry.attachment.sandbox), &entry.encode(), Survives::Process)?;
        entries.insert(entry.attachment.sandbox.clone(), entry);
        self.tell_change();
        Ok(())
    }

    /// Writes the files that are missing, and sets aside those that nobody here knows: what is in memory is what this
    /// node has.
    pub(crate) fn restore(&self) -> io::Result<Restored> {
        self.folder.make()?;
        let found: BTreeSet<String> = self.folder.names()?.into_iter().collect();
        let entries = self.entries();
        let known: BTreeSet<String> = entries.keys().map(file_name).collect();
        let mut restored = Restored::default();
        // What came or went since the list was made is looked at again.
        for (sandbox, entry) in entries.iter() {
            let name = file_name(sandbox);
            if !found.contains(&name) && !self.folder.has(&name) {
                self.folder.write(&name, &entry.encode(), Survives::Process)?;
                restored.written += 1;
            }
        }
        for stranger in found.difference(&known).filter(|name| self.folder.has(name)) {
            self.folder.set_aside(stranger, "no attachment of this node is noted there");
            restored.set_aside += 1;
        }
        Ok(restored)
    }

    /// Whether a file could be written now.
    pub(crate) fn try_to_write(&self) -> io::Result<()> {
        self.folder.try_to_write()
    }

    pub(crate) fn remove(&self, sandbox: &Sandbox) -> io::Result<()> {
        let mut entries = self.entries();
        if entries.contains_key(sandbox) {
            self.folder.remove(&file_name(sandbox))?;
            entries.remove(sandbox);
            self.tell_change();
        }
        Ok(())
    }

    /// Goes up with every change. Whoever asks before it reads the entries has missed nothing that it counts.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn tell_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.changed.notify_one();
    }

    /// Waits for a change that nobody has waited for yet. For one listener.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Sandbox, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Neither networks nor containers can have an `@`, so no two sandboxes share a name.
fn file_name(sandbox: &Sandbox) -> String {
    format!("{}@{}@{}", sandbox.network(), sandbox.container_id(), sandbox.interface())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_a_restart_and_nothing_else_does() {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::open(state.path()).unwrap();
        let (kept, gone) = (entry::tests::example("c1"), entry::tests::example("c2"));
        journal.put(kept.clone()).unwrap();
        journal.put(gone.clone()).unwrap();
        journal.remove(&gone.attachment.sandbox).unwrap();
        journal.remove(&gone.attachment.sandbox).unwrap();
        let folder = state.path().join(FOLDER);
        std::fs::write(folder.join("torn.json"), b"{\"version\":").unwrap();
        std::fs::copy(folder.join("net@c1@eth0.json"), folder.join("copy.json")).unwrap();
        let journal = Journal::open(state.path()).unwrap();
        assert_eq!(journal.all(), std::slice::from_ref(&kept));
        assert_eq!(journal.get(&kept.attachment.sandbox), Some(kept));
        assert_eq!(journal.get(&gone.attachment.sandbox), None);
        assert!(folder.join("torn.broken").exists() && folder.join("copy.broken").exists());
    }
}
