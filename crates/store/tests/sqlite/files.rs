//! Files that are missing, new, somebody else's, damaged, locked, or taken away.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use store::sqlite::SqliteOptions;
use store::{OpenMode, SqliteStore};

use super::*;

const MODES: [OpenMode; 3] = [OpenMode::CreateIfMissing, OpenMode::Existing, OpenMode::ReadOnly];

fn refusal(path: &Path, mode: OpenMode) -> (String, String) {
    storage_error(SqliteStore::open(path, mode).expect_err("the file is refused"))
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_new_store_is_for_its_owner_only() {
    let scratch = Scratch::new();
    let path = scratch.path("var").join("plumb.db");
    let store = open(&path, OpenMode::CreateIfMissing);
    store.create(handle("h"), b"x".to_vec()).await.unwrap();
    assert_eq!(mode_of(path.parent().unwrap()), 0o700);
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode_of(Path::new(&format!("{}{suffix}", path.display()))), 0o600, "{suffix}");
    }
    drop(store);
    let store = open(&path, OpenMode::CreateIfMissing);
    assert!(store.get(&handle("h")).await.unwrap().is_some(), "what is there is kept");
}

#[test]
fn a_missing_file_is_named_and_nothing_is_made() {
    let scratch = Scratch::new();
    for mode in [OpenMode::Existing, OpenMode::ReadOnly] {
        let (problem, hint) = refusal(&scratch.db(), mode);
        assert_eq!(problem, "the file does not exist");
        assert!(hint.contains("SQLITE_PATH"), "{hint}");
    }
    let error = SqliteStore::open(scratch.db(), OpenMode::ReadOnly).unwrap_err();
    assert!(error.to_string().starts_with(&scratch.db().display().to_string()), "{error}");

    let (problem, _) = refusal(&scratch.path("a/b/plumb.db"), OpenMode::CreateIfMissing);
    assert_eq!(problem, format!("the directory {} does not exist", scratch.path("a").display()));
    assert_eq!(scratch.names(), [""; 0]);
}

#[test]
fn what_cannot_be_a_database_is_refused() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.db()).unwrap();
    fs::write(scratch.path("plain"), "x").unwrap();
    for mode in MODES {
        let (problem, hint) = refusal(&scratch.db(), mode);
        assert_eq!(problem, "is a directory, not a database file");
        assert!(hint.contains("name a file"), "{hint}");
        assert_eq!(refusal(Path::new("/dev/null"), mode).0, "is not a regular file");
        let (problem, _) = refusal(&scratch.path("plain/plumb.db"), mode);
        assert!(!problem.is_empty());
    }
}

#[test]
fn files_of_others_are_left_as_they_are() {
    let scratch = Scratch::new();
    let text = scratch.path("notes.txt");
    fs::write(&text, "these are notes, not a database\n".repeat(200)).unwrap();
    let theirs = scratch.path("theirs.db");
    raw(&theirs).execute_batch("CREATE TABLE song (title); INSERT INTO song VALUES ('la')").unwrap();
    let newer = scratch.path("newer.db");
    drop(open(&newer, OpenMode::CreateIfMissing));
    raw(&newer).pragma_update(None, "user_version", 99).unwrap();

    let cases = [
        (&text, "is not a SQLite database"),
        (&theirs, "is a database of another program"),
        (&newer, "was written by a newer version (layout 99; this program knows 1)"),
    ];
    let names = scratch.names();
    for (path, expected) in cases {
        let before = fs::read(path).unwrap();
        for mode in MODES {
            let (problem, hint) = refusal(path, mode);
            assert_eq!(problem, expected, "{mode:?}");
            assert!(!hint.is_empty());
        }
        assert_eq!(fs::read(path).unwrap(), before, "{}", path.display());
    }
    // Reading a database that is ours, if newer, may leave SQLite's companions behind.
    let left = scratch.names().into_iter().filter(|name| !name.starts_with("newer.db-"));
    assert_eq!(left.collect::<Vec<_>>(), names);
}

#[tokio::test]
async fn an_empty_file_becomes_a_store() {
    let scratch = Scratch::new();
    fs::write(scratch.db(), "").unwrap();
    assert!(refusal(&scratch.db(), OpenMode::ReadOnly).0.starts_with("is empty"));
    let store = open(&scratch.db(), OpenMode::Existing);
    store.create(handle("h"), b"x".to_vec()).await.unwrap();
    assert!(open(&scratch.db(), OpenMode::ReadOnly).get(&handle("h")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_lock_held_for_too_long_is_reported() {
    let scratch = Scratch::new();
    let options = SqliteOptions { lock_patience: Duration::from_millis(50), ..SqliteOptions::default() };
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open_with(scratch.db(), OpenMode::CreateIfMissing, options).unwrap());
    let other = raw(&scratch.db());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();

    let (problem, hint) = storage_error(store.create(handle("h"), b"x".to_vec()).await.unwrap_err());
    assert_eq!(problem, "another process kept the database locked for more than 50ms");
    assert!(hint.contains("fuser"), "{hint}");
    assert_eq!(store.get(&handle("h")).await.unwrap(), None, "reading goes on");

    other.execute_batch("COMMIT").unwrap();
    store.create(handle("h"), b"x".to_vec()).await.unwrap();
}

#[tokio::test]
async fn a_store_opened_for_reading_refuses_changes() {
    let scratch = Scratch::new();
    let writer = open(&scratch.db(), OpenMode::CreateIfMissing);
    let reader = open(&scratch.db(), OpenMode::ReadOnly);
    let (problem, _) = storage_error(reader.create(handle("h"), b"x".to_vec()).await.unwrap_err());
    assert_eq!(problem, "was opened for reading only");
    writer.create(handle("h"), b"x".to_vec()).await.unwrap();
    assert!(reader.get(&handle("h")).await.unwrap().is_some(), "but it sees what others write");
}

#[tokio::test]
async fn links_and_strange_names_lead_to_the_file() {
    let scratch = Scratch::new();
    let path = scratch.path("a file?mode=memory#%41 ü.db");
    let store = open(&path, OpenMode::CreateIfMissing);
    store.create(handle("h"), b"x".to_vec()).await.unwrap();
    std::os::unix::fs::symlink(&path, scratch.path("link.db")).unwrap();
    let linked = SqliteStore::open(scratch.path("link.db"), OpenMode::Existing).unwrap();
    assert_eq!(fs::metadata(linked.path()).unwrap().ino(), fs::metadata(&path).unwrap().ino());
    assert!(linked.get(&handle("h")).await.unwrap().is_some());
}

#[tokio::test]
async fn drafts_of_crashed_creations_are_cleared_away() {
    let scratch = Scratch::new();
    let (old, new) = (scratch.path(".plumb.db.new-1-0"), scratch.path(".plumb.db.new-2-0"));
    for draft in [&old, &new] {
        fs::write(draft, "half").unwrap();
    }
    let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    fs::File::open(&old).unwrap().set_modified(hour_ago).unwrap();
    drop(open(&scratch.db(), OpenMode::CreateIfMissing));
    assert_eq!(scratch.names(), [".plumb.db.new-2-0", "plumb.db"]);
}
