//! Lost history: compacted, or gone with the data itself.

use model::{Key, KeyRange};
use store::etcd::{EtcdConfig, EtcdStore};
use store::{Event, ListRequest, Store, StoreError};
use testkit::etcd::{Setup, start_or_skip};
use testkit::forwarder::{Forwarder, Traffic};

use crate::{connect, next};

fn handle(number: usize) -> Key {
    Key::Handle(format!("h{number:05}").into())
}

async fn create(store: &EtcdStore, numbers: std::ops::Range<usize>) -> store::Revision {
    let store: &dyn Store = store;
    let mut last = None;
    for number in numbers {
        last = Some(store.create(handle(number), b"{}".to_vec()).await.unwrap());
    }
    last.expect("at least one")
}

#[tokio::test]
async fn a_list_that_is_overtaken_by_compaction_says_so() {
    let Some(cluster) = start_or_skip("a_list_that_is_overtaken_by_compaction_says_so", Setup::members(1))
    else {
        return;
    };
    let store = connect(&cluster).await;
    create(&store, 0..40).await;
    let request = ListRequest::new(KeyRange::Handles).with_limit(10);
    let first = store.list(request.clone()).await.unwrap();
    let now = create(&store, 40..41).await;
    store.compact(&now).await.unwrap();
    let error = store.list(request.continued(first.next.unwrap())).await.unwrap_err();
    assert!(matches!(error, StoreError::HistoryGone { range } if range == KeyRange::Handles));
}

/// What was read ahead is still true when etcd has forgotten it; where that ends, the list ends.
#[tokio::test]
async fn a_long_list_shows_one_moment_or_fails() {
    let test = "a_long_list_shows_one_moment_or_fails";
    let Some(cluster) = start_or_skip(test, Setup::members(1)) else { return };
    let store = connect(&cluster).await;
    create(&store, 0..120).await;
    let mut request = ListRequest::new(KeyRange::Handles).with_limit(10);
    let mut seen = Vec::new();
    loop {
        let page = match store.list(request.clone()).await {
            Ok(page) => page,
            Err(StoreError::HistoryGone { .. }) => break,
            Err(error) => panic!("{error:?}"),
        };
        seen.extend(page.records.iter().map(|record| record.key.clone()));
        let record = store.get(&handle(seen.len())).await.unwrap().unwrap_or(page.records[0].clone());
        let now = (&store as &dyn Store).update(record.key, b"[]".to_vec(), record.revision).await.unwrap();
        store.compact(&now).await.unwrap();
        assert!(page.records.iter().all(|record| record.value == "{}"), "a later moment shows");
        match page.next {
            Some(next) => request = request.continued(next),
            None => break,
        }
    }
    assert_eq!(seen, (0..seen.len()).map(handle).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_watch_that_needs_compacted_history_says_so() {
    let Some(cluster) = start_or_skip("a_watch_that_needs_compacted_history_says_so", Setup::members(1))
    else {
        return;
    };
    let store = connect(&cluster).await;
    let start = create(&store, 0..1).await;
    let mut running = store.watch(KeyRange::Handles, start.clone()).await.unwrap();
    create(&store, 1..2).await;
    assert!(matches!(next(&mut running).await, Some(Event::Put(record)) if record.key == handle(1)));

    // A watch that is up to date does not care.
    let now = create(&store, 2..3).await;
    assert!(matches!(next(&mut running).await, Some(Event::Put(record)) if record.key == handle(2)));
    store.compact(&now).await.unwrap();
    create(&store, 3..4).await;
    assert!(matches!(next(&mut running).await, Some(Event::Put(record)) if record.key == handle(3)));

    // One that starts in the past does.
    let mut late = store.watch(KeyRange::Handles, start).await.unwrap();
    assert!(matches!(next(&mut late).await, Some(Event::HistoryGone)));
    assert!(next(&mut late).await.is_none());

    // And so does one that was interrupted while its history went.
    let forwarder = Forwarder::to(cluster.client_port(0));
    let endpoint = format!("http://127.0.0.1:{}", forwarder.port());
    let remote = EtcdStore::connect(EtcdConfig::new([endpoint])).await.unwrap();
    let mut interrupted = remote.watch(KeyRange::Handles, now).await.unwrap();
    assert!(matches!(next(&mut interrupted).await, Some(Event::Put(record)) if record.key == handle(3)));
    forwarder.set(Traffic::Cut);
    create(&store, 4..6).await;
    let now = create(&store, 6..7).await;
    store.compact(&now).await.unwrap();
    forwarder.set(Traffic::Flows);
    assert!(matches!(next(&mut interrupted).await, Some(Event::HistoryGone)));
}

/// A store that lost its data counts from the start again: revisions we know mean nothing there.
#[tokio::test]
async fn a_store_that_went_back_in_time_is_noticed() {
    let Some(mut cluster) = start_or_skip("a_store_that_went_back_in_time_is_noticed", Setup::members(1))
    else {
        return;
    };
    let store = connect(&cluster).await;
    let revision = create(&store, 0..20).await;
    let request = ListRequest::new(KeyRange::Handles).with_limit(5);
    let first = store.list(request.clone()).await.unwrap();
    let mut watch = store.watch(KeyRange::Handles, revision.clone()).await.unwrap();
    create(&store, 20..21).await;
    assert!(matches!(next(&mut watch).await, Some(Event::Put(_))));

    cluster.wipe(0).unwrap();
    cluster.restart(0).unwrap();
    assert!(matches!(next(&mut watch).await, Some(Event::HistoryGone)));
    let mut again = store.watch(KeyRange::Handles, revision).await.unwrap();
    assert!(matches!(next(&mut again).await, Some(Event::HistoryGone)));
    let error = store.list(request.continued(first.next.unwrap())).await.unwrap_err();
    assert!(matches!(error, StoreError::HistoryGone { .. }), "{error:?}");
}
