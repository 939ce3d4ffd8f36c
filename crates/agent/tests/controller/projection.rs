//! What Kubernetes knows becomes records in etcd, and goes with it.

use model::names::EndpointName;
use model::{Key, Kind, Resource};
use serde_json::{Value, json};
use store::Store;
use store::etcd::{EtcdConfig, EtcdStore};
use testkit::etcd;
use testkit::kube::Api;

use crate::program::{Controller, Start};
use crate::world::{self, SHOP};

async fn body(store: &dyn Store, key: &Key) -> Option<Value> {
    let record = store.get(key).await.unwrap()?;
    Some(serde_json::from_slice(&record.value).unwrap())
}

async fn wait(store: &dyn Store, controller: &Controller, key: &Key, is_so: impl Fn(Option<&Value>) -> bool) {
    let deadline = std::time::Instant::now() + testkit::PATIENCE;
    loop {
        let found = body(store, key).await;
        if is_so(found.as_ref()) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{key}: {found:?}\n{}", controller.log());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// One of an operator, one of a namespace that was deleted while no controller ran, and one of a namespace in which a pod still runs.
async fn write_profiles(store: &dyn Store) -> (Key, Key, Key) {
    let own = Resource::new(Kind::Profile, "operators");
    store.create(own.key(), own.encode()).await.unwrap();
    let left = Resource::new(Kind::Profile, "kns.left");
    store.create(left.key(), left.encode()).await.unwrap();
    let used = Resource::new(Kind::Profile, "kns.used");
    store.create(used.key(), used.encode()).await.unwrap();
    let mut user = Resource::new(Kind::WorkloadEndpoint, "node--a-k8s-runs-eth0");
    user.metadata.namespace = Some("used".to_owned());
    user.body.insert(
        "spec".into(),
        json!({ "profiles": ["kns.used"], "node": "node-a", "pod": "runs",
        "orchestrator": "k8s", "endpoint": "eth0" }),
    );
    store.create(user.key(), user.encode()).await.unwrap();
    (own.key(), left.key(), used.key())
}

async fn write_endpoint(store: &dyn Store) -> Key {
    let name = EndpointName::of_pod("node-a", "web", "eth0").compute().unwrap();
    let endpoint = Key::namespaced(Kind::WorkloadEndpoint, SHOP, name.clone());
    let mut record = Resource::new(Kind::WorkloadEndpoint, name);
    record.metadata.namespace = Some(SHOP.to_owned());
    record.body.insert(
        "spec".into(),
        json!({ "ipNetworks": ["10.64.0.1/32"], "containerID": "c", "node": "node-a",
        "pod": "web", "orchestrator": "k8s", "endpoint": "eth0" }),
    );
    store.create(endpoint.clone(), record.encode()).await.unwrap();
    endpoint
}

async fn profiles_follow(store: &dyn Store, controller: &Controller, api: &Api, left: &Key) {
    let shop = Key::cluster(Kind::Profile, "kns.shop");
    wait(store, controller, &shop, |found| {
        found.is_some_and(|found| found["spec"]["labelsToApply"]["pcns.projectcalico.org/name"] == "shop")
    })
    .await;
    let account = Key::cluster(Kind::Profile, "ksa.shop.default");
    wait(store, controller, &account, |found| found.is_some()).await;
    let labels = json!({ "metadata": { "labels": { "team": "a" } } });
    assert_eq!(api.patch("merge", "/api/v1/namespaces/shop", &labels).unwrap().status, 200);
    wait(store, controller, &shop, |found| {
        found.is_some_and(|found| found["spec"]["labelsToApply"]["pcns.team"] == "a")
    })
    .await;
    wait(store, controller, left, |found| found.is_none()).await;
}

async fn labels_follow(store: &dyn Store, controller: &Controller, api: &Api, endpoint: &Key) {
    wait(store, controller, endpoint, |found| {
        found
            .is_some_and(|found| found["metadata"]["labels"]["projectcalico.org/serviceaccount"] == "default")
    })
    .await;
    let labels = json!({ "metadata": { "labels": { "app": "web" } } });
    assert_eq!(api.patch("merge", "/api/v1/namespaces/shop/pods/web", &labels).unwrap().status, 200);
    wait(store, controller, endpoint, |found| {
        found.is_some_and(|found| found["metadata"]["labels"]["app"] == "web")
    })
    .await;
    let found = body(store, endpoint).await.unwrap();
    assert_eq!(
        (&found["spec"]["ipNetworks"][0], &found["spec"]["containerID"]),
        (&json!("10.64.0.1/32"), &json!("c"))
    );
    let labels = json!({ "metadata": { "labels": { "zone": "1" } } });
    assert_eq!(api.patch("merge", "/api/v1/nodes/node-a", &labels).unwrap().status, 200);
    let node = Key::cluster(Kind::Node, "node-a");
    wait(store, controller, &node, |found| {
        found.is_some_and(|found| found["metadata"]["labels"]["zone"] == "1")
    })
    .await;
}

async fn policies_follow(store: &dyn Store, controller: &Controller, api: &Api) {
    let path = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies";
    let from = json!([{ "podSelector": { "matchLabels": { "app": "web" } } }]);
    let policy =
        json!({ "metadata": { "name": "db" }, "spec": { "podSelector": {}, "ingress": [{ "from": from }] } });
    api.create(path, &policy).unwrap();
    let key = Key::namespaced(Kind::NetworkPolicy, SHOP, "knp.default.db");
    wait(store, controller, &key, |found| {
        found.is_some_and(|found| {
            found["spec"]["types"] == json!(["Ingress"]) && found["spec"]["order"] == 1000
        })
    })
    .await;
    let closed = json!({ "spec": { "ingress": null } });
    assert_eq!(api.patch("merge", &format!("{path}/db"), &closed).unwrap().status, 200);
    wait(store, controller, &key, |found| found.is_some_and(|found| found["spec"]["ingress"].is_null()))
        .await;
    api.delete(&format!("{path}/db")).unwrap();
    wait(store, controller, &key, |found| found.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_etcd_profiles_labels_and_policies_follow_kubernetes() {
    let test = "in_etcd_profiles_labels_and_policies_follow_kubernetes";
    let Some(server) = world::server(test) else { return };
    let Some(cluster) = etcd::start_or_skip(test, etcd::Setup::default()) else { return };
    let store = EtcdStore::connect(EtcdConfig::new([cluster.endpoint(0)])).await.unwrap();
    let store: &dyn Store = &store;
    let api = server.api();
    world::write_pool(store).await;
    world::node(&api, "node-a");
    world::write_node(store, "node-a", "node-a").await;
    let (own, left, used) = write_profiles(store).await;
    let endpoint = write_endpoint(store).await;
    world::pod(&api, "web", "node-a", None, false);

    let user = json!({ "token": world::token(&api) });
    let kubeconfig = server.write_kubeconfig("controller", &server.url(), user).unwrap();
    let start = Start::default().with("ETCD_ENDPOINTS", cluster.endpoint(0));
    let controller = start.and(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--grace", "2s"]).run();

    profiles_follow(store, &controller, &api, &left).await;
    labels_follow(store, &controller, &api, &endpoint).await;
    policies_follow(store, &controller, &api).await;
    assert!(body(store, &own).await.is_some(), "an operator's own profile stays");
    assert!(body(store, &used).await.is_some(), "a profile that an endpoint refers to stays");
    assert!(body(store, &endpoint).await.is_some());
}
