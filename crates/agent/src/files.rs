//! A folder of small files that survive a crash: each is written beside its place and moved there, so that it is
//! there whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tracing::warn;

use crate::failpoint::{self, Point};

const ENDING: &str = "json";
const UNFINISHED: &str = "tmp";
const BROKEN: &str = "broken";
/// What most file systems give a file at least.
const TRY_BYTES: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// What a write has to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survives {
    /// The end of this process, however sudden.
    Process,
    /// A power failure. Waits for the disk.
    Machine,
}

impl Folder {
    /// A folder that need not be there yet. It then has no files.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Folder {
        Folder { path: path.into() }
    }

    /// The folder, made if it is not there.
    pub(crate) fn open(path: impl Into<PathBuf>) -> io::Result<Folder> {
        let folder = Folder::at(path);
        folder.make()?;
        Ok(folder)
    }

    pub(crate) fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    /// Makes it so that it survives a power failure, with all folders on the way to it.
    pub(crate) fn make_durably(&self) -> io::Result<()> {
        let missing: Vec<&Path> = self.path.ancestors().take_while(|path| !path.exists()).collect();
        self.make()?;
        // A folder that is new is kept by the one that it lies in.
        for parent in missing.iter().filter_map(|new| new.parent()) {
            File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.sync_all()?;
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a file in place, instead of one that may be there.
    pub(crate) fn write(&self, name: &str, content: &[u8], survives: Survives) -> io::Result<()> {
        let unfinished = self.path.join(format!("{name}.{}.{UNFINISHED}", std::process::id()));
        match survives {
            Survives::Process => self.write_quickly(&unfinished, name, content),
            Survives::Machine => match self.write_through(&unfinished, name, content) {
                // Taken for abandoned in the moment before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.write_through(&unfinished, name, content)
                }
                outcome => outcome,
            },
        }
    }

    fn write_quickly(&self, unfinished: &Path, name: &str, content: &[u8]) -> io::Result<()> {
        create(unfinished)?.write_all(content)?;
        failpoint::hit(Point::AddJournalWritten);
        fs::rename(unfinished, self.place(name))
    }

    fn write_through(&self, unfinished: &Path, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = create(unfinished)?;
        // Says that somebody is at it, for as long as this process lives. Where a file system has no locks, what is
        // abandoned stays.
        let _ = file.lock();
        file.write_all(content)?;
        file.sync_all()?;
        failpoint::hit(Point::DelQueueWritten);
        fs::rename(unfinished, self.place(name))?;
        failpoint::hit(Point::DelQueueRenamed);
        File::open(&self.path)?.sync_all()
    }

    /// Removes a file. One that is not there is removed already.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.place(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// The names of all files, the oldest first.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.ending_in(ENDING)?.into_iter().map(|(_, name)| name).collect())
    }

    /// The same with the times of their last changes.
    pub(crate) fn dated(&self) -> io::Result<Vec<(SystemTime, String)>> {
        self.ending_in(ENDING)
    }

    /// Those that were set aside.
    pub(crate) fn aside(&self) -> io::Result<Vec<(SystemTime, String)>> {
        self.ending_in(BROKEN)
    }

    fn ending_in(&self, wanted: &str) -> io::Result<Vec<(SystemTime, String)>> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_none_or(|ending| ending != wanted) {
                continue;
            }
            let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
            // Gone in between: somebody else has dealt with it.
            let Ok(changed) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
            found.push((changed, name.to_owned()));
        }
        found.sort();
        Ok(found)
    }

    /// Whether there are files, finished or not.
    pub(crate) fn has_any(&self) -> bool {
        let mut entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.any(|entry| {
            entry.path().extension().is_some_and(|ending| ending == ENDING || ending == UNFINISHED)
        })
    }

    /// The content of a file; nothing if it is gone.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.place(name)) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.place(name).exists()
    }

    /// Writes as much as a file takes, and removes it: tells a folder that is missing, read-only or full.
    pub(crate) fn try_to_write(&self) -> io::Result<()> {
        let unfinished = self.path.join(format!("try.{}.{UNFINISHED}", std::process::id()));
        let written = create(&unfinished).and_then(|mut file| file.write_all(&[0; TRY_BYTES]));
        // If it cannot be removed, it could not be written, most likely.
        let _ = fs::remove_file(&unfinished);
        written
    }

    /// Takes a file that cannot be understood out of the way, for somebody to look at.
    pub(crate) fn set_aside(&self, name: &str, problem: &str) {
        let place = self.place(name);
        let aside = self.path.join(format!("{name}.{BROKEN}"));
        warn!(file = %place.display(), "set aside as *.{BROKEN}: {problem}");
        if let Err(error) = fs::rename(&place, &aside) {
            warn!(file = %place.display(), "cannot be set aside: {error}");
        }
    }

    /// Removes what writers left that were killed in the middle. Those of files that survive the machine may be at
    /// work meanwhile, also in other processes.
    pub(crate) fn remove_unfinished(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == UNFINISHED) && !is_being_written(&path) {
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn place(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.{ENDING}"))
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn is_being_written(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_back_whole_and_in_order() {
        let state = tempfile::tempdir().unwrap();
        let folder = Folder::open(state.path().join("a/b")).unwrap();
        folder.write("two.words", b"2", Survives::Machine).unwrap();
        // The clock of a file system may not tell two writes apart that follow each other at once.
        let earlier = std::time::SystemTime::now() - std::time::Duration::from_secs(1);
        fs::File::open(folder.place("two.words")).unwrap().set_modified(earlier).unwrap();
        folder.write("one", b"1", Survives::Process).unwrap();
        folder.write("one", b"again", Survives::Process).unwrap();
        assert_eq!(folder.names().unwrap(), ["two.words", "one"]);
        assert_eq!(folder.read("one").unwrap().as_deref(), Some(&b"again"[..]));
        folder.remove("one").unwrap();
        folder.remove("one").unwrap();
        assert_eq!(folder.read("one").unwrap(), None);
    }

    #[test]
    fn what_is_broken_or_unfinished_is_no_file() {
        let state = tempfile::tempdir().unwrap();
        let folder = Folder::open(state.path()).unwrap();
        folder.write("bad", b"{", Survives::Process).unwrap();
        folder.set_aside("bad", "half");
        fs::write(state.path().join("x.1.tmp"), b"").unwrap();
        assert_eq!(folder.names().unwrap(), [] as [&str; 0]);
        assert!(folder.has_any(), "something is to be removed");
        let at_work = create(&state.path().join("y.2.tmp")).unwrap();
        at_work.lock().unwrap();
        folder.remove_unfinished().unwrap();
        assert!(state.path().join("y.2.tmp").exists(), "somebody is at it");
        drop(at_work);
        folder.remove_unfinished().unwrap();
        let left: Vec<_> =
            fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["bad.broken"]);
        assert!(!folder.has_any());
    }
}
