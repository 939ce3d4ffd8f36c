//! The state folder: locked for one agent, and made anew where it was removed under it.
//!
//! What a running agent has in memory is what its node has. So a journal that somebody removed is written again, at once
//! when an ADD finds it missing, else within a second. DELs that were queued in it are lost: what they would have
//! given back has no owner, and is collected.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tracing::{info, warn};

use crate::cni::{Agent, Services};
use crate::health::Condition;
use crate::journal::Journal;

const LOCK_FILE: &str = "agent.lock";
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A disk that takes longer for a few bytes hangs.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    /// Held for as long as this agent runs.
    lock: Mutex<File>,
}

impl State {
    /// One agent per state folder: two would not know of each other's attachments.
    pub(crate) fn open(path: &Path) -> Result<State> {
        let lock = match lock(path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                bail!("another agent uses {}", path.display())
            }
            Err(error) => return Err(error).with_context(|| format!("cannot use {}", path.display())),
        };
        Ok(State { path: path.to_owned(), lock: Mutex::new(lock) })
    }

    /// Makes the folder hold what is known, should somebody have removed or replaced it or something in it.
    pub(crate) fn restore(&self, journal: &Journal) -> io::Result<()> {
        let is_new = self.ensure()?;
        let restored = journal.restore()?;
        if is_new {
            warn!(
                "{} was removed or replaced; made anew, with {} attachments. DELs that were queued there are lost; what they \
                 would have given back is collected",
                self.path.display(),
                restored.written
            );
        } else if restored.written > 0 {
            warn!("{} attachments were missing in {}; written again", restored.written, self.path.display());
        }
        Ok(())
    }

    /// Makes and locks the folder again if it is not the one that was locked.
    fn ensure(&self) -> io::Result<bool> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.metadata()?;
        let is_same = |found: &fs::Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
        match fs::metadata(self.path.join(LOCK_FILE)) {
            Ok(found) if is_same(&found) => return Ok(false),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        *held = lock(&self.path)?;
        Ok(true)
    }
}

/// [`io::ErrorKind::WouldBlock`] if another process holds it.
fn lock(folder: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(folder.join(LOCK_FILE))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(io::Error::new(io::ErrorKind::WouldBlock, "another agent uses it"))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Looks all the time whether the folder is there and can be written, and says so where it cannot; never ends.
pub(crate) async fn watch(services: &Arc<Services>) {
    loop {
        let looking = tokio::task::spawn_blocking({
            let services = services.clone();
            move || look(&services)
        });
        tokio::pin!(looking);
        let outcome = match tokio::time::timeout(PATIENCE, &mut looking).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let words = format!("it did not take a few bytes within {} s", PATIENCE.as_secs());
                tell(services, Some(io::Error::new(io::ErrorKind::TimedOut, words)));
                looking.await
            }
        };
        tell(services, outcome.unwrap_or_else(|error| Err(io::Error::other(error))).err());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn look(services: &Services) -> io::Result<()> {
    let Some(agent) = services.agent() else { return Ok(()) };
    agent.state.restore(&agent.journal)?;
    agent.journal.try_to_write()?;
    services.queue().try_to_write()
}

/// Says what is wrong with the folder, wherever somebody may look.
pub(crate) fn tell(services: &Services, problem: Option<io::Error>) {
    let Some(agent) = services.agent() else { return };
    let now: Vec<String> = problem.map(|error| words(agent, &error)).into_iter().collect();
    let before = services.health().problems_of(Condition::StateFolder);
    match (before.first(), now.first()) {
        (before, Some(problem)) if before != Some(problem) => warn!("{problem}"),
        (Some(_), None) => info!("{} can be written again", agent.state.path.display()),
        _ => {}
    }
    services.health().set_condition(Condition::StateFolder, now);
}

fn words(agent: &Agent, error: &io::Error) -> String {
    format!("the state folder {} cannot be written: {error}", agent.state.path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::example;

    #[test]
    fn a_folder_that_was_removed_is_made_anew_and_locked() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("state");
        let state = State::open(&folder).unwrap();
        assert!(State::open(&folder).unwrap_err().to_string().contains("another agent uses"));
        let journal = Journal::open(&folder).unwrap();
        for container in ["c1", "c2"] {
            journal.put(example(container)).unwrap();
        }
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(journal.put(example("c3")).unwrap_err().kind(), io::ErrorKind::NotFound);
        state.restore(&journal).unwrap();
        journal.put(example("c3")).unwrap();
        assert!(State::open(&folder).is_err(), "it is locked again");
        assert_eq!(Journal::open(&folder).unwrap().all(), journal.all());
    }

    #[test]
    fn a_folder_of_another_agent_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("state");
        let state = State::open(&folder).unwrap();
        let journal = Journal::open(&folder).unwrap();
        journal.put(example("c1")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let other = State::open(&folder).unwrap();
        assert_eq!(state.restore(&journal).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(!folder.join("attachments").exists());
        drop(other);
    }

    #[test]
    fn single_files_are_written_again_and_strangers_set_aside() {
        let place = tempfile::tempdir().unwrap();
        let state = State::open(place.path()).unwrap();
        let journal = Journal::open(place.path()).unwrap();
        journal.put(example("c1")).unwrap();
        let files = place.path().join("attachments");
        let own = files.join("net@c1@eth0.json");
        fs::rename(&own, files.join("net@c0@eth0.json")).unwrap();
        state.restore(&journal).unwrap();
        assert!(own.exists() && files.join("net@c0@eth0.broken").exists());
        assert_eq!(journal.len(), 1);
    }
}
