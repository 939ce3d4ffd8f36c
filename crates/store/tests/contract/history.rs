//! What a store may forget and must then say; what lies in it that is not ours.

use std::sync::Arc;

use store::{ListRequest, StoreError};

use super::*;

const FOREIGN: [&str; 6] = [
    "/calico/ipam/v2/host/node-a",
    "/calico/ipam/v2/host/node-a/ipv4/block/not-a-block",
    "/calico/felix/v2/no-region/host/node-a/status",
    "/calico/resources/v3/projectcalico.org/ippools/a/b",
    "/calico/resources/v3/projectcalico.org/flyingcarpets/a",
    "/calico/v1/ipam",
];

pub(super) async fn a_watch_into_lost_history_says_so(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let long_ago = create(&*store, &pool("a"), "one").await;
    let second = store.update(pool("a"), value("two"), long_ago.clone()).await.unwrap();
    let third = store.update(pool("a"), value("three"), second).await.unwrap();
    backend.forget_history().await;

    let mut watch = start(&*store, pools(), &long_ago).await;
    assert_eq!(next(&mut watch).await, Event::HistoryGone);
    assert!(watch.next().await.is_none(), "nothing follows");

    let mut watch = start(&*store, pools(), &third).await;
    nothing_before_a_marker(&*store, &mut watch, &pool("z")).await;
}

/// Which of the two it is, the backend may choose; but not to stay silent.
pub(super) async fn a_watch_overtaken_by_forgetting_tells_all_or_says_so(backend: &dyn Backend) {
    for by_another in [false, true] {
        let store = backend.fresh().await;
        let writer = if by_another { backend.another().await } else { Arc::clone(&store) };
        let before = now(&*store).await;
        let first = create(&*writer, &pool("a"), "one").await;
        let mut pools_watch = start(&*store, pools(), &before).await;
        let mut handles_watch = start(&*store, KeyRange::Handles, &before).await;
        assert_eq!(next(&mut pools_watch).await, put(&pool("a"), "one", &first));

        let second = writer.update(pool("a"), value("two"), first).await.unwrap();
        backend.forget_history().await;
        let told = next(&mut pools_watch).await;
        let goes_on = told == put(&pool("a"), "two", &second);
        assert!(goes_on || told == Event::HistoryGone, "{told:?}");
        if goes_on {
            nothing_before_a_marker(&*writer, &mut pools_watch, &pool("z")).await;
        } else {
            assert!(pools_watch.next().await.is_none(), "nothing follows");
        }
        // Of its range nothing was lost, which the store need not know.
        let third = create(&*writer, &handle("h"), "three").await;
        let told = next(&mut handles_watch).await;
        assert!(told == put(&handle("h"), "three", &third) || told == Event::HistoryGone, "{told:?}");
    }
}

pub(super) async fn a_watch_that_has_told_all_outlives_forgetting(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let before = now(&*store).await;
    let mut watch = start(&*store, pools(), &before).await;
    let first = create(&*store, &pool("a"), "one").await;
    assert_eq!(next(&mut watch).await, put(&pool("a"), "one", &first));
    backend.forget_history().await;
    nothing_before_a_marker(&*store, &mut watch, &pool("z")).await;
}

pub(super) async fn a_list_whose_moment_is_forgotten_says_so(backend: &dyn Backend) {
    let store = backend.fresh().await;
    for n in 0..4 {
        create(&*store, &handle(format!("h{n}")), "x").await;
    }
    let request = ListRequest::new(KeyRange::Handles).with_limit(2);
    let page = store.list(request.clone()).await.unwrap();
    create(&*store, &handle("h9"), "later").await;
    backend.forget_history().await;

    match store.list(request.clone().continued(page.next.unwrap())).await {
        Err(StoreError::HistoryGone { range }) => assert_eq!(range, KeyRange::Handles),
        other => panic!("expected HistoryGone, got {other:?}"),
    }
    assert_eq!(store.list_all(KeyRange::Handles).await.unwrap().0.len(), 5, "starting over works");
}

pub(super) async fn forgetting_keeps_the_present(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let first = create(&*store, &pool("a"), "one").await;
    store.update(pool("a"), value("two"), first.clone()).await.unwrap();
    let before = everything(&*store).await;
    backend.forget_history().await;

    assert_eq!(everything(&*store).await, before);
    let current = existing(&*store, &pool("a")).await;
    assert_conflict(store.update(pool("a"), value("x"), first).await, &current);
    store.update(pool("a"), value("three"), current.revision).await.unwrap();
}

pub(super) async fn foreign_keys_are_passed_over(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let from = now(&*store).await;
    let mut watch = start(&*store, KeyRange::Everything, &from).await;
    for key in FOREIGN {
        backend.put_foreign(key, "not even JSON").await;
    }
    let revision = create(&*store, &pool("a"), "ours").await;
    assert_eq!(next(&mut watch).await, put(&pool("a"), "ours", &revision));

    let (records, _) = everything(&*store).await;
    assert_eq!(records.into_iter().map(|record| record.key).collect::<Vec<_>>(), [pool("a")]);
    let nodes = KeyRange::Kind(model::Kind::Node);
    let nodes = store.capabilities().endpoints_are_records.then_some(nodes);
    for range in [Some(KeyRange::HostAffinities), nodes].into_iter().flatten() {
        assert_eq!(store.list_all(range).await.unwrap().0, []);
    }
}

pub(super) async fn pages_are_filled_past_foreign_keys(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let mut keys = Vec::new();
    for n in 0..9 {
        backend.put_foreign(&format!("/calico/resources/v3/projectcalico.org/ippools/p{n}/x"), "{}").await;
        keys.push(pool(&format!("p{n}")));
        create(&*store, &pool(&format!("p{n}")), "x").await;
    }
    let mut request = ListRequest::new(pools()).with_limit(2);
    let mut listed = Vec::new();
    for _ in 0..20 {
        let page = store.list(request.clone()).await.unwrap();
        listed.extend(page.records.into_iter().map(|record| record.key));
        match page.next {
            Some(next) => request = request.continued(next),
            None => break,
        }
    }
    assert_eq!(listed, keys);
}
