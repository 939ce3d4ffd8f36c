//! Answers that a server gives only in trouble, out of a script.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use model::kube::Layout;
use model::{Key, KeyRange, Kind};
use serde_json::{Value, json};
use store::kube::{KubeConfig, KubeStore};
use store::{Event, Store, StoreError};
use testkit::kube::Setup;

use crate::faults::{handle, holding};
use crate::fixture::{next, start};

const V1: Option<&str> = Some("crd.projectcalico.org/v1");

/// Status, further headers and body.
type Answered = (u16, &'static str, String);

/// Answers requests with what it is told, in order, over plain HTTP. What it was asked last stands in the file `asked`.
fn scripted(answers: Vec<Answered>) -> (KubeConfig, tempfile::TempDir) {
    let mut answers = answers.into_iter();
    answering(move |_, _| answers.next())
}

/// Answers each request, by its first line and its body, until there is no answer.
fn answering(
    mut answer: impl FnMut(&str, &[u8]) -> Option<Answered> + Send + 'static,
) -> (KubeConfig, tempfile::TempDir) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let directory = tempfile::tempdir().unwrap();
    let asked = directory.path().join("asked");
    std::thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let (head, body) = request(&stream);
            std::fs::write(&asked, &head).unwrap();
            let Some((status, header, body)) = answer(head.lines().next().unwrap_or_default(), &body) else {
                return;
            };
            let head = format!(
                "HTTP/1.1 {status} X\r\n{header}Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // Whoever asked may have gone.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        }
    });
    let path = directory.path().join("config");
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
        "users": [{ "name": "c", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }] });
    std::fs::write(&path, config.to_string()).unwrap();
    (
        KubeConfig { kubeconfig: Some(path), api_group: V1.map(str::to_owned), ..KubeConfig::default() },
        directory,
    )
}

fn request(stream: &TcpStream) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream);
    let (mut length, mut head) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (head, body)
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

/// Before a real server stands one that refuses every third request: what two writers count together is complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_busy_server_refuses_is_done_later_and_once() {
    const EACH: usize = 8;
    let Some(server) =
        start("what_a_busy_server_refuses_is_done_later_and_once", Setup::default(), Layout::V1)
    else {
        return;
    };
    let (api, mut count) = (server.api(), 0);
    let (config, _directory) = answering(move |line, body| {
        count += 1;
        if count % 3 == 0 {
            return Some((429, "Retry-After: 0\r\n", String::new()));
        }
        let mut words = line.split(' ');
        let (method, path) = (words.next()?, words.next()?);
        let body: Option<Value> = serde_json::from_slice(body).ok();
        let answer = api.request(method, path, body.as_ref()).unwrap();
        Some((answer.status, "", answer.text))
    });
    let writers = [config.clone(), config].map(|config| {
        tokio::spawn(async move {
            let store = KubeStore::connect(config).await.unwrap();
            let store: &dyn Store = &store;
            let mut done = 0;
            while done < EACH {
                let outcome = match store.get(&handle(1)).await.unwrap() {
                    None => store.create(handle(1), holding(1)).await,
                    Some(record) => {
                        let value: Value = serde_json::from_slice(&record.value).unwrap();
                        let held = value["block"]["10.0.0.0/26"].as_u64().unwrap() as usize;
                        store.update(handle(1), holding(held + 1), record.revision).await
                    }
                };
                match outcome {
                    Ok(_) => done += 1,
                    Err(error) => assert!(error.is_lost_race(), "{error:?}"),
                }
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    let object = server.api().read("/apis/crd.projectcalico.org/v1/ipamhandles/h1").unwrap();
    assert_eq!(object["spec"]["block"]["10.0.0.0/26"], 2 * EACH);
}

#[tokio::test]
async fn no_server_makes_us_wait_for_ever() {
    let busy = (429, "Retry-After: 18446744073709551615\r\n", String::new());
    let (config, _directory) = scripted(vec![busy]);
    let store = KubeStore::connect(config).await.unwrap();
    let refused = (&store as &dyn Store).create(handle(1), holding(1)).await;
    assert!(matches!(refused, Err(StoreError::Unreachable { .. })), "{refused:?}");
}

/// What the server says to a watch that asks for more than there is is nothing at all.
#[tokio::test]
async fn a_store_that_was_put_back_ends_the_watch() {
    let page = |revision: &str| {
        (200, "", json!({ "metadata": { "resourceVersion": revision }, "items": [] }).to_string())
    };
    let silence = || (200, "", String::new());
    let (config, _directory) = scripted(vec![silence(), page("5")]);
    let store = KubeStore::connect(config).await.unwrap();
    let mut watch = store.watch(KeyRange::Handles, 9.into()).await.unwrap();
    assert!(matches!(next(&mut watch).await, Event::HistoryGone));

    let object: Value = serde_json::from_str(&stored("10")).unwrap();
    let event = json!({ "type": "ADDED", "object": object }).to_string() + "\n";
    let (config, _directory) = scripted(vec![silence(), page("9"), (200, "", event)]);
    let store = KubeStore::connect(config).await.unwrap();
    let mut watch = store.watch(KeyRange::Handles, 9.into()).await.unwrap();
    assert!(matches!(next(&mut watch).await, Event::Put(record) if record.revision.as_str() == "10"));
}

#[tokio::test]
async fn a_record_of_which_half_was_written_is_neither_made_nor_not_made() {
    let key = Key::cluster(Kind::CalicoNodeStatus, "n");
    let written = json!({ "metadata": { "name": "n", "resourceVersion": "7" }, "spec": {} }).to_string();
    let other = json!({ "metadata": { "name": "n", "resourceVersion": "9" }, "spec": {} }).to_string();
    let forbidden = "caliconodestatuses.crd.projectcalico.org \"n\" is forbidden: User \"joe\" cannot update resource \
        \"caliconodestatuses/status\" in API group \"crd.projectcalico.org\" at the cluster scope";
    for (second, words) in [
        (vec![(403, "", json!({ "message": forbidden }).to_string())], "--resource=caliconodestatuses"),
        (vec![(409, "", json!({ "reason": "Conflict" }).to_string()), (200, "", other)], "read it again"),
    ] {
        let mut answers = vec![(201, "", written.clone())];
        answers.extend(second);
        let (config, _directory) = scripted(answers);
        let store = KubeStore::connect(config).await.unwrap();
        let value = json!({ "spec": {}, "status": { "lastUpdated": "x" } }).to_string().into_bytes();
        let error = (&store as &dyn Store).create(key.clone(), value).await.unwrap_err();
        let StoreError::Uncertain { source } = &error else { panic!("{error:?}") };
        assert!(source.to_string().contains("was written, but not its status"), "{source}");
        assert!(error.hint().unwrap().contains(words), "{error:?}");
    }
}

#[tokio::test]
async fn an_early_answer_does_not_decide_for_ever_which_group_it_is() {
    let absent = |details| (404, "", json!({ "reason": "NotFound", "details": details }).to_string());
    let groups = json!({ "groups": [{ "name": "projectcalico.org" }] }).to_string();
    let (config, _directory) = scripted(vec![
        (403, "", json!({ "message": "not yet" }).to_string()),
        absent(json!({})),
        (200, "", groups),
        absent(json!({ "name": "h1" })),
    ]);
    let store = KubeStore::connect(KubeConfig { api_group: None, ..config }).await.unwrap();
    assert_eq!(store.layout(), Layout::V1);
    assert_eq!(store.get(&handle(1)).await.unwrap(), None);
    assert_eq!(store.layout(), Layout::V3);
}

#[tokio::test]
async fn the_token_in_a_file_comes_before_the_one_beside_it() {
    let (config, directory) = scripted(vec![(404, "", String::new())]);
    let token = directory.path().join("token");
    std::fs::write(&token, "of-the-file").unwrap();
    let path = config.kubeconfig.clone().unwrap();
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    kubeconfig["users"][0]["user"] = json!({ "token": "beside", "tokenFile": token });
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let store = KubeStore::connect(config).await.unwrap();
    store.get(&handle(1)).await.unwrap_err();
    let asked = std::fs::read_to_string(directory.path().join("asked")).unwrap();
    assert!(asked.contains("Bearer of-the-file") && !asked.contains("beside"), "{asked}");
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
