//! The state directory: locked by one agent, and recreated if it is removed while the agent runs.
//!
//! A running agent has the whole journal in memory, so it writes a removed one again: at once if an ADD finds it missing, otherwise within a
//! second. DELs that were queued in it are lost; what they would have released has no owner, and the collector removes it.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tracing::{info, warn};

use crate::health::Condition;
use crate::journal::Journal;
use crate::services::Agent;

const LOCK_FILE: &str = "agent.lock";
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// A disk that takes longer for a few bytes hangs.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    /// Held while this agent runs.
    lock: Mutex<File>,
}

impl State {
    /// One agent per state directory: two would not see each other's attachments.
    pub(crate) fn open(path: &Path) -> Result<State> {
        let lock = match lock(path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                bail!("another agent uses the state directory {}", path.display())
            }
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot use the state directory {}", path.display()));
            }
        };
        Ok(State { path: path.to_owned(), lock: Mutex::new(lock) })
    }

    /// Recreates the directory and the journal's files, as far as they were removed or replaced.
    pub(crate) fn restore(&self, journal: &Journal) -> io::Result<()> {
        let is_new = self.ensure()?;
        let attachments = journal.restore()?;
        let directory = self.path.display();
        if is_new {
            warn!(
                %directory, attachments,
                "recreated the state directory, which was removed or replaced. DELs that were queued there are lost; what they would \
                 have released is collected"
            );
        } else if attachments > 0 {
            warn!(%directory, attachments, "rewrote journal files that were removed");
        }
        Ok(())
    }

    /// Creates and locks the directory again if it is not the one that was locked.
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
fn lock(directory: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut options = OpenOptions::new();
    let file =
        options.create(true).truncate(false).write(true).mode(0o600).open(directory.join(LOCK_FILE))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(io::Error::new(io::ErrorKind::WouldBlock, "another agent uses it"))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Checks again and again that the directory exists and can be written, and reports where not; never ends.
pub(crate) async fn watch(agent: &Arc<Agent>) {
    loop {
        let checking = tokio::task::spawn_blocking({
            let agent = agent.clone();
            move || check(&agent)
        });
        tokio::pin!(checking);
        let outcome = match tokio::time::timeout(TIMEOUT, &mut checking).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let problem = format!("writing a few bytes takes longer than {} s", TIMEOUT.as_secs());
                report(agent, Some(io::Error::new(io::ErrorKind::TimedOut, problem)));
                checking.await
            }
        };
        report(agent, outcome.unwrap_or_else(|error| Err(io::Error::other(error))).err());
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

fn check(agent: &Agent) -> io::Result<()> {
    agent.state.restore(&agent.journal)?;
    agent.journal.test_write()?;
    agent.queue.test_write()
}

/// Reports a problem of the directory, or that there is none, in the log and as a condition of readiness.
pub(crate) fn report(agent: &Agent, problem: Option<io::Error>) {
    let directory = agent.state.path.display();
    let problem = problem.map(|error| format!("cannot write the state directory {directory}: {error}"));
    let before = agent.health.problems_of(Condition::StateDirectory);
    match (before.first(), &problem) {
        (before, Some(problem)) if before != Some(problem) => warn!("{problem}"),
        (Some(_), None) => info!(%directory, "can write the state directory again"),
        _ => {}
    }
    agent.health.set_condition(Condition::StateDirectory, problem.into_iter().collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::example;

    #[test]
    fn a_directory_that_was_removed_is_recreated_and_locked() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("state");
        let state = State::open(&directory).unwrap();
        assert!(State::open(&directory).unwrap_err().to_string().contains("another agent uses"));
        let journal = Journal::open(&directory).unwrap();
        for container in ["c1", "c2"] {
            journal.put(example(container)).unwrap();
        }
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(journal.put(example("c3")).unwrap_err().kind(), io::ErrorKind::NotFound);
        state.restore(&journal).unwrap();
        journal.put(example("c3")).unwrap();
        assert!(State::open(&directory).is_err(), "it is locked again");
        assert_eq!(Journal::open(&directory).unwrap().all(), journal.all());
    }

    #[test]
    fn another_agents_directory_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("state");
        let state = State::open(&directory).unwrap();
        let journal = Journal::open(&directory).unwrap();
        journal.put(example("c1")).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        let other = State::open(&directory).unwrap();
        assert_eq!(state.restore(&journal).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(!directory.join("attachments").exists());
        drop(other);
    }

    #[test]
    fn removed_files_are_rewritten_and_unknown_ones_quarantined() {
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
