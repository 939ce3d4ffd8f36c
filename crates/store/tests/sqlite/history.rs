//! The history is bounded, by count and by size, and what falls out of it is said.

use model::KeyRange;
use store::sqlite::{History, SqliteOptions};
use store::{Event, OpenMode, Revision, SqliteStore};

use super::*;

fn with_history(path: &Path, history: History) -> Arc<dyn Store> {
    let options = SqliteOptions { history, ..SqliteOptions::default() };
    Arc::new(SqliteStore::open_with(path, OpenMode::CreateIfMissing, options).unwrap())
}

/// How many changes are remembered, how much they take, and what the store believes about that.
fn kept(path: &Path) -> (i64, i64, i64) {
    let sql = "SELECT count(*), ifnull(sum(length(CAST(key AS BLOB)) + ifnull(length(before_value), 0)), 0),
               (SELECT history_bytes FROM store) FROM history";
    raw(path).query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
}

#[tokio::test]
async fn history_is_bounded_by_count() {
    let scratch = Scratch::new();
    let store = with_history(&scratch.db(), History { commits_max: 20, bytes_max: u64::MAX });
    let mut watch = store.watch(KeyRange::Handles, Revision::new("1")).await.unwrap();
    let mut revisions = Vec::new();
    for n in 0..100 {
        revisions.push(store.create(handle(format!("h{n}")), b"x".to_vec()).await.unwrap());
    }
    let (count, bytes, believed) = kept(&scratch.db());
    assert_eq!(count, 20);
    assert_eq!(bytes, believed);

    assert_eq!(watch.next().await.unwrap().unwrap(), Event::HistoryGone, "a watch that fell behind is told");
    let mut watch = store.watch(KeyRange::Handles, revisions[79].clone()).await.unwrap();
    for revision in &revisions[80..] {
        assert_eq!(watch.next().await.unwrap().unwrap().revision(), Some(revision));
    }
    let mut watch = store.watch(KeyRange::Handles, revisions[78].clone()).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), Event::HistoryGone);
}

#[tokio::test]
async fn history_is_bounded_by_size() {
    const BYTES_MAX: i64 = 256 * 1024;
    let scratch = Scratch::new();
    let history = History { commits_max: 1_000_000, bytes_max: BYTES_MAX as u64 };
    let store = with_history(&scratch.db(), history);
    let mut revision = store.create(handle("h"), vec![b'0'; 20_000]).await.unwrap();
    for n in 0..testkit::count(60, 400) {
        revision = store.update(handle("h"), vec![b'0' + (n % 10) as u8; 20_000], revision).await.unwrap();
        let (count, bytes, believed) = kept(&scratch.db());
        assert!(bytes <= BYTES_MAX, "{bytes} bytes are kept after {n} changes");
        assert_eq!(bytes, believed);
        assert!(count >= 12.min(n as i64 + 2), "{count} changes are kept after {n}");
    }
    drop(store);
    let size = std::fs::metadata(scratch.db()).unwrap().len();
    assert!(size < 2 * BYTES_MAX as u64, "freed pages are used again: {size}");
}
