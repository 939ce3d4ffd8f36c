//! Files whose contents are damaged.

use std::fs;

use model::KeyRange;
use proptest::prelude::*;
use rusqlite::params;
use store::{OpenMode, Revision, SqliteStore};

use super::*;

#[tokio::test]
async fn damage_is_called_damage() {
    let scratch = Scratch::new();
    let store = open(&scratch.db(), OpenMode::CreateIfMissing);
    for n in 0..200 {
        store.create(handle(format!("h{n}")), vec![b'x'; 500]).await.unwrap();
    }
    drop(store);
    let mut bytes = fs::read(scratch.db()).unwrap();
    // The first page stays: the file still looks like ours.
    bytes[4096..].fill(0xa5);
    fs::write(scratch.db(), bytes).unwrap();

    let found = match SqliteStore::open(scratch.db(), OpenMode::Existing) {
        Err(error) => error,
        Ok(store) => {
            let store: Arc<dyn Store> = Arc::new(store);
            let listed = store.list_all(KeyRange::Handles).await.expect_err("the list meets the damage");
            let refused = store.create(handle("new"), b"x".to_vec()).await.expect_err("so does a commit");
            assert_eq!(storage_error(refused).0, "the database is damaged");
            listed
        }
    };
    let (problem, hint) = storage_error(found);
    assert_eq!(problem, "the database is damaged");
    assert!(hint.contains("backup"), "{hint}");
}

/// Whatever the bytes are, the answers are answers: records, or an error that says what is wrong.
#[test]
fn damaged_bytes_are_survived() {
    let scratch = Scratch::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let store = open(&scratch.db(), OpenMode::CreateIfMissing);
    for n in 0..40 {
        runtime.block_on(store.create(handle(format!("h{n}")), vec![b'x'; 300])).unwrap();
    }
    drop(store);
    let sound = fs::read(scratch.db()).unwrap();

    let damage = prop::collection::vec((0..sound.len(), any::<u8>()), 1..40);
    let cut = prop_oneof![3 => Just(None), 1 => (0..sound.len()).prop_map(Some)];
    for_random(testkit::count(60, 1000), &(damage, cut), |(damage, cut)| {
        let scratch = Scratch::new();
        let mut bytes = sound.clone();
        for (place, byte) in damage {
            bytes[place] = byte;
        }
        bytes.truncate(cut.unwrap_or(bytes.len()));
        fs::write(scratch.db(), bytes).unwrap();
        runtime.block_on(use_it(&scratch.db()));
    });
}

async fn use_it(path: &Path) {
    let store: Arc<dyn Store> = match SqliteStore::open(path, OpenMode::Existing) {
        Ok(store) => Arc::new(store),
        Err(error) => return drop(storage_error(error)),
    };
    let listed = store.list_all(KeyRange::Everything).await;
    let revision = listed.as_ref().map_or(Revision::new("1"), |(_, revision)| revision.clone());
    let outcomes = [
        listed.map(drop),
        store.get(&handle("h7")).await.map(drop),
        store.create(handle("new"), b"x".to_vec()).await.map(drop),
        watch_one(&*store, revision).await,
        watch_one(&*store, Revision::new("1")).await,
    ];
    for error in outcomes.into_iter().filter_map(Result::err) {
        let (problem, _) = storage_error(error);
        assert!(!problem.is_empty());
    }
}

/// The first thing a watch tells, if it has anything to tell.
async fn watch_one(store: &dyn Store, after: Revision) -> Result<(), StoreError> {
    let mut watch = store.watch(KeyRange::Everything, after).await?;
    tokio::select! {
        event = watch.next() => event.transpose().map(drop),
        () = tokio::time::sleep(std::time::Duration::from_millis(20)) => Ok(()),
    }
}

/// A file that SQLite finds sound may still hold what no commit of ours wrote.
#[tokio::test]
async fn absurd_contents_are_survived() {
    for absurd in [i64::MIN, -1, 0, i64::MAX / 256, i64::MAX] {
        let scratch = Scratch::new();
        let store = open(&scratch.db(), OpenMode::CreateIfMissing);
        store.create(handle("h7"), b"x".to_vec()).await.unwrap();
        let connection = raw(&scratch.db());
        connection
            .execute("UPDATE store SET revision = ?1, floor = ?1, history_bytes = ?1", params![absurd])
            .unwrap();
        connection.execute("UPDATE record SET revision = ?1", params![absurd]).unwrap();
        connection.execute("INSERT INTO history (id, key) VALUES (?1, 'nonsense')", params![absurd]).unwrap();
        drop(store);
        for _ in 0..3 {
            let store = open(&scratch.db(), OpenMode::Existing);
            for outcome in [
                store.list_all(KeyRange::Everything).await.map(drop),
                store.create(handle("new"), b"x".to_vec()).await.map(drop),
                watch_one(&*store, Revision::new(absurd.to_string())).await,
            ] {
                let invalid = matches!(&outcome, Err(StoreError::Invalid { .. }));
                if let Err(error) = outcome
                    && !invalid
                    && !matches!(error, StoreError::AlreadyExists { .. })
                {
                    storage_error(error);
                }
            }
        }
    }
}
