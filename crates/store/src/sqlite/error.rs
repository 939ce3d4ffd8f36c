//! What SQLite and the file system complain about, in words an operator can act on.

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::{ErrorCode, ffi};

use crate::StoreError;

/// Something wrong with the database file. Unlike `StoreError` it can be told to several callers.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    problem: String,
    hint: Option<String>,
    /// SQLite's or the system's own words.
    detail: Option<String>,
    code: Option<ErrorCode>,
}

impl Trouble {
    pub(super) fn new(problem: impl Into<String>) -> Trouble {
        Trouble { problem: problem.into(), hint: None, detail: None, code: None }
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Trouble {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn with_detail(mut self, detail: String) -> Trouble {
        self.detail = Some(detail);
        self
    }

    /// The file system refuses: `problem` says what was tried.
    pub(super) fn io(problem: impl Into<String>, error: &io::Error) -> Trouble {
        let trouble = Trouble::new(problem);
        let trouble = match error.kind() {
            io::ErrorKind::PermissionDenied => trouble.with_hint("run this as root, or as the file's owner"),
            io::ErrorKind::StorageFull => trouble.with_hint(FREE_SPACE),
            _ => trouble,
        };
        Trouble { detail: Some(error.to_string()), ..trouble }
    }

    pub(super) fn at(&self, path: &Path) -> StoreError {
        StoreError::Storage {
            path: path.display().to_string(),
            problem: self.problem.clone(),
            hint: self.hint.clone(),
            source: self.detail.clone().map(Into::into),
        }
    }

    /// SQLite could not open one of its files, and did not say which or why.
    pub(super) fn is_vague(&self) -> bool {
        matches!(self.code, Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
    }

    pub(super) fn is_locked(&self) -> bool {
        matches!(self.code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }

    /// What was written may or may not be found again after a crash.
    pub(super) fn is_io_failure(&self) -> bool {
        self.code == Some(ErrorCode::SystemIoFailure)
    }

    pub(super) fn disk_full(detail: String) -> Trouble {
        Trouble::new("no space left on the disk").with_hint(FREE_SPACE).with_detail(detail)
    }

    pub(super) fn damaged(detail: String) -> Trouble {
        Trouble::new("the database is damaged").with_hint(RESTORE).with_detail(detail)
    }

    pub(super) fn locked(patience: Duration) -> Trouble {
        Trouble::new(format!("another process kept the database locked for more than {patience:?}"))
            .with_hint("find who holds it with `fuser -v` on the file; a stopped process may hold the lock")
    }
}

const RESTORE: &str =
    "stop everything that uses it, keep a copy, and restore a backup or try `sqlite3 FILE .recover`";
const FREE_SPACE: &str = "free some space on that file system; nothing was changed";

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        let detail = Some(error.to_string());
        let Some(code) = error.sqlite_error_code() else {
            let trouble = Trouble::new("the database does not hold what it should").with_hint(RESTORE);
            return Trouble { detail, ..trouble };
        };
        let trouble = match code {
            ErrorCode::NotADatabase => Trouble::new("is not a SQLite database")
                .with_hint("is this the right path? It is left as it is"),
            ErrorCode::DatabaseCorrupt => Trouble::damaged(error.to_string()),
            ErrorCode::ReadOnly => {
                Trouble::new("cannot be written: the file or its file system is read-only")
            }
            ErrorCode::DiskFull => Trouble::disk_full(error.to_string()),
            ErrorCode::CannotOpen => Trouble::new("the database cannot be opened"),
            ErrorCode::PermissionDenied => Trouble::new("access to the database is denied"),
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                Trouble::new("another process keeps the database locked")
            }
            ErrorCode::SystemIoFailure if is_shared_memory_growth(&error) => {
                Trouble::disk_full(error.to_string())
            }
            ErrorCode::SystemIoFailure => Trouble::new("reading or writing the database failed")
                .with_hint("look for disk errors: `dmesg`"),
            _ => Trouble::new("the database refuses the operation"),
        };
        Trouble { detail, code: Some(code), ..trouble }
    }
}

/// Making the index file of the log larger fails for want of space, but SQLite calls it an I/O error.
fn is_shared_memory_growth(error: &rusqlite::Error) -> bool {
    error.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_SHMSIZE)
}
