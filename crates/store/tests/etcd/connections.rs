//! Connections that break, stall, and lose answers.

use std::time::Duration;

use model::{Key, KeyRange};
use store::etcd::{EtcdConfig, EtcdStore};
use store::{Change, Event, Revision, Store, StoreError};
use testkit::etcd::{Setup, start_or_skip};
use testkit::forwarder::{Forwarder, Traffic};

use crate::{connect, next};

fn handle(id: impl std::fmt::Display) -> Key {
    Key::Handle(format!("h{id}").into())
}

/// A store behind a forwarder, with little patience.
async fn behind(forwarder: &Forwarder) -> EtcdStore {
    let endpoint = format!("http://127.0.0.1:{}", forwarder.port());
    let config = EtcdConfig { request_timeout: Duration::from_secs(3), ..EtcdConfig::new([endpoint]) };
    EtcdStore::connect(config).await.unwrap()
}

async fn create(store: &EtcdStore, key: Key) -> Result<Revision, StoreError> {
    (store as &dyn Store).create(key, b"{}".to_vec()).await
}

async fn now(store: &EtcdStore) -> Revision {
    (store as &dyn Store).list_all(KeyRange::Handles).await.unwrap().1
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_uncertain() {
    let Some(cluster) = start_or_skip("a_write_whose_answer_is_lost_is_uncertain", Setup::members(1)) else {
        return;
    };
    let forwarder = Forwarder::to(cluster.client_port(0));
    let (near, far) = (connect(&cluster).await, behind(&forwarder).await);
    forwarder.set(Traffic::AnswersLost);
    let error = create(&far, handle(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Uncertain { .. }), "{error:?}");
    assert!(near.get(&handle(1)).await.unwrap().is_some(), "it was done all the same");
    // Once it works again, so does the store.
    forwarder.interrupt();
    forwarder.set(Traffic::Flows);
    assert!(matches!(create(&far, handle(1)).await, Err(StoreError::AlreadyExists { .. })));
}

/// Repeating it elsewhere would find it done by somebody, and take that for a lost race.
#[tokio::test]
async fn a_write_whose_connection_breaks_is_uncertain() {
    let test = "a_write_whose_connection_breaks_is_uncertain";
    let Some(cluster) = start_or_skip(test, Setup::members(1)) else { return };
    let forwarder = Forwarder::to(cluster.client_port(0));
    let (near, far) = (connect(&cluster).await, behind(&forwarder).await);
    let mut watch = near.watch(KeyRange::Handles, now(&near).await).await.unwrap();
    forwarder.set(Traffic::AnswersLost);
    let writing = tokio::spawn(async move { create(&far, handle(1)).await });
    next(&mut watch).await.unwrap();
    forwarder.interrupt();
    forwarder.set(Traffic::Flows);
    let error = writing.await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Uncertain { .. }), "{error:?}");
}

#[tokio::test]
async fn a_write_that_cannot_be_sent_was_not_made() {
    let Some(cluster) = start_or_skip("a_write_that_cannot_be_sent_was_not_made", Setup::members(1)) else {
        return;
    };
    let forwarder = Forwarder::to(cluster.client_port(0));
    let (near, far) = (connect(&cluster).await, behind(&forwarder).await);
    forwarder.set(Traffic::Cut);
    // The first request after the cut may find the connection half closed, which nobody can tell from a lost
    // answer. From then on it is known to be gone.
    let _ = far.get(&handle(0)).await.unwrap_err();
    let error = create(&far, handle(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(near.get(&handle(1)).await.unwrap().is_none());
}

#[tokio::test]
async fn reads_outlive_a_member_that_went_silent() {
    let Some(cluster) = start_or_skip("reads_outlive_a_member_that_went_silent", Setup::members(1)) else {
        return;
    };
    let (silent, good) = (Forwarder::to(cluster.client_port(0)), Forwarder::to(cluster.client_port(0)));
    let endpoints = [&silent, &good].map(|forwarder| format!("http://127.0.0.1:{}", forwarder.port()));
    let config = EtcdConfig { request_timeout: Duration::from_secs(4), ..EtcdConfig::new(endpoints) };
    let store = EtcdStore::connect(config).await.unwrap();
    create(&store, handle(1)).await.unwrap();
    silent.set(Traffic::AnswersLost);
    assert!(store.get(&handle(1)).await.unwrap().is_some());
    // It was left for good, so the next write does not have to wait.
    create(&store, handle(2)).await.unwrap();
}

#[tokio::test]
async fn a_watch_survives_its_connections() {
    let Some(cluster) = start_or_skip("a_watch_survives_its_connections", Setup::members(1)) else { return };
    let forwarder = Forwarder::to(cluster.client_port(0));
    let (near, far) = (connect(&cluster).await, behind(&forwarder).await);
    let mut watch = far.watch(KeyRange::Handles, now(&near).await).await.unwrap();
    let rounds = testkit::count(20, 200);
    for round in 0..rounds {
        create(&near, handle(format!("{round}a"))).await.unwrap();
        forwarder.interrupt();
        let pair = ["b", "c"].map(|part| Change::create(handle(format!("{round}{part}")), "{}"));
        near.commit(pair.into()).await.unwrap();
        for part in ["a", "b", "c"] {
            let Some(Event::Put(record)) = next(&mut watch).await else { panic!("only puts were made") };
            assert_eq!(record.key, handle(format!("{round}{part}")));
        }
    }
}

/// Commits that are larger than one message come in fragments; none may show in part or twice.
#[tokio::test]
async fn large_commits_arrive_whole() {
    let Some(cluster) = start_or_skip("large_commits_arrive_whole", Setup::members(1)) else { return };
    let forwarder = Forwarder::to(cluster.client_port(0));
    let (near, far) = (connect(&cluster).await, behind(&forwarder).await);
    let start = now(&near).await;
    let (commits, keys) = (8, 100);
    let value = vec![b'x'; 12_000];
    let mut expected = Vec::new();
    for commit in 0..commits {
        let changes: Vec<Change> =
            (0..keys).map(|key| Change::create(handle(format!("{commit}-{key}")), value.clone())).collect();
        let revision = near.commit(changes.clone()).await.unwrap().revisions.remove(0);
        expected.extend(changes.into_iter().map(|change| (change.key, revision.clone())));
    }
    let mut watch = far.watch(KeyRange::Handles, start).await.unwrap();
    for (position, (key, revision)) in expected.into_iter().enumerate() {
        if position % 150 == 70 {
            forwarder.interrupt();
        }
        let Some(Event::Put(record)) = next(&mut watch).await else { panic!("only puts were made") };
        assert_eq!((record.key, record.revision), (key, revision));
        assert_eq!(record.value.len(), value.len());
    }
}

/// Readers that do not read must not fill the connection that everything else goes through.
#[tokio::test]
async fn watches_nobody_reads_do_not_stop_other_calls() {
    let test = "watches_nobody_reads_do_not_stop_other_calls";
    let Some(cluster) = start_or_skip(test, Setup::members(1)) else { return };
    let store = connect(&cluster).await;
    let start = now(&store).await;
    let mut watches = Vec::new();
    for _ in 0..4 {
        watches.push(store.watch(KeyRange::Handles, start.clone()).await.unwrap());
    }
    let writes = 600;
    for number in 0..writes {
        let value = vec![b'x'; 30_000];
        (&store as &dyn Store).create(handle(number), value).await.unwrap();
    }
    assert_eq!((&store as &dyn Store).list_all(KeyRange::Handles).await.unwrap().0.len(), writes);
    // And whoever reads in the end has missed nothing.
    for mut watch in watches {
        for number in 0..writes {
            let Some(Event::Put(record)) = next(&mut watch).await else { panic!("only puts were made") };
            assert_eq!(record.key, handle(number));
        }
    }
}

#[tokio::test]
async fn what_is_too_large_is_said_to_be() {
    let Some(cluster) = start_or_skip("what_is_too_large_is_said_to_be", Setup::members(1)) else { return };
    let store = connect(&cluster).await;
    for size in [1_700_000, 3_000_000] {
        let error = (&store as &dyn Store).create(handle(1), vec![b'x'; size]).await.unwrap_err();
        assert!(matches!(error, StoreError::Unsupported { .. }), "{error:?}");
        assert!(error.to_string().contains(&size.to_string()), "{error}");
    }
    assert!(store.get(&handle(1)).await.unwrap().is_none());
}
