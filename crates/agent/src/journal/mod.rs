//! The journal: the node's attachments, one file each, with all of them cached in memory.
//!
//! Together with the endpoint records it is the desired state of the node, so a live sandbox keeps its network although a pod of the same name
//! took over its endpoint record. It also has what no record does: the path of the pod's namespace.
//!
//! ADD writes an entry after it has read back the kernel and before it answers; DEL removes it. An entry need not survive a power failure,
//! because no sandbox does, so no ADD waits for the disk. What is left in the store then is found by its records.

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

use crate::files::{Directory, Survives};

const DIRECTORY: &str = "attachments";

#[derive(Debug)]
pub(crate) struct Journal {
    files: Directory,
    entries: Mutex<BTreeMap<Sandbox, Entry>>,
    /// How many changes there were so far.
    changes: AtomicU64,
    changed: Notify,
}

impl Journal {
    /// Reads all entries. Files that are not entries are quarantined.
    pub(crate) fn open(state_dir: &Path) -> io::Result<Journal> {
        let files = Directory::open(state_dir.join(DIRECTORY))?;
        files.remove_stale_temporaries()?;
        let mut entries = BTreeMap::new();
        for name in files.names()? {
            let Some(content) = files.read(&name)? else { continue };
            match Entry::decode(&content) {
                Ok(entry) if file_name(&entry.attachment.sandbox) == name => {
                    entries.insert(entry.attachment.sandbox.clone(), entry);
                }
                Ok(_) => files.quarantine(&name, "the file name does not match the entry"),
                Err(problem) => files.quarantine(&name, &problem),
            }
        }
        Ok(Journal {
            files,
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

    /// Adds or replaces an entry.
    pub(crate) fn put(&self, entry: Entry) -> io::Result<()> {
        let mut entries = self.entries();
        if entries.get(&entry.attachment.sandbox) == Some(&entry) {
            return Ok(());
        }
        self.files.write(&file_name(&entry.attachment.sandbox), &entry.encode(), Survives::ProcessExit)?;
        entries.insert(entry.attachment.sandbox.clone(), entry);
        self.notify();
        Ok(())
    }

    /// Makes the directory agree with the cached entries: writes missing files and quarantines unknown ones. Returns how many it wrote.
    pub(crate) fn restore(&self) -> io::Result<usize> {
        self.files.create()?;
        let found = self.files.names()?;
        let entries = self.entries();
        let expected: BTreeSet<String> = entries.keys().map(file_name).collect();
        let mut written = 0;
        // Files may have come or gone since they were listed, so each is checked again.
        for (sandbox, entry) in entries.iter() {
            let name = file_name(sandbox);
            if !found.contains(&name) && !self.files.contains(&name) {
                self.files.write(&name, &entry.encode(), Survives::ProcessExit)?;
                written += 1;
            }
        }
        for unknown in found.difference(&expected).filter(|name| self.files.contains(name)) {
            self.files.quarantine(unknown, "this node has no such attachment");
        }
        Ok(written)
    }

    /// Whether a file could be written now.
    pub(crate) fn test_write(&self) -> io::Result<()> {
        self.files.test_write()
    }

    pub(crate) fn remove(&self, sandbox: &Sandbox) -> io::Result<()> {
        let mut entries = self.entries();
        if entries.contains_key(sandbox) {
            self.files.remove(&file_name(sandbox))?;
            entries.remove(sandbox);
            self.notify();
        }
        Ok(())
    }

    /// Grows with every change. Read it before the entries: they then include every change that it counts.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn notify(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.changed.notify_one();
    }

    /// Waits for the next change. For one listener.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Sandbox, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unique, because neither networks nor containers can have an `@` in their names.
fn file_name(sandbox: &Sandbox) -> String {
    format!("{}@{}@{}", sandbox.network(), sandbox.container_id(), sandbox.interface())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_a_restart_and_other_files_are_quarantined() {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::open(state.path()).unwrap();
        let (kept, gone) = (entry::tests::example("c1"), entry::tests::example("c2"));
        journal.put(kept.clone()).unwrap();
        journal.put(gone.clone()).unwrap();
        journal.remove(&gone.attachment.sandbox).unwrap();
        journal.remove(&gone.attachment.sandbox).unwrap();
        let directory = state.path().join(DIRECTORY);
        std::fs::write(directory.join("torn.json"), b"{\"version\":").unwrap();
        std::fs::copy(directory.join("net@c1@eth0.json"), directory.join("copy.json")).unwrap();
        let journal = Journal::open(state.path()).unwrap();
        assert_eq!(journal.all(), std::slice::from_ref(&kept));
        assert_eq!(journal.get(&kept.attachment.sandbox), Some(kept));
        assert_eq!(journal.get(&gone.attachment.sandbox), None);
        assert!(directory.join("torn.broken").exists() && directory.join("copy.broken").exists());
    }
}
