//! The database file: found, made, opened, and recognised again.
//!
//! Nothing here opens the database except through SQLite: closing any other descriptor of the file would drop the
//! locks that SQLite holds on it in this process.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, StatVfsMountFlags};

use super::error::Trouble;
use super::identity::{Identity, Opened};
use super::{OpenMode, create, schema};
use crate::StoreError;

/// A little more than the thousand pages after which SQLite moves them into the database and starts over.
const LOG_ROOM: u64 = 1100 * (4096 + 24);

/// With less than this left, a disk is not filled for the sake of speed.
const SPACE_SCARCE: u64 = 256 * 1024 * 1024;

/// With less than this left, the next commits may not fit.
const SPACE_LOW: u64 = 16 * 1024 * 1024;

/// More than most commits take.
const ROOM_TRIED: usize = 64 * 1024;

/// Where the database lies and how it is opened.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    /// Absolute, without symbolic links.
    pub(super) path: PathBuf,
    access: FileAccess,
    lock_patience: Duration,
    /// The file that the path led to when it was last opened.
    pub(super) opened: Opened,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileAccess {
    ReadWrite,
    ReadOnly,
    /// The file system itself cannot be written: nobody can change the file, and SQLite could not make the files it
    /// shares with other processes.
    Immutable,
}

impl DatabaseFile {
    /// Finds or makes the file, and gives a first connection to it.
    pub(super) fn open(
        path: &Path,
        mode: OpenMode,
        lock_patience: Duration,
    ) -> Result<(DatabaseFile, Connection), StoreError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let open = || {
            if mode == OpenMode::CreateIfMissing && !path.exists() {
                create::create(&path)?;
            }
            let identity = find(&path, mode)?;
            let path = fs::canonicalize(&path).map_err(|error| Trouble::io("cannot be resolved", &error))?;
            let access = match mode {
                OpenMode::ReadOnly => FileAccess::ReadOnly,
                OpenMode::CreateIfMissing | OpenMode::Existing => FileAccess::ReadWrite,
            };
            let opened = Opened::new(identity);
            let mut file = DatabaseFile { path, access, lock_patience, opened };
            let connection = file.first_connection().map_err(|trouble| file.explain(trouble))?;
            file.check_identity()?;
            file.opened.note_companions(&file.path);
            Ok((file, connection))
        };
        open().map_err(|trouble: Trouble| trouble.at(&path))
    }

    pub(super) fn is_writable(&self) -> bool {
        self.access == FileAccess::ReadWrite
    }

    /// A connection that may write, if the file was opened for that.
    pub(super) fn connect(&self) -> Result<Connection, Trouble> {
        let base = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let mut connection = match self.access {
            FileAccess::ReadWrite => {
                Connection::open_with_flags(&self.path, base | OpenFlags::SQLITE_OPEN_READ_WRITE)?
            }
            FileAccess::ReadOnly => {
                Connection::open_with_flags(&self.path, base | OpenFlags::SQLITE_OPEN_READ_ONLY)?
            }
            FileAccess::Immutable => {
                let flags = base | OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
                Connection::open_with_flags(immutable_uri(&self.path), flags)?
            }
        };
        connection.busy_handler(Some(wait_for_lock(self.lock_patience)))?;
        configure(&connection)?;
        Ok(connection)
    }

    /// A connection that only reads.
    pub(super) fn connect_reader(&self) -> Result<Connection, Trouble> {
        let connection = self.connect()?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }

    /// Lets the watchers of other processes know that there is something new: they are told when somebody opens the
    /// directory.
    ///
    /// SQLite's own writes to the log come too early for that. They happen before the commit can be seen, and what
    /// makes it seen is a change of shared memory that nobody is told about. Touching a file would do, but waits
    /// for the file system's journal; opening the directory changes nothing at all.
    pub(super) fn announce(&self) {
        // If this fails the watchers look by themselves within seconds.
        if let Err(error) = fs::File::open(self.directory()) {
            tracing::debug!(path = %self.path.display(), %error, "cannot announce a commit");
        }
    }

    /// Makes the log as long as it gets anyway before SQLite starts over at its beginning. While it still grows, each
    /// commit waits for the file system's journal, too. What lies behind the last commit SQLite does not look at.
    ///
    /// To be called within a transaction that may write: nobody else changes the log then.
    pub(super) fn make_room_in_log(&self) -> io::Result<()> {
        let mut log = fs::OpenOptions::new().append(true).open(beside(&self.path, "-wal"))?;
        let length = log.metadata()?.len();
        let filesystem = rustix::fs::fstatvfs(&log)?;
        let is_scarce = filesystem.f_bavail.saturating_mul(filesystem.f_frsize) < SPACE_SCARCE;
        if length >= LOG_ROOM || is_scarce {
            return Ok(());
        }
        let written = io::copy(&mut io::repeat(0).take(LOG_ROOM - length), &mut log);
        written.and_then(|_| log.sync_data()).inspect_err(|_| drop(log.set_len(length)))
    }

    /// Little space is left where the database lies, or nobody can write there: only trying shows whether a commit succeeds.
    pub(super) fn may_be_full(&self) -> bool {
        rustix::fs::statvfs(self.directory()).is_ok_and(|filesystem| {
            filesystem.f_flag.contains(StatVfsMountFlags::RDONLY)
                || filesystem.f_bavail.saturating_mul(filesystem.f_frsize) < SPACE_LOW
        })
    }

    /// Fails if there is no room for the next commits. Tried with a file beside: a small commit may still fit into the log where the
    /// next larger one does not.
    pub(super) fn check_room(&self) -> Result<(), Trouble> {
        let trial = beside(&self.path, ".room");
        let written = fs::write(&trial, vec![0; ROOM_TRIED]);
        let _ = fs::remove_file(&trial);
        written.map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Trouble::disk_full(error.to_string())
            }
            _ => Trouble::io("the directory of the database cannot be written", &error),
        })
    }

    pub(super) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    fn first_connection(&mut self) -> Result<Connection, Trouble> {
        if self.is_writable() {
            let mut connection = self.connect()?;
            if connection.is_readonly(rusqlite::MAIN_DB)? {
                return Err(Trouble::new("cannot be written: the file or its file system is read-only"));
            }
            schema::prepare(&mut connection)?;
            return Ok(connection);
        }
        let attempt = self.connect().and_then(|connection| {
            schema::check(&connection)?;
            Ok(connection)
        });
        if attempt.is_err() && self.is_frozen() {
            self.access = FileAccess::Immutable;
            let connection = self.connect()?;
            schema::check(&connection)?;
            return Ok(connection);
        }
        attempt
    }

    /// Nobody can write here, and all that was committed is in the file itself.
    fn is_frozen(&self) -> bool {
        let read_only = rustix::fs::statvfs(&self.path)
            .is_ok_and(|filesystem| filesystem.f_flag.contains(StatVfsMountFlags::RDONLY));
        let log = fs::metadata(beside(&self.path, "-wal"));
        read_only && log.map_or(true, |metadata| metadata.len() == 0)
    }

    /// SQLite says little about why it cannot open a file. A look at file and directory often tells.
    pub(super) fn explain(&self, trouble: Trouble) -> Trouble {
        if trouble.is_locked() {
            return Trouble::locked(self.lock_patience);
        }
        if !trouble.is_vague() {
            return trouble;
        }
        if rustix::fs::access(&self.path, Access::READ_OK).is_err() {
            return Trouble::new("may not be read").with_hint("run this as root, or as the file's owner");
        }
        let directory = self.directory();
        if rustix::fs::access(directory, Access::WRITE_OK).is_err() {
            let problem = format!("the directory {} is read-only", directory.display());
            let hint = "SQLite keeps two files beside the database; let it write to the directory";
            return Trouble::new(problem).with_hint(hint);
        }
        trouble
    }
}

/// A file that belongs to the database: `-wal`, `-shm`.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The file's identity, if there is a file that can be a database.
fn find(path: &Path, mode: OpenMode) -> Result<Identity, Trouble> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing(mode)),
        Err(error) => return Err(Trouble::io("cannot be opened", &error)),
    };
    if metadata.is_dir() {
        return Err(Trouble::new("is a directory, not a database file")
            .with_hint("name a file in it, such as plumb.db"));
    }
    if !metadata.is_file() {
        return Err(Trouble::new("is not a regular file"));
    }
    Ok(Identity::of(&metadata))
}

fn missing(mode: OpenMode) -> Trouble {
    let trouble = Trouble::new("the file does not exist");
    match mode {
        OpenMode::CreateIfMissing => trouble,
        OpenMode::Existing | OpenMode::ReadOnly => trouble
            .with_hint("is SQLITE_PATH right? The first command that creates a record creates the file"),
    }
}

fn configure(connection: &Connection) -> Result<(), Trouble> {
    // FULL: a commit that was acknowledged survives a power cut. The file may hold who owns which address.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // After a burst the log shrinks to this again.
    connection.pragma_update(None, "journal_size_limit", 16 * 1024 * 1024)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// SQLite's own waiting grows to 100 ms per step, which lets one of several busy processes starve.
fn wait_for_lock(patience: Duration) -> impl FnMut(i32) -> bool {
    let mut since = Instant::now();
    move |attempts| {
        if attempts == 0 {
            since = Instant::now();
        }
        let pause = match attempts {
            0..20 => Duration::from_micros(250),
            20..100 => Duration::from_millis(1),
            _ => Duration::from_millis(5),
        };
        std::thread::sleep(pause);
        since.elapsed() < patience
    }
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for character in path.to_string_lossy().chars() {
        match character {
            '%' => uri.push_str("%25"),
            '?' => uri.push_str("%3f"),
            '#' => uri.push_str("%23"),
            other => uri.push(other),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_makes_commits_durable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plumb.db");
        let patience = Duration::from_secs(1);
        let (file, first) = DatabaseFile::open(&path, OpenMode::CreateIfMissing, patience).unwrap();
        for connection in [first, file.connect().unwrap()] {
            let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
            let synchronous: i64 =
                connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
            assert_eq!((mode.as_str(), synchronous), ("wal", 2), "2 is FULL");
        }
    }

    #[test]
    fn room_in_the_log_changes_nothing_that_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plumb.db");
        let patience = Duration::from_secs(1);
        let (file, writer) = DatabaseFile::open(&path, OpenMode::CreateIfMissing, patience).unwrap();
        let log = || fs::metadata(beside(&path, "-wal")).unwrap().len();
        let count = |connection: &Connection| -> i64 {
            connection.query_row("SELECT count(*) FROM record", [], |row| row.get(0)).unwrap()
        };
        let put = |key: &str| {
            let insert = "INSERT INTO record (key, revision, value) VALUES (?1, 1, x'00')";
            assert_eq!(writer.execute(insert, [key]).unwrap(), 1);
        };
        put("/a");
        assert!(log() < LOG_ROOM);
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        file.make_room_in_log().unwrap();
        writer.execute_batch("ROLLBACK").unwrap();
        let filesystem = rustix::fs::statvfs(directory.path()).unwrap();
        if filesystem.f_bavail * filesystem.f_frsize > 2 * SPACE_SCARCE {
            assert_eq!(log(), LOG_ROOM);
        }
        let length = log();
        put("/b");
        if length == LOG_ROOM {
            assert_eq!(log(), length, "what comes next uses the room");
        }
        assert_eq!(count(&writer), 2);
        // As whoever finds the files after a power cut: the log as it is, and no memory of it.
        let copy = tempfile::tempdir().unwrap();
        let found = copy.path().join("plumb.db");
        for suffix in ["", "-wal"] {
            fs::copy(beside(&path, suffix), beside(&found, suffix)).unwrap();
        }
        let (_, reader) = DatabaseFile::open(&found, OpenMode::Existing, patience).unwrap();
        assert_eq!(count(&reader), 2);
    }
}
