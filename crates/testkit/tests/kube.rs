//! The API server that other tests stand on: it starts, keeps what it is given, forgets on demand, and leaves nothing behind.

use serde_json::json;
use testkit::kube::{Setup, User, start_or_skip};

#[test]
fn an_api_server_is_started_used_and_gone() {
    const NAME: &str = "an_api_server_is_started_used_and_gone";
    let nobody = User { name: "nobody".into(), token: "token-of-nobody".into() };
    let setup = Setup { users: vec![nobody.clone()], ..Setup::without_watch_cache() };
    let Some(mut server) = start_or_skip(NAME, setup) else { return };
    let namespaces = "/api/v1/namespaces";
    let made = server.api().create(namespaces, &json!({ "metadata": { "name": "blue" } })).unwrap();
    let revision = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();

    assert_eq!(server.api_as(&nobody.token).get(namespaces).unwrap().status, 403);
    assert_eq!(server.api_as("token-of-no-user").get(namespaces).unwrap().status, 401);

    server.api().create(namespaces, &json!({ "metadata": { "name": "red" } })).unwrap();
    server.compact().unwrap();
    let path = format!("{namespaces}?resourceVersion={revision}&resourceVersionMatch=Exact");
    assert_eq!(server.api().get(&path).unwrap().status, 410, "what etcd forgot is forgotten");

    server.restart().unwrap();
    assert_eq!(server.api().read(&format!("{namespaces}/blue")).unwrap()["metadata"]["name"], "blue");
    let config = std::fs::read_to_string(server.kubeconfig().unwrap()).unwrap();
    assert!(config.contains(&server.url()), "{config}");

    let port = server.port();
    drop(server);
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "it is gone with its test");
}
