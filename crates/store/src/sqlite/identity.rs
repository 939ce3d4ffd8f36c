//! Which file the path led to when it was opened, and how another one in its place is taken over.
//!
//! A file that was moved away, replaced or restored from a backup is noticed before every read and write: what is read from
//! the old file is out of date, and what is written to it is lost. As soon as a whole database is at the path again, the
//! listener takes it over; readers and the writer connect anew when they see the next generation.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io, thread};

use rusqlite::{Connection, TransactionBehavior, params};

use super::error::Trouble;
use super::file::{DatabaseFile, beside};
use super::read::standing;
use super::schema;

/// What SQLite keeps beside a database.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

const MOVED: &str = "the file was removed or replaced while in use";

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl Identity {
    pub(super) fn of(metadata: &fs::Metadata) -> Identity {
        Identity(metadata.dev(), metadata.ino())
    }

    fn at(path: &Path) -> Option<Identity> {
        fs::metadata(path).ok().map(|metadata| Identity::of(&metadata))
    }
}

/// The file that is in use.
#[derive(Debug)]
pub(super) struct Opened(Mutex<Current>);

#[derive(Debug)]
struct Current {
    identity: Identity,
    /// Grows with each file that is taken over: connections of an earlier one are not used again.
    generation: u64,
    /// The files that SQLite made or found beside it.
    companions: [Option<Identity>; 2],
}

impl Opened {
    pub(super) fn new(identity: Identity) -> Opened {
        Opened(Mutex::new(Current { identity, generation: 0, companions: [None; 2] }))
    }

    /// To be called with a connection open that has read: its companions stay for as long as it does.
    pub(super) fn note_companions(&self, path: &Path) {
        self.lock().companions = COMPANIONS.map(|suffix| Identity::at(&beside(path, suffix)));
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a file looked like. One that is still being copied looks different soon after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    identity: Identity,
    length: u64,
    modified: Option<SystemTime>,
}

impl DatabaseFile {
    /// The generation of the file in use. Fails if the path no longer leads to it.
    pub(super) fn check_identity(&self) -> Result<u64, Trouble> {
        let found = fs::metadata(&self.path);
        let current = self.opened.lock();
        match found {
            Ok(metadata) if Identity::of(&metadata) == current.identity => Ok(current.generation),
            Ok(_) => Err(Trouble::new(MOVED).with_hint(
                "the file that is there now is used once it is whole and no longer changes; nothing more is written to \
                 the old one",
            )),
            Err(error) => Err(Trouble::new(MOVED).with_detail(error.to_string()).with_hint(
                "put the file back, or restore a backup in its place; nothing more is written to the old one",
            )),
        }
    }

    /// How the file at the path looks, if it is another than the one in use.
    pub(super) fn stranger(&self) -> Option<Look> {
        let metadata = fs::metadata(&self.path).ok().filter(fs::Metadata::is_file)?;
        let identity = Identity::of(&metadata);
        let is_ours = self.opened.lock().identity == identity;
        let look = Look { identity, length: metadata.len(), modified: metadata.modified().ok() };
        (!is_ours).then_some(look)
    }

    /// Takes over the file at the path, which must be a whole database of ours. `known` is the newest revision that anybody in
    /// this process may remember; see [`move_on`].
    pub(super) fn take_over(&self, known: i64) -> Result<(), Trouble> {
        let _turn = turn(&self.path)?;
        let identity = match fs::metadata(&self.path) {
            Ok(metadata) => Identity::of(&metadata),
            Err(error) => return Err(Trouble::io("cannot be opened", &error)),
        };
        if self.is_writable() {
            set_aside(&self.path, self.opened.lock().companions)?;
        }
        let mut connection = self.connect()?;
        schema::check(&connection)?;
        check_whole(&connection)?;
        if self.is_writable() {
            schema::use_log(&connection)?;
            move_on(&mut connection, known)?;
        }
        if Identity::at(&self.path) != Some(identity) {
            return Err(Trouble::new("the file was replaced again"));
        }
        {
            let mut current = self.opened.lock();
            current.identity = identity;
            current.generation += 1;
        }
        self.opened.note_companions(&self.path);
        Ok(())
    }
}

/// Putting a database in its place takes less than a second.
const TURN_PATIENCE: Duration = Duration::from_secs(30);
const TURN_PAUSE: Duration = Duration::from_millis(10);

/// One process at a time puts databases and logs of this folder in their place, for as long as the answer is kept.
pub(super) fn turn(path: &Path) -> Result<fs::File, Trouble> {
    turn_within(path, TURN_PATIENCE)
}

fn turn_within(path: &Path, patience: Duration) -> Result<fs::File, Trouble> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error: &io::Error| Trouble::io("the folder of the file cannot be locked", error);
    let (opened, started) = (fs::File::open(folder).map_err(|error| failed(&error))?, Instant::now());
    loop {
        match opened.try_lock() {
            Ok(()) => return Ok(opened),
            Err(fs::TryLockError::Error(error)) => return Err(failed(&error)),
            Err(fs::TryLockError::WouldBlock) if started.elapsed() < patience => thread::sleep(TURN_PAUSE),
            Err(fs::TryLockError::WouldBlock) => {
                let problem = format!(
                    "another process has locked the directory {} for {} s",
                    folder.display(),
                    patience.as_secs()
                );
                return Err(Trouble::new(problem).with_hint(
                    "`fuser -v DIRECTORY` names it; end it if it hangs, it only holds the lock while it puts a database in place",
                ));
            }
        }
    }
}

/// The log of the file before would be taken for the new one's and written into it: SQLite knows it by its name alone.
fn set_aside(path: &Path, companions: [Option<Identity>; 2]) -> Result<(), Trouble> {
    for (suffix, identity) in COMPANIONS.into_iter().zip(companions) {
        let companion = beside(path, suffix);
        if identity.is_some() && Identity::at(&companion) == identity {
            rename_aside(&companion)?;
        }
    }
    Ok(())
}

/// The same where a new database is to be made: whatever belonged to one of that name is not the new one's.
pub(super) fn set_leftovers_aside(path: &Path) -> Result<(), Trouble> {
    for companion in COMPANIONS.map(|suffix| beside(path, suffix)) {
        if companion.exists() {
            rename_aside(&companion)?;
        }
    }
    Ok(())
}

fn rename_aside(companion: &Path) -> Result<(), Trouble> {
    // An earlier one may hold commits that no other file has.
    let mut names = (1..).map(|number| match number {
        1 => beside(companion, ".old"),
        number => beside(companion, &format!(".old-{number}")),
    });
    let Some(aside) = names.find(|name| !name.exists()) else { return Ok(()) };
    tracing::warn!(from = %companion.display(), to = %aside.display(), "a log without its database was set aside");
    fs::rename(companion, aside).map_err(|error| {
        Trouble::io("the -wal or -shm file of the previous database cannot be renamed", &error)
    })
}

/// A file that was cut short looks well until somebody reads its end.
fn check_whole(connection: &Connection) -> Result<(), Trouble> {
    let verdict: String = connection.pragma_query_value(None, "quick_check", |row| row.get(0))?;
    if verdict == "ok" { Ok(()) } else { Err(Trouble::damaged(verdict)) }
}

/// Lets the revisions of an older file go on beyond all that were handed out before: a revision that somebody remembers must
/// never mean something else. What happened in between is not known, so history starts here.
pub(super) fn move_on(connection: &mut Connection, known: i64) -> Result<i64, Trouble> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let revision = standing(&transaction)?.revision.max(known) + 1;
    transaction.execute("DELETE FROM history", [])?;
    transaction
        .execute("UPDATE store SET revision = ?1, floor = ?1, history_bytes = 0", params![revision])?;
    transaction.commit()?;
    Ok(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_stays_locked_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plumb.db");
        let first = turn(&path).unwrap();
        let error = turn_within(&path, Duration::ZERO).unwrap_err().at(&path);
        assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("fuser")), "{:?}", error.hint());
        drop(first);
        turn_within(&path, Duration::ZERO).unwrap();
    }
}
