//! What the tests of the SQLite store share.

mod keeps_contract;

use std::path::{Path, PathBuf};

use rusqlite::Connection;

/// A directory of its own for a test, removed at its end.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::Builder::new().prefix("plumb-store-").tempdir().expect("a scratch directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A plain connection, as another program would have.
fn raw(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("the database opens");
    connection.busy_timeout(std::time::Duration::from_secs(60)).expect("patience");
    connection
}
