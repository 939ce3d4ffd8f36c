//! A folder for one run. Two runs at once have one each; what a crashed run left behind is removed by the next.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Kept short: unix sockets live below it, and their paths may have no more than 107 bytes.
const PREFIX: &str = "plumb-run-";

/// Removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// Held for as long as we live: the system lets go of it when the process ends, however it ends.
    _lock: File,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        Scratch::below(&parent)
    }

    fn below(parent: &Path) -> Result<Scratch> {
        let mut number = std::process::id();
        loop {
            let path = parent.join(format!("{PREFIX}{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => return Scratch::claim(path),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    number = number.wrapping_add(100_003);
                }
                Err(error) => return Err(error).with_context(|| format!("cannot make {}", path.display())),
            }
        }
    }

    fn claim(path: PathBuf) -> Result<Scratch> {
        let lock =
            File::create(lock_path(&path)).with_context(|| format!("cannot write to {}", path.display()))?;
        lock.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Scratch { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).ok();
    }
}

fn lock_path(folder: &Path) -> PathBuf {
    folder.join(".in-use")
}

/// Removes the folders of runs that ended without cleaning up: those whose lock nobody holds.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // No lock file: made this very moment by another run, or not ours at all. Either way not to be touched.
        let Ok(lock) = File::open(lock_path(&entry.path())) else { continue };
        if lock.try_lock().is_ok() {
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_folder_goes_and_one_in_use_stays() {
        let outer = Scratch::new().unwrap();
        let parent = outer.path().join("parent");
        std::fs::create_dir(&parent).unwrap();

        let in_use = Scratch::below(&parent).unwrap();
        let second = Scratch::below(&parent).unwrap();
        assert_ne!(in_use.path(), second.path());
        let abandoned = parent.join(format!("{PREFIX}1"));
        std::fs::create_dir(&abandoned).unwrap();
        File::create(lock_path(&abandoned)).unwrap();
        let not_ours = parent.join("something-else");
        std::fs::create_dir(&not_ours).unwrap();

        remove_abandoned(&parent);

        assert!(in_use.path().exists());
        assert!(second.path().exists());
        assert!(!abandoned.exists());
        assert!(not_ours.exists());
    }

    #[test]
    fn a_folder_is_removed_at_the_end() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "text").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
