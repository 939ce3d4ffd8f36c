//! Changes: preconditions, what a refusal says and leaves behind, what values and names may be.

use bytes::Bytes;
use model::{HandleId, Key, Kind};
use store::{Change, MAX_CHANGES, Precondition, Record, Revision, StoreError, Write};

use super::*;

pub(super) async fn an_empty_store_has_nothing(backend: &dyn Backend) {
    let store = backend.fresh().await;
    assert_eq!(read(&*store, &pool("a")).await, None);
    assert_eq!(everything(&*store).await.0, []);
}

pub(super) async fn create_get_update_delete(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let key = pool("a");

    let created = store.create(key.clone(), value("one")).await.unwrap();
    let record = existing(&*store, &key).await;
    assert_eq!(record, Record { key: key.clone(), value: value("one").into(), revision: created.clone() });

    let updated = store.update(key.clone(), value("two"), created.clone()).await.unwrap();
    assert_ne!(updated, created);
    let record = existing(&*store, &key).await;
    assert_eq!(record, Record { key: key.clone(), value: value("two").into(), revision: updated.clone() });

    let gone = store.delete(key.clone(), updated.clone()).await.unwrap();
    assert_ne!(gone, updated);
    assert_eq!(read(&*store, &key).await, None);
    assert_eq!(now(&*store).await, gone);

    let again = store.create(key.clone(), value("three")).await.unwrap();
    assert!(again != created && again != updated, "a revision never comes back");
}

pub(super) async fn create_of_what_exists_shows_what_is_there(backend: &dyn Backend) {
    let store = backend.fresh().await;
    create(&*store, &pool("a"), "first").await;
    let there = existing(&*store, &pool("a")).await;
    assert_already_exists(store.create(pool("a"), value("second")).await, &there);
    assert_already_exists(store.commit(vec![Change::require_absent(pool("a"))]).await, &there);
    assert_eq!(existing(&*store, &pool("a")).await, there);
}

pub(super) async fn update_and_delete_need_the_current_revision(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let key = pool("a");
    let old = create(&*store, &key, "one").await;
    let current = store.update(key.clone(), value("two"), old.clone()).await.unwrap();
    let there = existing(&*store, &key).await;

    assert_conflict(store.update(key.clone(), value("three"), old.clone()).await, &there);
    assert_conflict(store.delete(key.clone(), old.clone()).await, &there);
    assert_conflict(store.commit(vec![Change::require(key.clone(), old.clone())]).await, &there);
    assert_eq!(existing(&*store, &key).await, there);

    store.delete(key.clone(), current.clone()).await.unwrap();
    assert_not_found(store.update(key.clone(), value("three"), current.clone()).await, &key);
    assert_not_found(store.delete(key.clone(), current.clone()).await, &key);
    assert_not_found(store.commit(vec![Change::require(key.clone(), current.clone())]).await, &key);

    create(&*store, &key, "reborn").await;
    let reborn = existing(&*store, &key).await;
    assert_conflict(store.update(key.clone(), value("four"), current).await, &reborn);
}

pub(super) async fn a_revision_that_never_was_is_not_met(backend: &dyn Backend) {
    let store = backend.fresh().await;
    create(&*store, &pool("a"), "one").await;
    let there = existing(&*store, &pool("a")).await;
    let padded = format!("0{}", there.revision);
    for text in ["", "0", "-1", "999999999", "not-a-revision", "99999999999999999999999", padded.as_str()] {
        let never = Revision::new(text);
        assert_conflict(store.update(pool("a"), value("two"), never.clone()).await, &there);
        assert_conflict(store.delete(pool("a"), never.clone()).await, &there);
        assert_not_found(store.delete(pool("b"), never).await, &pool("b"));
    }
    assert_eq!(existing(&*store, &pool("a")).await, there);
}

pub(super) async fn a_refused_commit_leaves_no_trace(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let first = create(&*store, &pool("a"), "a").await;
    let second = create(&*store, &pool("b"), "b").await;
    let there = existing(&*store, &pool("b")).await;
    let before = everything(&*store).await;
    let mut watch = start(&*store, pools(), &before.1).await;

    let refused = store
        .commit(vec![
            Change::create(pool("c"), value("c")),
            Change::update(pool("a"), value("changed"), first.clone()),
            Change::delete(pool("b"), first.clone()),
        ])
        .await;
    assert_conflict(refused, &there);
    let refused = store
        .commit(vec![Change::delete(pool("b"), second.clone()), Change::create(pool("a"), value("again"))])
        .await;
    assert_already_exists(refused, &existing(&*store, &pool("a")).await);
    let refused = store
        .commit(vec![
            Change::delete(pool("a"), first),
            Change::update(pool("missing"), value("x"), second.clone()),
        ])
        .await;
    assert_not_found(refused, &pool("missing"));

    assert_eq!(everything(&*store).await, before, "not even the revision moved");
    nothing_before_a_marker(&*store, &mut watch, &pool("z")).await;
}

pub(super) async fn the_first_unmet_precondition_is_reported(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let revision = create(&*store, &pool("a"), "a").await;
    let there = existing(&*store, &pool("a")).await;
    let create_existing = Change::create(pool("a"), value("x"));
    let update_missing = Change::update(pool("b"), value("x"), revision.clone());
    let fine = Change::create(pool("c"), value("x"));

    let result = store.commit(vec![fine.clone(), create_existing.clone(), update_missing.clone()]).await;
    assert_already_exists(result, &there);
    let result = store.commit(vec![update_missing, fine, create_existing]).await;
    assert_not_found(result, &pool("b"));
}

pub(super) async fn requirements_guard_without_writing(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let relied_on = create(&*store, &pool("a"), "a").await;
    let there = existing(&*store, &pool("a")).await;

    let committed = store
        .commit(vec![
            Change::require(pool("a"), relied_on.clone()),
            Change::create(handle("h"), value("h")),
            Change::require_absent(pool("b")),
        ])
        .await
        .unwrap();
    let made = existing(&*store, &handle("h")).await;
    assert_eq!(committed.revisions, vec![made.revision.clone(); 3]);
    assert_eq!(existing(&*store, &pool("a")).await, there, "what was only relied on stays as it is");

    create(&*store, &pool("b"), "b").await;
    let in_the_way = existing(&*store, &pool("b")).await;
    let update = Change::update(handle("h"), value("h2"), made.revision.clone());
    let refused = store.commit(vec![update.clone(), Change::require_absent(pool("b"))]).await;
    assert_already_exists(refused, &in_the_way);
    let refused = store.commit(vec![update, Change::require(pool("gone"), relied_on)]).await;
    assert_not_found(refused, &pool("gone"));
    assert_eq!(existing(&*store, &handle("h")).await, made);
}

pub(super) async fn commits_that_write_nothing_make_no_revision(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let revision = create(&*store, &pool("a"), "a").await;
    let before = now(&*store).await;

    let committed = store.commit(vec![]).await.unwrap();
    assert_eq!(committed.revisions, []);
    let committed = store
        .commit(vec![Change::require(pool("a"), revision), Change::require_absent(pool("b"))])
        .await
        .unwrap();
    assert_eq!(committed.revisions, vec![before.clone(), before.clone()]);
    assert_eq!(now(&*store).await, before);
}

pub(super) async fn senseless_commits_are_refused(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let revision = create(&*store, &pool("a"), "a").await;
    let before = everything(&*store).await;
    let too_many = (0..=MAX_CHANGES).map(|n| Change::create(handle(format!("h{n}")), value("h")));
    let senseless = [
        vec![Change::create(pool("b"), value("1")), Change::create(pool("b"), value("2"))],
        vec![Change::require(pool("a"), revision.clone()), Change::delete(pool("a"), revision.clone())],
        vec![Change { key: pool("b"), precondition: Precondition::Absent, write: Write::Delete }],
        vec![Change::create(pool("with/slash"), value("x"))],
        vec![Change::create(pool(""), value("x"))],
        vec![Change::create(Key::Handle(HandleId::default()), value("x"))],
        too_many.collect(),
    ];
    for changes in senseless {
        match store.commit(changes.clone()).await {
            Err(StoreError::Invalid { .. }) => {}
            other => panic!("expected Invalid for {:?}, got {other:?}", &changes[0]),
        }
    }
    let twice =
        store.commit(vec![Change::create(pool("b"), value("1")), Change::create(pool("b"), value("2"))]);
    let message = twice.await.unwrap_err().to_string();
    assert!(message.contains("IPPool(b)") && message.contains("twice"), "{message}");
    assert_eq!(everything(&*store).await, before);
}

pub(super) async fn the_largest_commit_fits(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let keys: Vec<Key> = (0..MAX_CHANGES).map(|n| handle(format!("h{n:03}"))).collect();
    let creates = keys.iter().map(|key| Change::create(key.clone(), value("x"))).collect();
    let committed = store.commit(creates).await.unwrap();
    let (records, revision) = everything(&*store).await;
    assert_eq!(records.iter().map(|record| record.key.clone()).collect::<Vec<_>>(), keys);
    assert!(committed.revisions.iter().all(|made| *made == revision));

    let deletes = records.into_iter().map(|record| Change::delete(record.key, record.revision)).collect();
    store.commit(deletes).await.unwrap();
    assert_eq!(everything(&*store).await.0, []);
}

pub(super) async fn values_are_kept_byte_by_byte(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let big: Vec<u8> = (0..1024 * 1024).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let values = [
        Vec::new(),
        b"{ \"u64\" : 18446744073709551615 ,\n\t\"unknown\":null}".to_vec(),
        vec![0, 255, 0, 10, 13],
        big,
    ];
    let before = now(&*store).await;
    let mut watch = start(&*store, pools(), &before).await;
    for (index, bytes) in values.into_iter().enumerate() {
        let key = pool(&format!("v{index}"));
        let bytes = Bytes::from(bytes);
        store.commit(vec![Change::create(key.clone(), bytes.clone())]).await.unwrap();
        let record = existing(&*store, &key).await;
        assert!(record.value == bytes, "value {index} came back changed");
        assert!(next(&mut watch).await == store::Event::Put(record), "value {index} in its event");
    }
}

pub(super) async fn unusual_names_are_kept(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let names = ["Ärger", "名前", "a b", "%2f", "a'b\"c", "q?*[x]_%", "🦀", "\u{10ffff}", "a.b-c"];
    let mut keys: Vec<Key> = Vec::new();
    for name in names {
        keys.push(pool(name));
        keys.push(handle(format!("k8s-pod-network.{name}")));
        keys.push(Key::namespaced(Kind::WorkloadEndpoint, name, name));
    }
    keys.push(handle("with/slash"));
    for key in &keys {
        create(&*store, key, &key.to_string()).await;
    }
    for key in &keys {
        assert_eq!(existing(&*store, key).await.value, value(&key.to_string()), "{key}");
    }
    keys.sort_by_key(Key::etcd_text);
    let (listed, _) = everything(&*store).await;
    assert_eq!(listed.into_iter().map(|record| record.key).collect::<Vec<_>>(), keys);
}
