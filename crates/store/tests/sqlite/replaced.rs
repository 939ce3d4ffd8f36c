//! A file that is moved, replaced or restored under a running store.

use std::fs;
use std::path::Path;
use std::time::Duration;

use model::KeyRange;
use store::{Event, OpenMode, Revision, Watch};

use super::*;

const MOVED: &str = "the file was removed or replaced while in use";

/// A store with one record, that is being watched.
async fn watched(scratch: &Scratch) -> (Arc<dyn Store>, Watch) {
    let store = open(&scratch.db(), OpenMode::CreateIfMissing);
    store.create(handle("h"), b"x".to_vec()).await.unwrap();
    let watch = follow(&*store).await;
    (store, watch)
}

async fn follow(store: &dyn Store) -> Watch {
    let (_, revision) = store.list_all(KeyRange::Handles).await.unwrap();
    store.watch(KeyRange::Handles, revision).await.unwrap()
}

/// Until the store answers again.
async fn recovered(store: &dyn Store) {
    let answers = async {
        while store.probe().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(testkit::PATIENCE, answers).await.expect("the store recovers");
}

async fn heard(watch: &mut Watch) -> Result<Event, StoreError> {
    tokio::time::timeout(testkit::PATIENCE, watch.next()).await.expect("the watch is not silent").unwrap()
}

/// A copy as a person would make it, while the store is in use.
fn back_up(from: &Path, to: &Path) {
    raw(from).execute("VACUUM INTO ?1", [to.to_str().unwrap()]).unwrap();
}

/// What `.restore` of SQLite's shell does: everything is as in the backup, and the file is the same.
fn restore_into(path: &Path, backup: &Path) {
    let connection = raw(path);
    connection.execute("ATTACH ?1 AS backup", [backup.to_str().unwrap()]).unwrap();
    let restore = "BEGIN IMMEDIATE;
        DELETE FROM record; INSERT INTO record SELECT * FROM backup.record;
        DELETE FROM history; INSERT INTO history SELECT * FROM backup.history;
        DELETE FROM store; INSERT INTO store SELECT * FROM backup.store;
        COMMIT";
    connection.execute_batch(restore).unwrap();
}

fn number(revision: &Revision) -> u64 {
    revision.as_str().parse().unwrap()
}

#[tokio::test]
async fn a_file_that_was_taken_away_is_neither_read_nor_written() {
    let scratch = Scratch::new();
    let (store, mut watch) = watched(&scratch).await;
    fs::rename(scratch.db(), scratch.path("old.db")).unwrap();

    assert_eq!(storage_error(heard(&mut watch).await.expect_err("the watch ends")).0, MOVED);
    assert!(watch.next().await.is_none());
    for refused in [
        store.probe().await.unwrap_err(),
        store.get(&handle("h")).await.unwrap_err(),
        store.list_all(KeyRange::Handles).await.unwrap_err(),
        store.create(handle("lost"), b"x".to_vec()).await.unwrap_err(),
    ] {
        let (problem, hint) = storage_error(refused);
        assert_eq!(problem, MOVED);
        assert!(hint.contains("put the file back"), "{hint}");
    }
    assert!(!scratch.db().exists(), "no new one is made in its place");
}

#[tokio::test]
async fn a_file_that_comes_back_is_followed_again() {
    let scratch = Scratch::new();
    let (store, mut watch) = watched(&scratch).await;
    fs::rename(scratch.db(), scratch.path("old.db")).unwrap();
    heard(&mut watch).await.expect_err("the watch ends");
    fs::rename(scratch.path("old.db"), scratch.db()).unwrap();
    recovered(&*store).await;

    let mut watch = loop {
        // The listener may be later than we are.
        let mut watch = follow(&*store).await;
        let silent = tokio::time::timeout(Duration::from_millis(50), watch.next()).await.is_err();
        if silent {
            break watch;
        }
    };
    let other = open(&scratch.db(), OpenMode::Existing);
    other.create(handle("by another"), b"y".to_vec()).await.unwrap();
    assert!(matches!(heard(&mut watch).await, Ok(Event::Put(record)) if record.key == handle("by another")));
}

/// Another file, older than what was known: its revisions go on beyond those, so that none of them means two things.
#[tokio::test]
async fn a_backup_in_the_place_of_the_file_is_taken_over() {
    let scratch = Scratch::new();
    let (store, mut watch) = watched(&scratch).await;
    back_up(&scratch.db(), &scratch.path("backup.db"));
    for n in 0..20 {
        store.create(handle(format!("after the backup {n}")), b"y".to_vec()).await.unwrap();
    }
    let (records, newest) = store.list_all(KeyRange::Handles).await.unwrap();
    assert_eq!(records.len(), 21);
    // The log of the file before stays where it is, as it does when somebody restores the one file he knows of.
    fs::rename(scratch.path("backup.db"), scratch.db()).unwrap();
    // Events of the old file may come first.
    while heard(&mut watch).await.is_ok_and(|event| event != Event::HistoryGone) {}
    recovered(&*store).await;

    let (records, revision) = store.list_all(KeyRange::Handles).await.unwrap();
    assert_eq!(records.iter().map(|record| record.key.clone()).collect::<Vec<_>>(), [handle("h")]);
    assert!(number(&revision) > number(&newest), "{revision} after {newest}");
    let made = store.create(handle("new"), b"z".to_vec()).await.unwrap();
    assert!(number(&made) > number(&newest), "{made} after {newest}");
    let verdict: String =
        raw(&scratch.db()).pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let other = open(&scratch.db(), OpenMode::ReadOnly);
    assert!(other.get(&handle("new")).await.unwrap().is_some(), "it is the new file that is written");
}

#[tokio::test]
async fn a_backup_that_is_restored_into_the_file_ends_every_watch() {
    let scratch = Scratch::new();
    let (store, mut watch) = watched(&scratch).await;
    back_up(&scratch.db(), &scratch.path("backup.db"));
    let lost = store.create(handle("after the backup"), b"y".to_vec()).await.unwrap();
    assert!(heard(&mut watch).await.is_ok());
    restore_into(&scratch.db(), &scratch.path("backup.db"));

    let told = heard(&mut watch).await.unwrap();
    assert_eq!(told, Event::HistoryGone);
    recovered(&*store).await;
    let made = store.create(handle("new"), b"z".to_vec()).await.unwrap();
    assert!(number(&made) > number(&lost), "{made} after {lost}");
    let mut watch = follow(&*store).await;
    store.create(handle("newer"), b"z".to_vec()).await.unwrap();
    assert!(matches!(heard(&mut watch).await, Ok(Event::Put(record)) if record.key == handle("newer")));
}

#[tokio::test]
async fn what_is_no_store_is_not_taken_over() {
    let scratch = Scratch::new();
    let (store, mut watch) = watched(&scratch).await;
    fs::rename(scratch.db(), scratch.path("old.db")).unwrap();
    fs::write(scratch.db(), "not a database\n".repeat(100)).unwrap();
    heard(&mut watch).await.expect_err("the watch ends");
    let text = fs::read(scratch.db()).unwrap();
    // As soon as it was looked at, a new watch is told why.
    let wait = async {
        loop {
            let mut watch = store.watch(KeyRange::Handles, 1.into()).await.unwrap();
            let (problem, _) = storage_error(watch.next().await.unwrap().unwrap_err());
            if problem == "is not a SQLite database" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(testkit::PATIENCE, wait).await.expect("it is looked at");
    assert_eq!(fs::read(scratch.db()).unwrap(), text);
    assert_eq!(storage_error(store.probe().await.unwrap_err()).0, MOVED);
}

/// SQLite would take the log for that of the new file, and write it into it.
#[tokio::test]
async fn the_log_of_a_lost_file_is_not_that_of_a_new_one() {
    let scratch = Scratch::new();
    let (store, _watch) = watched(&scratch).await;
    fs::remove_file(scratch.db()).unwrap();
    assert!(scratch.path("plumb.db-wal").exists());
    let fresh = open(&scratch.db(), OpenMode::CreateIfMissing);
    assert_eq!(fresh.get(&handle("h")).await.unwrap(), None, "nothing of the lost file is in the new one");
    assert!(scratch.path("plumb.db-wal.old").exists(), "and the old log is kept");
    drop(store);
}

/// Several make the store at the same moment, as pods of a new node do: nobody takes the log of whoever was faster for a leftover.
#[test]
fn whoever_makes_the_same_store_at_once_leaves_the_others_log_alone() {
    for _ in 0..testkit::count(5, 100) {
        let scratch = Scratch::new();
        let path = scratch.db();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    let store = open(path, OpenMode::CreateIfMissing);
                    let key = handle(format!("h{number}"));
                    runtime.block_on(store.create(key, b"{}".to_vec())).unwrap();
                });
            }
        });
        assert!(!scratch.path("plumb.db-wal.old").exists(), "a log that is in use was set aside");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = open(&path, OpenMode::ReadOnly);
        for number in 0..8 {
            let record = runtime.block_on(store.get(&handle(format!("h{number}")))).unwrap();
            assert!(record.is_some(), "h{number} is lost");
        }
    }
}

/// Who makes a store waits for whoever is at it in the same folder, and finds theirs there.
#[test]
fn whoever_makes_a_store_waits_for_its_turn() {
    let (scratch, ready) = (Scratch::new(), Scratch::new());
    drop(open(&ready.db(), OpenMode::CreateIfMissing));
    let folder = scratch.db().parent().unwrap().to_owned();
    let turn = fs::File::open(&folder).unwrap();
    turn.lock().unwrap();
    std::thread::scope(|scope| {
        let path = scratch.db();
        let maker = scope.spawn(move || drop(open(&path, OpenMode::CreateIfMissing)));
        let has_draft = || fs::read_dir(&folder).unwrap().count() > 0;
        wait_until(has_draft);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!scratch.db().exists(), "it did not wait");
        fs::copy(ready.db(), scratch.db()).unwrap();
        fs::write(scratch.path("plumb.db-wal"), []).unwrap();
        drop(turn);
        maker.join().unwrap();
    });
    assert!(!scratch.path("plumb.db-wal.old").exists(), "the log of a store that is there was set aside");
}

fn wait_until(is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < testkit::PATIENCE, "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}
