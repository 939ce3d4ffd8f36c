//! What the tests of the SQLite store share.

mod crashes;
mod damage;
mod disks;
mod files;
mod history;
mod keeps_contract;
mod like_memory;
mod processes;
mod replaced;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use model::Key;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
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
    Key::Handle(id.into().into())
}

/// What a failure to open or write says: the problem and the hint.
fn storage_error(error: StoreError) -> (String, String) {
    let hint = error.hint().unwrap_or_default();
    match error {
        StoreError::Storage { problem, .. } => (problem, hint),
        other => panic!("expected Storage, got {other:?}"),
    }
}

/// A command that runs one test of this program again, as another process that plays `role` on a file.
fn again(test: &str, role: &str, path: &Path) -> Command {
    testkit::again(test, role, path.to_str().expect("paths of tests are text"))
}

/// Runs a test again in other circumstances, which `through` makes, and fails as it does.
fn play(test: &str, path: &Path, through: &[&str]) {
    let inside = again(test, "inside", path);
    let mut command = Command::new(through[0]);
    command.args(&through[1..]).arg(inside.get_program()).args(inside.get_args());
    command.envs(inside.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let stdout = String::from_utf8_lossy(&stdout);
    let ran = stdout.contains("1 passed");
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success() && ran, "{test} inside ended with {status}\n{stdout}\n{stderr}");
}

/// Runs a property on random inputs that the run's seed decides.
fn for_random<S: Strategy>(cases: usize, strategy: &S, property: impl Fn(S::Value)) {
    let seed = testkit::seed();
    let cases = u32::try_from(cases).expect("a sensible number");
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let outcome = TestRunner::new_with_rng(config, rng).run(strategy, |value| {
        property(value);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("seed {seed}: {failure}");
    }
}

/// What a process tells its parent starts with this: the test harness prints to the same place.
const SAYS: &str = "> ";

fn say(text: &str) {
    use std::io::Write as _;
    let mut stdout = std::io::stdout().lock();
    // In one piece, and at a line start whatever the harness has printed before.
    stdout.write_all(format!("\n{SAYS}{text}\n").as_bytes()).and_then(|()| stdout.flush()).expect("heard");
}
