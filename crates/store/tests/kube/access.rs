//! Who we are and how we find the server: what works, and what is said where it does not.

use model::kube::Layout;
use model::{Key, KeyRange, Kind};
use serde_json::{Value, json};
use store::kube::{KubeConfig, KubeStore};
use store::{Event, Store, StoreError};
use testkit::kube::{ADMIN_TOKEN, KubeApiServer, Setup, User, start_or_skip};

use crate::fixture::{collection, connect, install, next, start};

fn config(path: impl Into<std::path::PathBuf>) -> KubeConfig {
    KubeConfig { kubeconfig: Some(path.into()), ..KubeConfig::default() }
}

fn user(server: &KubeApiServer, name: &str, user: Value) -> KubeConfig {
    config(server.write_kubeconfig(name, &server.url(), user).unwrap())
}

fn pool(name: &str) -> Key {
    Key::cluster(Kind::IpPool, name)
}

async fn refused(config: KubeConfig) -> StoreError {
    KubeStore::connect(config).await.expect_err("these settings cannot work")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_credential_is_taken() {
    let test = "every_kind_of_credential_is_taken";
    let Some(server) = start(test, Setup::default(), Layout::V3) else { return };
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, ADMIN_TOKEN).unwrap();
    let credential = json!({ "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": { "token": ADMIN_TOKEN } });
    let plugin = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "echo",
        "args": [credential.to_string()], "interactiveMode": "Never" });
    for (kind, credentials) in [
        ("token", json!({ "token": ADMIN_TOKEN })),
        ("token-file", json!({ "tokenFile": token })),
        ("exec", json!({ "exec": plugin })),
    ] {
        let store = KubeStore::connect(user(&server, kind, credentials)).await.unwrap();
        assert_eq!(store.get(&pool("a")).await.unwrap(), None, "{kind}");
        assert_eq!(store.layout(), Layout::V3);
    }
    let certificate = server.kubeconfig().unwrap();
    connect(certificate.clone()).await.get(&pool("a")).await.unwrap();

    // Another context, which only the second of two files has.
    let second = directory.path().join("second");
    let other = json!({ "name": "other", "context": { "cluster": "test", "user": "test" } });
    let other = json!({ "apiVersion": "v1", "kind": "Config", "contexts": [other] });
    std::fs::write(&second, other.to_string()).unwrap();
    let mut several = config(std::env::join_paths([certificate, second]).unwrap());
    several.context = Some("other".to_owned());
    KubeStore::connect(several.clone()).await.unwrap().get(&pool("a")).await.unwrap();
    several.context = Some("nobody-knows".to_owned());
    let error = refused(several).await.to_string();
    assert!(error.contains("nobody-knows"), "{error}");
}

#[tokio::test]
async fn a_broken_kubeconfig_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("my-config");
    for text in ["", "{", "apiVersion: v1\nkind: Config\ncurrent-context: x\n", "just: text"] {
        std::fs::write(&file, text).unwrap();
        let error = refused(config(&file)).await;
        let shown = error.to_string();
        let is_named = matches!(error, StoreError::BadSetting { .. }) && shown.contains("my-config");
        assert!(is_named, "{text:?}: {shown}");
    }
    let error = refused(config(directory.path().join("missing"))).await.to_string();
    assert!(error.contains("missing"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_certificates_are_told_apart() {
    let test = "wrong_certificates_are_told_apart";
    let Some(server) = start_or_skip(test, Setup::default()) else { return };
    let path = server.kubeconfig().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let authority = |name: &str| server.certificates().cert(name).display().to_string();
    std::fs::write(&path, text.replace(&authority("ca"), &authority("stranger-ca"))).unwrap();
    let error = refused(config(&path)).await;
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("certificate-authority"), "{:?}", error.hint());

    let expired = json!({ "client-certificate": server.certificates().cert("expired-client"),
        "client-key": server.certificates().key("expired-client") });
    let error = refused(user(&server, "expired", expired)).await;
    assert!(matches!(error, StoreError::AccessDenied { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_rights_and_definitions_are_named() {
    let nobody = User { name: "nobody".into(), token: "token-of-nobody".into() };
    let setup = Setup { users: vec![nobody.clone()], ..Setup::default() };
    let Some(server) = start_or_skip("missing_rights_and_definitions_are_named", setup) else { return };
    let admin = connect(server.kubeconfig().unwrap()).await;
    let error = admin.get(&pool("a")).await.unwrap_err();
    assert!(error.to_string().contains("Definitions"), "{error}");
    let error = (&admin as &dyn Store).list_all(KeyRange::Everything).await.unwrap_err();
    assert!(error.to_string().contains("Definitions"), "{error}");

    install(&server.api(), Layout::V1);
    let error = refused(user(&server, "wrong", json!({ "token": "expired" }))).await;
    assert!(matches!(error, StoreError::AccessDenied { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("token"), "{:?}", error.hint());

    let store = KubeStore::connect(user(&server, "nobody", json!({ "token": nobody.token }))).await.unwrap();
    let error = store.get(&pool("a")).await.unwrap_err();
    assert!(error.to_string().contains("cannot get resource \"ippools\""), "{error}");
    let hint = error.hint().unwrap();
    assert!(hint.contains("--verb=get --resource=ippools.crd.projectcalico.org"), "{hint}");
    let error = (&store as &dyn Store).create(Key::Handle("h".into()), b"{}".to_vec()).await.unwrap_err();
    assert!(error.hint().unwrap().contains("--verb=create"), "{error:?}");
    let mut watch = store.watch(KeyRange::Handles, 5.into()).await.unwrap();
    let told = watch.next().await;
    assert!(matches!(told, Some(Err(StoreError::AccessDenied { .. }))), "a watch says so, too: {told:?}");
}

#[tokio::test]
async fn a_credential_plugin_that_fails_keeps_its_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    for (script, words) in [
        ("echo eyJzZWNyZXQ; echo no session >&2; exit 3", "no session"),
        ("echo '{\"status\": {\"token\": eyJzZWNyZXQ'", "ExecCredential"),
    ] {
        let plugin = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", script], "interactiveMode": "Never" });
        let kubeconfig = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": "https://127.0.0.1:1" } }],
            "users": [{ "name": "c", "user": { "exec": plugin } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }] });
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let error = refused(config(&path)).await;
        assert!(error.to_string().contains(words), "{error}");
        assert!(!format!("{error:?}").contains("eyJ"), "{error:?}");
    }
}

/// Files with a certificate, its key and the authority, which are replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_certificates_are_used_without_a_restart() {
    let test = "replaced_certificates_are_used_without_a_restart";
    let Some(server) = start(test, Setup::default(), Layout::V1) else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let pki = server.certificates();
    let text = std::fs::read_to_string(server.kubeconfig().unwrap()).unwrap();
    let mut text = text.replace(&pki.cert("ca").display().to_string(), &file("ca").display().to_string());
    for (named, own) in [(pki.cert("admin"), "cert"), (pki.key("admin"), "key")] {
        text = text.replace(&named.display().to_string(), &file(own).display().to_string());
    }
    std::fs::write(file("config"), text).unwrap();
    let put = |authority: &str, client: &str| {
        std::fs::copy(pki.cert(authority), file("ca")).unwrap();
        std::fs::copy(pki.cert(client), file("cert")).unwrap();
        std::fs::copy(pki.key(client), file("key")).unwrap();
    };

    put("stranger-ca", "admin");
    let settings = KubeConfig { api_group: Some(Layout::V1.api_version()), ..config(file("config")) };
    let store = KubeStore::connect(settings.clone()).await.unwrap();
    let error = store.get(&pool("a")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    put("ca", "expired-client");
    let error = store.get(&pool("a")).await.unwrap_err();
    assert!(matches!(error, StoreError::AccessDenied { .. }), "{error:?}");
    // A certificate without its key, as while both are being replaced.
    std::fs::copy(pki.cert("admin"), file("cert")).unwrap();
    let error = store.get(&pool("a")).await.unwrap_err();
    assert!(matches!(error, StoreError::AccessDenied { .. }), "{error:?}");
    put("ca", "admin");
    assert_eq!(store.get(&pool("a")).await.unwrap(), None);
}

/// A token that stops working is replaced by the next one in the file, in the middle of everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_token_is_used_without_a_restart() {
    let users = |token: &str| vec![User { name: "agent".into(), token: token.to_owned() }];
    let setup = Setup { users: users("first"), ..Setup::default() };
    let test = "a_replaced_token_is_used_without_a_restart";
    let Some(mut server) = start(test, setup, Layout::V1) else { return };
    let group = "rbac.authorization.k8s.io";
    let binding = json!({ "metadata": { "name": "agent" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": "agent" }] });
    server.api().create(&format!("/apis/{group}/v1/clusterrolebindings"), &binding).unwrap();

    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "first").unwrap();
    let store = KubeStore::connect(user(&server, "rotating", json!({ "tokenFile": token }))).await.unwrap();
    let (_, from) = (&store as &dyn Store).list_all(KeyRange::Handles).await.unwrap();
    let mut watch = store.watch(KeyRange::Handles, from).await.unwrap();
    for round in 0..3 {
        // A server that has just started has no history. The watch after that must be open before the next one starts: a server
        // that has just started also refuses watches that it has never seen, until it has read everybody's rights.
        for name in ["h", "after-history"] {
            let key = Key::Handle(format!("{name}{round}").into());
            (&store as &dyn Store).create(key.clone(), br#"{"block":{}}"#.to_vec()).await.unwrap();
            match next(&mut watch).await {
                Event::Put(record) => {
                    assert_eq!(record.key, key);
                    break;
                }
                Event::HistoryGone => {
                    let (records, from) = (&store as &dyn Store).list_all(KeyRange::Handles).await.unwrap();
                    assert!(records.iter().any(|record| record.key == key), "{key} is there");
                    watch = store.watch(KeyRange::Handles, from).await.unwrap();
                }
                other => panic!("expected {key}, got {other:?}"),
            }
        }
        let following = format!("token-{round}");
        server.set_users(users(&following)).unwrap();
        std::fs::write(&token, &following).unwrap();
        server.restart().unwrap();
    }
    let handles = collection(Layout::V1, Kind::IpamHandle);
    assert_eq!(server.api_as("first").get(&handles).unwrap().status, 401, "the first one has ended");
}
