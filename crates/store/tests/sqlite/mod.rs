//! What the tests of the SQLite store share.

mod crashes;
mod disks;
mod files;
mod history;
mod keeps_contract;
mod like_memory;
mod processes;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use model::Key;
use rusqlite::Connection;
use store::{OpenMode, SqliteStore, Store, StoreError};

/// A directory of its own for a test, removed at its end.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::Builder::new().prefix("plumb-store-").tempdir().expect("a scratch directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn db(&self) -> PathBuf {
        self.path("plumb.db")
    }

    /// Everything in the directory, by name.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("the directory can be read");
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn open(path: &Path, mode: OpenMode) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, mode).expect("the store opens"))
}

/// A plain connection, as another program would have.
fn raw(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("the database opens");
    connection.busy_timeout(std::time::Duration::from_secs(60)).expect("patience");
    connection
}

fn handle(id: impl Into<String>) -> Key {
    Key::Handle(id.into())
}

/// What a failure to open or write says: the problem and the hint.
fn storage_error(error: StoreError) -> (String, String) {
    let hint = error.hint().unwrap_or_default();
    match error {
        StoreError::Storage { problem, .. } => (problem, hint),
        other => panic!("expected Storage, got {other:?}"),
    }
}

const ROLE: &str = "PLUMB_STORE_TEST_ROLE";
const ROLE_PATH: &str = "PLUMB_STORE_TEST_PATH";

/// The part that a test plays inside a process that [`again`] started; `None` in the test itself.
fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, std::env::var_os(ROLE_PATH).expect("a role comes with a path").into()))
}

/// Runs one test of this program again, as another process that plays `role`. `through` is a command that starts it
/// in other circumstances.
fn again(test: &str, role: &str, path: &Path, through: &[&OsStr]) -> Command {
    let this = std::env::current_exe().expect("the path of this program");
    let mut command = match through {
        [] => Command::new(this),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(this);
            command
        }
    };
    command.args(["--exact", "--nocapture", "--test-threads=1", test]);
    command.env(ROLE, role).env(ROLE_PATH, path).stdin(Stdio::null());
    command
}

/// Runs a test again until it ends, and fails as it does.
fn play(test: &str, role: &str, path: &Path, through: &[&OsStr]) {
    let Output { status, stdout, stderr } = again(test, role, path, through).output().expect("it starts");
    let stdout = String::from_utf8_lossy(&stdout);
    let ran = stdout.contains("1 passed");
    assert!(
        status.success() && ran,
        "{role} of {test} ended with {status}\n{stdout}\n{}",
        String::from_utf8_lossy(&stderr)
    );
}

/// What a process tells its parent starts with this: the test harness prints to the same place.
const SAYS: &str = "> ";

fn say(text: &str) {
    use std::io::Write as _;
    let mut stdout = std::io::stdout().lock();
    // In one piece, and at a line start whatever the harness has printed before.
    stdout.write_all(format!("\n{SAYS}{text}\n").as_bytes()).and_then(|()| stdout.flush()).expect("heard");
}

/// A child that is gone when the test is.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A small generator of numbers: the same seed, the same numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}
