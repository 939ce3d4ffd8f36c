//! Servers that die, connections that break, answers that are lost: no event twice or never, no change made without being told.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::kube::Layout;
use model::{Key, KeyRange};
use serde_json::json;
use store::kube::{KubeConfig, KubeStore};
use store::{Event, Record, Store, StoreError, Watch};
use testkit::forwarder::{Forwarder, Traffic};
use testkit::kube::{ADMIN_TOKEN, KubeApiServer, Setup};

use crate::fixture::{connect, next, start};

fn handle(number: usize) -> Key {
    Key::Handle(format!("h{number}").into())
}

fn holding(count: usize) -> Vec<u8> {
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

/// Answers requests with what it is told, in order, over plain HTTP.
fn scripted(answers: Vec<(u16, &'static str, String)>) -> (KubeConfig, tempfile::TempDir) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (status, header, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let head = format!(
                "HTTP/1.1 {status} X\r\n{header}Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body.as_bytes()).unwrap();
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
        "users": [{ "name": "c", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }] });
    std::fs::write(&path, config.to_string()).unwrap();
    let api_group = Some("crd.projectcalico.org/v1".to_owned());
    (KubeConfig { kubeconfig: Some(path), api_group, ..KubeConfig::default() }, directory)
}

fn stored(revision: &str) -> String {
    json!({ "metadata": { "name": "h1", "resourceVersion": revision }, "spec": { "handleID": "h1", "block": {} } })
        .to_string()
}

#[tokio::test]
async fn a_busy_server_is_given_time() {
    let busy = || (429, "Retry-After: 1\r\n", String::new());
    let (config, _directory) = scripted(vec![busy(), busy(), (201, "", stored("7"))]);
    let store = KubeStore::connect(config).await.unwrap();
    let started = std::time::Instant::now();
    let made = (&store as &dyn Store).create(handle(1), holding(1)).await.unwrap();
    assert_eq!(made.as_str(), "7");
    assert!(started.elapsed() >= std::time::Duration::from_secs(2), "it asked for a second, twice");
}

#[tokio::test]
async fn a_server_in_trouble_is_asked_again_but_not_told_again() {
    let trouble = |status| (status, "", json!({ "message": "etcdserver: leader changed" }).to_string());
    let (config, _directory) =
        scripted(vec![trouble(500), trouble(503), (200, "", stored("7")), trouble(500)]);
    let store = KubeStore::connect(config).await.unwrap();
    assert_eq!(store.get(&handle(1)).await.unwrap().unwrap().revision.as_str(), "7");
    let uncertain = (&store as &dyn Store).create(handle(1), holding(1)).await;
    assert!(
        matches!(&uncertain, Err(StoreError::Uncertain { source }) if source.to_string().contains("leader")),
        "{uncertain:?}"
    );
}

/// A webhook is asked before anything is stored.
#[tokio::test]
async fn a_webhook_that_does_not_answer_leaves_no_doubt() {
    let message = "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: Post \
        \"https://w.default.svc:443/?timeout=10s\": dial tcp 10.96.0.9:443: connect: connection refused";
    let body = json!({ "reason": "InternalError", "message": message, "code": 500 }).to_string();
    let (config, _directory) = scripted(vec![(500, "", body)]);
    let store = KubeStore::connect(config).await.unwrap();
    let error = (&store as &dyn Store).create(handle(1), holding(1)).await.unwrap_err();
    let StoreError::Other { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.to_string().contains("w.example.com"), "it names the webhook: {source}");
}
