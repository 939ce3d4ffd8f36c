//! Watches: every later change, once, in order; several at a time; given up and resumed.

use std::collections::BTreeMap;

use model::Kind;
use store::Change;

use super::*;

pub(super) async fn a_watch_shows_every_later_change_once_in_order(backend: &dyn Backend) {
    let store = backend.fresh().await;
    create(&*store, &pool("before"), "not shown").await;
    let from = now(&*store).await;
    let mut watch = start(&*store, pools(), &from).await;

    let first = create(&*store, &pool("a"), "one").await;
    let second = store.update(pool("a"), value("two"), first.clone()).await.unwrap();
    let third = store.delete(pool("a"), second.clone()).await.unwrap();
    let fourth = create(&*store, &pool("a"), "three").await;
    let expected = [
        put(&pool("a"), "one", &first),
        put(&pool("a"), "two", &second),
        deleted(&pool("a"), &third),
        put(&pool("a"), "three", &fourth),
    ];
    assert_eq!(take(&mut watch, 4).await, expected);
    assert_eq!(existing(&*store, &pool("a")).await.revision, fourth, "event and record agree");
    nothing_before_a_marker(&*store, &mut watch, &pool("z")).await;
}

pub(super) async fn the_events_of_a_commit_come_in_its_order(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let old = create(&*store, &pool("m"), "old").await;
    let doomed = create(&*store, &pool("b"), "doomed").await;
    let from = now(&*store).await;
    let mut watch = start(&*store, KeyRange::Everything, &from).await;

    let changes = vec![
        Change::create(pool("z"), value("z")),
        Change::require_absent(pool("nobody")),
        Change::delete(pool("b"), doomed),
        Change::update(pool("m"), value("new"), old),
        Change::create(handle("a"), value("a")),
    ];
    let revision = store.commit(changes).await.unwrap().revisions.remove(0);
    let expected = [
        put(&pool("z"), "z", &revision),
        deleted(&pool("b"), &revision),
        put(&pool("m"), "new", &revision),
        put(&handle("a"), "a", &revision),
    ];
    assert_eq!(take(&mut watch, 4).await, expected);
}

/// More events than a backend reads at once, and commits that such a step would end in the middle of.
pub(super) async fn large_commits_are_told_whole(backend: &dyn Backend) {
    const RECORDS: usize = 100;
    let store = backend.fresh().await;
    let from = now(&*store).await;
    let mut expected = Vec::new();
    for commit in 0..6 {
        let keys: Vec<Key> = (0..RECORDS).map(|n| handle(format!("c{commit}-{n:03}"))).collect();
        let creates = keys.iter().map(|key| Change::create(key.clone(), value("x"))).collect();
        let revision = store.commit(creates).await.unwrap().revisions.remove(0);
        expected.extend(keys.iter().map(|key| put(key, "x", &revision)));
    }
    let mut watch = start(&*store, KeyRange::Handles, &from).await;
    let seen = take(&mut watch, expected.len()).await;
    for (index, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
        assert_eq!(seen, expected, "event {index}");
    }
    nothing_before_a_marker(&*store, &mut watch, &handle("z")).await;
}

pub(super) async fn a_watch_sees_only_its_range(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let from = now(&*store).await;
    let blue = KeyRange::Namespace(Kind::NetworkSet, "blue".into());
    let mut watch = start(&*store, blue, &from).await;
    let key = |namespace: &str, name: &str| Key::namespaced(Kind::NetworkSet, namespace, name);

    create(&*store, &key("blu", "a"), "x").await;
    create(&*store, &key("blue-green", "a"), "x").await;
    create(&*store, &handle("blue"), "x").await;
    let inside = Change::create(key("blue", "a"), value("inside"));
    let outside = Change::create(key("red", "a"), value("outside"));
    let revision = store.commit(vec![outside, inside]).await.unwrap().revisions.remove(0);
    assert_eq!(next(&mut watch).await, put(&key("blue", "a"), "inside", &revision));
    nothing_before_a_marker(&*store, &mut watch, &key("blue", "z")).await;
}

pub(super) async fn a_watch_may_start_in_the_past(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let mut revisions = vec![now(&*store).await];
    let mut events = Vec::new();
    for n in 0..6 {
        let key = handle(format!("h{n}"));
        let revision = create(&*store, &key, "old").await;
        events.push(put(&key, "old", &revision));
        revisions.push(revision);
    }
    let last = events.len();
    for (skipped, from) in revisions.iter().enumerate() {
        let mut watch = start(&*store, KeyRange::Handles, from).await;
        assert_eq!(watch.position(), from);
        assert_eq!(take(&mut watch, last - skipped).await, events[skipped..]);
    }
}

/// A reader that lists and then watches always has what the store has, however the two interleave with writers.
pub(super) async fn a_list_and_its_watch_meet_without_gap(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let writer = {
        let store = backend.another().await;
        tokio::spawn(async move { churn(&*store, 60).await })
    };
    let (records, revision) = store.list_all(KeyRange::Handles).await.unwrap();
    let mut seen: BTreeMap<Key, store::Record> =
        records.into_iter().map(|record| (record.key.clone(), record)).collect();
    let mut watch = start(&*store, KeyRange::Handles, &revision).await;
    writer.await.unwrap();
    create(&*store, &handle("the-end"), "end").await;
    loop {
        match next(&mut watch).await {
            Event::Put(record) if record.key == handle("the-end") => break,
            Event::Put(record) => drop(seen.insert(record.key.clone(), record)),
            Event::Deleted { key, .. } => {
                assert!(seen.remove(&key).is_some(), "{key} was deleted, so it was there before");
            }
            Event::HistoryGone => panic!("the history is long enough"),
        }
    }
    let (there, _) = store.list_all(KeyRange::Handles).await.unwrap();
    let there: Vec<_> = there.into_iter().filter(|record| record.key != handle("the-end")).collect();
    assert_eq!(seen.into_values().collect::<Vec<_>>(), there);
}

/// Creates, changes and deletes a few handles, over and over.
async fn churn(store: &dyn Store, rounds: usize) {
    for round in 0..rounds {
        let key = handle(format!("h{}", round % 7));
        match read(store, &key).await {
            None => drop(create(store, &key, &format!("{round}")).await),
            Some(record) if round % 3 == 0 => drop(store.delete(key, record.revision).await.unwrap()),
            Some(record) => {
                let text = value(&format!("{round}"));
                store.update(key, text, record.revision).await.unwrap();
            }
        }
    }
}

pub(super) async fn several_watchers_see_the_same(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let from = now(&*store).await;
    let mut watches = Vec::new();
    for n in 0..8 {
        let store = if n % 2 == 0 { store.clone() } else { backend.another().await };
        watches.push(start(&*store, KeyRange::Handles, &from).await);
    }
    churn(&*store, 40).await;
    let first = take(&mut watches[0], 40).await;
    for watch in &mut watches[1..] {
        assert_eq!(take(watch, 40).await, first);
    }
}

pub(super) async fn a_dropped_watch_is_resumed_without_loss(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let from = now(&*store).await;
    churn(&*store, 30).await;
    let expected = take(&mut start(&*store, KeyRange::Handles, &from).await, 30).await;

    let mut position = from;
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let mut watch = start(&*store, KeyRange::Handles, &position).await;
        let count = (1 + seen.len() % 4).min(expected.len() - seen.len());
        seen.extend(take(&mut watch, count).await);
        position = watch.position().clone();
    }
    assert_eq!(seen, expected);
}

pub(super) async fn a_commit_read_in_part_is_repeated(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let from = now(&*store).await;
    let changes = |names: [&str; 3]| names.map(|name| Change::create(handle(name), value(name))).to_vec();
    let first = store.commit(changes(["a", "b", "c"])).await.unwrap().revisions.remove(0);
    let second = store.commit(changes(["d", "e", "f"])).await.unwrap().revisions.remove(0);

    let mut watch = start(&*store, KeyRange::Handles, &from).await;
    take(&mut watch, 2).await;
    assert_eq!(watch.position(), &from, "two of three events are no whole commit");
    take(&mut watch, 1).await;
    assert_eq!(watch.position(), &first);
    take(&mut watch, 1).await;
    assert_eq!(watch.position(), &first);
    drop(watch);

    let mut watch = start(&*store, KeyRange::Handles, &first).await;
    let expected = ["d", "e", "f"].map(|name| put(&handle(name), name, &second));
    assert_eq!(take(&mut watch, 3).await, expected);
    assert_eq!(watch.position(), &second);
}

pub(super) async fn waiting_for_an_event_may_be_given_up(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let from = now(&*store).await;
    let mut watch = start(&*store, KeyRange::Handles, &from).await;
    let mut expected = Vec::new();
    let mut seen = Vec::new();
    for n in 0..20 {
        let key = handle(format!("h{n:02}"));
        let revision = create(&*store, &key, "x").await;
        expected.push(put(&key, "x", &revision));
        // Polled a few times, at most: sometimes the event is there, sometimes the wait is given up halfway.
        for _ in 0..n % 4 {
            tokio::select! {
                biased;
                event = watch.next() => seen.push(event.unwrap().unwrap()),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    let missing = expected.len() - seen.len();
    seen.extend(take(&mut watch, missing).await);
    assert_eq!(seen, expected);
}

pub(super) async fn a_slow_reader_loses_nothing(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let from = now(&*store).await;
    let mut watch = start(&*store, KeyRange::Handles, &from).await;
    let mut keys = Vec::new();
    // More commits than any buffer along the way should hold.
    for n in 0..testkit::count(400, 2000) {
        let key = handle(format!("h{n:05}"));
        create(&*store, &key, "x").await;
        keys.push(key);
    }
    for key in keys {
        match next(&mut watch).await {
            Event::Put(record) => assert_eq!(record.key, key),
            other => panic!("expected {key}, got {other:?}"),
        }
    }
}

pub(super) async fn another_client_sees_the_change(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let other = backend.another().await;
    let from = now(&*other).await;
    let mut watch = start(&*other, pools(), &from).await;
    for n in 0..20 {
        let key = pool(&format!("p{n}"));
        let revision = create(&*store, &key, "x").await;
        assert_eq!(next(&mut watch).await, put(&key, "x", &revision));
        assert_eq!(existing(&*other, &key).await.revision, revision);
        let gone = other.delete(key.clone(), revision).await.unwrap();
        assert_eq!(next(&mut watch).await, deleted(&key, &gone));
    }
}
