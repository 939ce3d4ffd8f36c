//! A directory of small files that survive a crash: each is written to a temporary file and renamed, so that a reader finds it whole or not
//! at all.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tracing::warn;

use crate::failpoint::{self, Point};

const EXTENSION: &str = "json";
const TEMPORARY: &str = "tmp";
const QUARANTINED: &str = "broken";
/// The block size of most file systems.
const TEST_BYTES: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: PathBuf,
}

/// What a write has to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survives {
    /// The end of this process, however sudden.
    ProcessExit,
    /// A power failure. Waits for the disk.
    PowerFailure,
}

impl Directory {
    /// A directory that need not exist yet. It then has no files.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Directory {
        Directory { path: path.into() }
    }

    /// The directory, created if it is missing.
    pub(crate) fn open(path: impl Into<PathBuf>) -> io::Result<Directory> {
        let directory = Directory::at(path);
        directory.create()?;
        Ok(directory)
    }

    pub(crate) fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    /// Creates it with all its parents, so that they survive a power failure.
    pub(crate) fn create_durably(&self) -> io::Result<()> {
        let missing: Vec<&Path> = self.path.ancestors().take_while(|path| !path.exists()).collect();
        self.create()?;
        // The entry of a new directory is in its parent.
        for parent in missing.iter().filter_map(|new| new.parent()) {
            File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.sync_all()?;
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes or replaces a file.
    pub(crate) fn write(&self, name: &str, content: &[u8], survives: Survives) -> io::Result<()> {
        let temporary = self.path.join(format!("{name}.{}.{TEMPORARY}", std::process::id()));
        match survives {
            Survives::ProcessExit => self.write_quickly(&temporary, name, content),
            Survives::PowerFailure => match self.write_through(&temporary, name, content) {
                // Another process removed the temporary file as stale before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.write_through(&temporary, name, content)
                }
                outcome => outcome,
            },
        }
    }

    fn write_quickly(&self, temporary: &Path, name: &str, content: &[u8]) -> io::Result<()> {
        create(temporary)?.write_all(content)?;
        failpoint::hit(Point::AddJournalWritten);
        fs::rename(temporary, self.file(name))
    }

    fn write_through(&self, temporary: &Path, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = create(temporary)?;
        // The lock marks it as in use while this process lives. On a file system without locks, stale files stay.
        let _ = file.lock();
        file.write_all(content)?;
        file.sync_all()?;
        failpoint::hit(Point::DelQueueWritten);
        fs::rename(temporary, self.file(name))?;
        failpoint::hit(Point::DelQueueRenamed);
        File::open(&self.path)?.sync_all()
    }

    /// Removes a file. A missing one counts as removed.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.file(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// The names of all files. Without their times, which would cost a system call each.
    pub(crate) fn names(&self) -> io::Result<BTreeSet<String>> {
        Ok(self.entries(EXTENSION)?.into_iter().map(|(_, name)| name).collect())
    }

    /// The names of all files with the times of their last changes, the oldest first.
    pub(crate) fn names_with_times(&self) -> io::Result<Vec<(SystemTime, String)>> {
        self.with_extension(EXTENSION)
    }

    pub(crate) fn quarantined(&self) -> io::Result<Vec<(SystemTime, String)>> {
        self.with_extension(QUARANTINED)
    }

    fn with_extension(&self, wanted: &str) -> io::Result<Vec<(SystemTime, String)>> {
        let mut found = Vec::new();
        for (entry, name) in self.entries(wanted)? {
            // Gone since it was listed.
            let Ok(changed) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
            found.push((changed, name));
        }
        found.sort();
        Ok(found)
    }

    fn entries(&self, wanted: &str) -> io::Result<Vec<(fs::DirEntry, String)>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let path = PathBuf::from(entry.file_name());
            if path.extension().is_some_and(|extension| extension == wanted)
                && let Some(name) = path.file_stem().and_then(|name| name.to_str())
            {
                found.push((entry, name.to_owned()));
            }
        }
        Ok(found)
    }

    /// Whether there are files, temporary ones included.
    pub(crate) fn has_any(&self) -> bool {
        let mut entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.any(|entry| {
            entry.path().extension().is_some_and(|found| found == EXTENSION || found == TEMPORARY)
        })
    }

    /// The content of a file; `None` if it is gone.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.file(name)) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.file(name).exists()
    }

    /// Writes a block and removes it, to find a directory that is missing, read-only or full.
    pub(crate) fn test_write(&self) -> io::Result<()> {
        let temporary = self.path.join(format!("test.{}.{TEMPORARY}", std::process::id()));
        let written = create(&temporary).and_then(|mut file| file.write_all(&[0; TEST_BYTES]));
        // A file that cannot be removed could most likely not be written either.
        let _ = fs::remove_file(&temporary);
        written
    }

    /// Renames a file that cannot be used, so that an operator can inspect it.
    pub(crate) fn quarantine(&self, name: &str, problem: &str) {
        let file = self.file(name);
        let renamed = fs::rename(&file, self.path.join(format!("{name}.{QUARANTINED}")));
        let file = file.display();
        match renamed {
            Ok(()) => warn!(%file, problem, "renamed an unusable file to *.{QUARANTINED}"),
            Err(error) => warn!(%file, problem, %error, "cannot rename an unusable file to *.{QUARANTINED}"),
        }
    }

    /// Removes the temporary files of writers that were killed. Those of other processes may be in use, and are locked then.
    pub(crate) fn remove_stale_temporaries(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == TEMPORARY) && !is_locked(&path) {
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.{EXTENSION}"))
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_back_whole_and_in_order() {
        let state = tempfile::tempdir().unwrap();
        let directory = Directory::open(state.path().join("a/b")).unwrap();
        directory.write("two.words", b"2", Survives::PowerFailure).unwrap();
        // The clock of a file system may be too coarse to tell two writes in a row apart.
        let earlier = std::time::SystemTime::now() - std::time::Duration::from_secs(1);
        fs::File::open(directory.file("two.words")).unwrap().set_modified(earlier).unwrap();
        directory.write("one", b"1", Survives::ProcessExit).unwrap();
        directory.write("one", b"again", Survives::ProcessExit).unwrap();
        let with_times = directory.names_with_times().unwrap();
        let oldest_first: Vec<&str> = with_times.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(oldest_first, ["two.words", "one"]);
        assert_eq!(directory.names().unwrap(), BTreeSet::from(["one".to_owned(), "two.words".to_owned()]));
        assert_eq!(directory.read("one").unwrap().as_deref(), Some(&b"again"[..]));
        directory.remove("one").unwrap();
        directory.remove("one").unwrap();
        assert_eq!(directory.read("one").unwrap(), None);
    }

    #[test]
    fn quarantined_and_temporary_files_are_not_listed() {
        let state = tempfile::tempdir().unwrap();
        let directory = Directory::open(state.path()).unwrap();
        directory.write("bad", b"{", Survives::ProcessExit).unwrap();
        directory.quarantine("bad", "half");
        fs::write(state.path().join("x.1.tmp"), b"").unwrap();
        assert!(directory.names().unwrap().is_empty());
        assert!(directory.has_any(), "there is a temporary file to remove");
        let in_use = create(&state.path().join("y.2.tmp")).unwrap();
        in_use.lock().unwrap();
        directory.remove_stale_temporaries().unwrap();
        assert!(state.path().join("y.2.tmp").exists(), "its writer holds the lock");
        drop(in_use);
        directory.remove_stale_temporaries().unwrap();
        let left: Vec<_> =
            fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["bad.broken"]);
        assert!(!directory.has_any());
    }
}
