//! Servers that die, connections that break, answers that are lost: no event twice or never, no change made without being told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::kube::Layout;
use model::{Key, KeyRange};
use serde_json::json;
use store::kube::KubeStore;
use store::{Event, Record, Store, StoreError, Watch};
use testkit::forwarder::{Forwarder, Traffic};
use testkit::kube::{ADMIN_TOKEN, KubeApiServer, Setup};

use crate::fixture::{connect, next, start};

pub(crate) fn handle(number: usize) -> Key {
    Key::Handle(format!("h{number}").into())
}

pub(crate) fn holding(count: usize) -> Vec<u8> {
    json!({ "block": { "10.0.0.0/26": count }, "deleted": false }).to_string().into_bytes()
}

/// Makes, changes and removes handles until told to stop, whatever happens to the server. Returns what must be there in the end.
async fn churn(store: KubeStore, stop: Arc<AtomicBool>) -> BTreeMap<Key, Record> {
    let store: &dyn Store = &store;
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let key = handle(round % 5);
        let outcome = match store.get(&key).await {
            Err(error) => Err(error),
            Ok(None) => store.create(key, holding(round)).await,
            Ok(Some(record)) if round % 3 == 0 => store.delete(key, record.revision).await,
            Ok(Some(record)) => store.update(key, holding(round), record.revision).await,
        };
        match outcome {
            Ok(_) | Err(StoreError::Unreachable { .. } | StoreError::Uncertain { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    let listed = store.list_all(KeyRange::Handles).await.expect("the server is back");
    listed.0.into_iter().map(|record| (record.key.clone(), record)).collect()
}

/// Lists and watches until that shows `expected`, and checks on the way that it is a history: nothing is deleted that was not
/// there, and no revision comes twice. A server that was restarted has no history, and says so: then this starts over.
async fn follow(store: KubeStore, mut expected: tokio::sync::oneshot::Receiver<BTreeMap<Key, Record>>) {
    let mut revisions = BTreeSet::new();
    let mut wanted = None;
    let (mut seen, mut watch) = list_and_watch(&store).await;
    while wanted.as_ref() != Some(&seen) {
        let event = tokio::select! {
            event = next(&mut watch) => event,
            end = &mut expected, if wanted.is_none() => {
                wanted = Some(end.expect("the writer has ended well"));
                continue;
            }
        };
        if let Some(revision) = event.revision() {
            assert!(revisions.insert(revision.as_str().to_owned()), "{revision} came twice");
        }
        match event {
            Event::Put(record) => drop(seen.insert(record.key.clone(), record)),
            Event::Deleted { key, .. } => assert!(seen.remove(&key).is_some(), "{key} was not there"),
            Event::HistoryGone => {
                revisions.clear();
                (seen, watch) = list_and_watch(&store).await;
            }
        }
    }
}

async fn list_and_watch(store: &KubeStore) -> (BTreeMap<Key, Record>, Watch) {
    loop {
        let listed = (store as &dyn Store).list_all(KeyRange::Handles).await;
        match listed {
            Ok((records, from)) => {
                let seen = records.into_iter().map(|record| (record.key.clone(), record)).collect();
                return (seen, store.watch(KeyRange::Handles, from).await.unwrap());
            }
            Err(StoreError::Unreachable { .. } | StoreError::HistoryGone { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Lets a writer and a reader go on while something is done to the server. What `harm` returns lives until they have ended.
async fn survives<T: Send + 'static>(
    writer: KubeStore,
    reader: KubeStore,
    harm: impl FnOnce() -> T + Send + 'static,
) {
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(churn(writer, Arc::clone(&stop)));
    let (told, expected) = tokio::sync::oneshot::channel();
    let following = tokio::spawn(follow(reader, expected));
    let _kept = tokio::task::spawn_blocking(harm).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    told.send(writing.await.unwrap()).expect("the reader is well");
    following.await.unwrap();
}

fn start_server(test: &str) -> Option<KubeApiServer> {
    start(test, Setup::default(), Layout::V1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_loses_no_event() {
    let Some(mut server) = start_server("a_server_that_is_killed_loses_no_event") else { return };
    let kubeconfig = server.kubeconfig().unwrap();
    let (writer, reader) = (connect(kubeconfig.clone()).await, connect(kubeconfig).await);
    survives(writer, reader, move || {
        for _ in 0..2 {
            server.restart().unwrap();
        }
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_is_restarted_loses_no_event() {
    let Some(mut server) = start_server("an_etcd_that_is_restarted_loses_no_event") else { return };
    let kubeconfig = server.kubeconfig().unwrap();
    let (writer, reader) = (connect(kubeconfig.clone()).await, connect(kubeconfig).await);
    survives(writer, reader, move || {
        server.etcd().restart(0).unwrap();
        server.etcd().wait_healthy().unwrap();
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_lose_no_event() {
    let Some(server) = start_server("broken_connections_lose_no_event") else { return };
    let forwarder = Forwarder::to(server.port());
    let url = format!("https://127.0.0.1:{}", forwarder.port());
    let path = server.write_kubeconfig("forwarded", &url, json!({ "token": ADMIN_TOKEN })).unwrap();
    let (writer, reader) = (connect(path.clone()).await, connect(path).await);
    survives(writer, reader, move || {
        for _ in 0..10 {
            std::thread::sleep(std::time::Duration::from_millis(150));
            forwarder.interrupt();
        }
        forwarder.set(Traffic::Cut);
        std::thread::sleep(std::time::Duration::from_millis(300));
        forwarder.set(Traffic::Flows);
        forwarder
    })
    .await;
}

/// What a server that was restarted has in its cache begins then, and etcd's history before that is cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_into_what_the_cache_never_had_says_so() {
    let Some(mut server) = start_server("a_watch_into_what_the_cache_never_had_says_so") else { return };
    let store = connect(server.kubeconfig().unwrap()).await;
    let made = (&store as &dyn Store).create(handle(0), holding(1)).await.unwrap();
    for number in 1..4 {
        (&store as &dyn Store).create(handle(number), holding(1)).await.unwrap();
    }
    server.compact().unwrap();
    server.restart().unwrap();
    let mut watch = store.watch(KeyRange::Handles, made).await.unwrap();
    assert!(matches!(next(&mut watch).await, Event::HistoryGone));
}

/// As a load balancer has it: whichever of the servers lives answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_behind_one_address_each_may_die() {
    let Some(mut server) = start_server("of_two_servers_behind_one_address_each_may_die") else { return };
    let twin = server.twin().unwrap();
    let forwarder = Forwarder::to(server.port());
    let url = format!("https://127.0.0.1:{}", forwarder.port());
    let path = server.write_kubeconfig("forwarded", &url, json!({ "token": ADMIN_TOKEN })).unwrap();
    let (writer, reader) = (connect(path.clone()).await, connect(path).await);
    survives(writer, reader, move || {
        forwarder.turn_to(twin.port());
        // Once it is back it has no history of the time before.
        server.restart().unwrap();
        forwarder.turn_to(server.port());
        drop(twin);
        std::thread::sleep(std::time::Duration::from_millis(500));
        (server, forwarder)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_is_lost_is_uncertain() {
    let Some(server) = start_server("a_change_whose_answer_is_lost_is_uncertain") else { return };
    let forwarder = Forwarder::to(server.port());
    let url = format!("https://127.0.0.1:{}", forwarder.port());
    let path = server.write_kubeconfig("forwarded", &url, json!({ "token": ADMIN_TOKEN })).unwrap();
    let store = connect(path).await;
    let store: &dyn Store = &store;
    store.create(handle(0), holding(1)).await.unwrap();
    forwarder.set(Traffic::AnswersLost);
    let lost = store.create(handle(1), holding(1)).await;
    assert!(matches!(lost, Err(StoreError::Uncertain { .. })), "{lost:?}");
    forwarder.set(Traffic::Cut);
    // The connection that broke is noticed by whoever uses it next. From then on nothing can be sent.
    let nobody = store.get(&handle(2)).await;
    assert!(matches!(nobody, Err(StoreError::Unreachable { .. })), "{nobody:?}");
    let nobody = store.create(handle(2), holding(1)).await;
    assert!(matches!(nobody, Err(StoreError::Unreachable { .. })), "{nobody:?}");
    forwarder.set(Traffic::Flows);
    assert!(store.get(&handle(1)).await.unwrap().is_some(), "it had been made");
    assert!(store.get(&handle(2)).await.unwrap().is_none(), "it had not");
}
