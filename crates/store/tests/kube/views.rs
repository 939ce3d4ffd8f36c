//! Pods, Nodes, Namespaces and ServiceAccounts as the records they are to Calico.

use std::collections::BTreeMap;

use model::kube::Layout;
use model::{Key, KeyRange, Kind};
use serde_json::{Value, json};
use store::{Change, Event, Record, Store, StoreError};
use testkit::kube::{Api, Setup};

use crate::fixture::{connect, next, start};

fn endpoint(name: &str) -> Key {
    Key::namespaced(Kind::WorkloadEndpoint, "blue", name)
}

fn pod(name: &str, node: Option<&str>, host_network: bool) -> Value {
    let mut pod = json!({ "metadata": { "name": name },
        "spec": { "hostNetwork": host_network, "containers": [{ "name": "c", "image": "i" }] } });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

/// A namespace, an account, two nodes, and pods of every sort.
fn populate(api: &Api) {
    let namespace = json!({ "metadata": { "name": "blue", "labels": { "team": "x" } } });
    api.create("/api/v1/namespaces", &namespace).unwrap();
    let account = json!({ "metadata": { "name": "robot" } });
    api.create("/api/v1/namespaces/blue/serviceaccounts", &account).unwrap();
    let annotations = json!({ "projectcalico.org/IPv4Address": "172.30.0.1/24" });
    let node = json!({ "metadata": { "name": "node-a", "annotations": annotations }, "spec": { "podCIDR": "10.244.0.0/24" } });
    api.create("/api/v1/nodes", &node).unwrap();
    for pod in [
        pod("web-0", Some("node-a"), false),
        pod("web-1", Some("node-b"), false),
        pod("proxy", Some("node-a"), true),
        pod("waiting", None, false),
    ] {
        api.create("/api/v1/namespaces/blue/pods", &pod).unwrap();
    }
}

/// The plugin's note on a pod, as Calico writes it.
fn annotate(api: &Api, pod: &str, address: &str) {
    let path = format!("/api/v1/namespaces/blue/pods/{pod}/status");
    let mut object = api.read(&format!("/api/v1/namespaces/blue/pods/{pod}")).unwrap();
    object["metadata"]["annotations"] = json!({ "cni.projectcalico.org/podIP": address,
        "cni.projectcalico.org/podIPs": address, "cni.projectcalico.org/containerID": "0f3a" });
    api.replace(&path, &object).unwrap();
}

fn spec(record: &Record) -> Value {
    let value: Value = serde_json::from_slice(&record.value).unwrap();
    value["spec"].clone()
}

async fn names(store: &dyn Store, range: KeyRange) -> Vec<String> {
    let (records, _) = store.list_all(range).await.unwrap();
    records.into_iter().map(|record| record.key.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_kubernetes_are_records() {
    let test = "objects_of_kubernetes_are_records";
    let Some(server) = start(test, Setup::default(), Layout::V1) else { return };
    let api = server.api();
    populate(&api);
    annotate(&api, "web-0", "10.0.0.7/32");
    let store = connect(server.kubeconfig().unwrap()).await;
    let store: &dyn Store = &store;

    let record = store.get(&endpoint("node--a-k8s-web--0-eth0")).await.unwrap().unwrap();
    assert_eq!(spec(&record)["ipNetworks"], json!(["10.0.0.7/32"]));
    assert_eq!(spec(&record)["containerID"], "0f3a");
    for absent in ["node--b-k8s-web--0-eth0", "node--a-k8s-proxy-eth0", "node--a-k8s-nobody-eth0", "nonsense"]
    {
        assert_eq!(store.get(&endpoint(absent)).await.unwrap(), None, "{absent}");
    }
    let all =
        ["WorkloadEndpoint(blue/node--a-k8s-web--0-eth0)", "WorkloadEndpoint(blue/node--b-k8s-web--1-eth0)"];
    assert_eq!(names(store, KeyRange::Kind(Kind::WorkloadEndpoint)).await, all);
    let of_node = KeyRange::NamePrefix {
        kind: Kind::WorkloadEndpoint,
        namespace: Some("blue".into()),
        prefix: "node--a-k8s-".into(),
    };
    assert_eq!(names(store, of_node).await, all[..1]);
    assert_eq!(names(store, KeyRange::Kind(Kind::Node)).await, ["Node(node-a)"]);
    let node = store.get(&Key::cluster(Kind::Node, "node-a")).await.unwrap().unwrap();
    assert_eq!(spec(&node)["bgp"]["ipv4Address"], "172.30.0.1/24");
    let profiles = names(store, KeyRange::Kind(Kind::Profile)).await;
    for profile in ["Profile(kns.blue)", "Profile(ksa.blue.robot)"] {
        assert!(profiles.contains(&profile.to_owned()), "{profiles:?}");
    }
    let profile = store.get(&Key::cluster(Kind::Profile, "kns.blue")).await.unwrap().unwrap();
    assert_eq!(spec(&profile)["labelsToApply"]["pcns.team"], "x");
    let (everything, _) = store.list_all(KeyRange::Everything).await.unwrap();
    assert!(everything.contains(&record) && everything.contains(&node) && everything.contains(&profile));
}

/// Kubelets report their nodes' state all the time; whoever needs Calico's fields alone is spared it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_in_brief_have_what_calico_notes_and_their_labels() {
    let test = "nodes_in_brief_have_what_calico_notes_and_their_labels";
    let Some(server) = start(test, Setup::default(), Layout::V1) else { return };
    let api = server.api();
    populate(&api);
    let mut node = api.read("/api/v1/nodes/node-a").unwrap();
    node["status"]["addresses"] = json!([{ "type": "InternalIP", "address": "192.0.2.1" }]);
    api.replace("/api/v1/nodes/node-a/status", &node).unwrap();
    let store = connect(server.kubeconfig().unwrap()).await;
    let store: &dyn Store = &store;
    let whole = found(store, &Key::cluster(Kind::Node, "node-a")).await;
    let (brief, from) = store.list_all(KeyRange::NodesInBrief).await.unwrap();
    assert_eq!((brief[0].key.clone(), brief[0].revision.clone()), (whole.key.clone(), whole.revision));
    let types = |record: &Record| -> Vec<Value> {
        let addresses = spec(record)["addresses"].as_array().cloned().unwrap_or_default();
        addresses.into_iter().map(|entry| entry["type"].clone()).collect()
    };
    assert_eq!(types(&found(store, &whole.key).await), ["CalicoNodeIP", "InternalIP"]);
    assert_eq!(types(&brief[0]), ["CalicoNodeIP"]);
    assert_eq!(spec(&brief[0])["bgp"]["ipv4Address"], "172.30.0.1/24");

    let mut watch = store.watch(KeyRange::NodesInBrief, from).await.unwrap();
    let mut node = api.read("/api/v1/nodes/node-a").unwrap();
    node["metadata"]["labels"] = json!({ "rack": "r1" });
    api.replace("/api/v1/nodes/node-a", &node).unwrap();
    match next(&mut watch).await {
        Event::Put(record) => {
            let value: Value = serde_json::from_slice(&record.value).unwrap();
            assert_eq!(value["metadata"]["labels"]["rack"], "r1");
            assert_eq!(types(&record), ["CalicoNodeIP"], "{value}");
        }
        other => panic!("{other:?}"),
    }
}

/// The endpoint of a sandbox, as the agent writes it.
fn attached(record: &Record, sandbox: &str, address: &str) -> Vec<u8> {
    let mut value: Value = serde_json::from_slice(&record.value).unwrap();
    value["spec"]["containerID"] = sandbox.into();
    value["spec"]["ipNetworks"] = json!([format!("{address}/32")]);
    value["spec"]["mac"] = "02:00:00:00:00:07".into();
    serde_json::to_vec(&value).unwrap()
}

async fn found(store: &dyn Store, key: &Key) -> Record {
    store.get(key).await.unwrap().expect("the object is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_is_written_onto_the_pod_that_was_meant() {
    let test = "an_endpoint_is_written_onto_the_pod_that_was_meant";
    let Some(server) = start(test, Setup::default(), Layout::V1) else { return };
    let api = server.api();
    populate(&api);
    let store = connect(server.kubeconfig().unwrap()).await;
    let store: &dyn Store = &store;
    let (key, path) = (endpoint("node--a-k8s-web--0-eth0"), "/api/v1/namespaces/blue/pods/web-0");
    let uid = api.read(path).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let before = found(store, &key).await;
    assert_eq!((spec(&before).get("containerID"), spec(&before).get("ipNetworks")), (None, None));

    // No read is spent on it: the UID says which pod.
    let change = Change::update_view(key.clone(), attached(&before, "0f3a", "10.0.0.7"), uid.clone());
    let written = store.commit(vec![change]).await.unwrap();
    let record = found(store, &key).await;
    assert_eq!(record.revision, written.revisions[0]);
    let noted = &api.read(path).unwrap()["metadata"]["annotations"];
    assert_eq!(noted["cni.projectcalico.org/podIP"], "10.0.0.7/32");
    assert_eq!(noted["cni.projectcalico.org/podIPs"], "10.0.0.7/32");
    assert_eq!(
        (&spec(&record)["containerID"], &spec(&record)["mac"]),
        (&json!("0f3a"), &json!("02:00:00:00:00:07"))
    );

    // One that was read before refuses; the current one is changed, and removed.
    let late = Change::update(key.clone(), attached(&before, "dead", "10.0.0.8"), before.revision.clone());
    assert!(matches!(store.commit(vec![late]).await, Err(StoreError::Conflict { .. })));
    let late = Change::delete(key.clone(), before.revision);
    assert!(matches!(store.commit(vec![late]).await, Err(StoreError::Conflict { .. })));
    let next =
        store.update(key.clone(), attached(&record, "1f3a", "10.0.0.9"), record.revision).await.unwrap();
    assert_eq!(spec(&found(store, &key).await)["ipNetworks"], json!(["10.0.0.9/32"]));
    store.delete(key.clone(), next).await.unwrap();
    let detached = spec(&found(store, &key).await);
    assert_eq!(
        (detached.get("containerID"), detached.get("ipNetworks"), detached.get("mac")),
        (None, None, None)
    );
    let noted = &api.read(path).unwrap()["metadata"]["annotations"];
    assert_eq!(
        (&noted["cni.projectcalico.org/podIP"], &noted["cni.projectcalico.org/containerID"]),
        (&json!(""), &json!("1f3a"))
    );

    // A later pod of that name is another.
    let options = json!({ "gracePeriodSeconds": 0 });
    assert_eq!(api.request("DELETE", path, Some(&options)).unwrap().status, 200);
    let change = Change::update_view(key.clone(), attached(&record_of(&key), "0f3a", "10.0.0.7"), uid);
    let gone = store.commit(vec![change.clone()]).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
    api.create("/api/v1/namespaces/blue/pods", &pod("web-0", Some("node-a"), false)).unwrap();
    let other = store.commit(vec![change]).await;
    assert!(matches!(other, Err(StoreError::Conflict { .. })), "{other:?}");
    assert_eq!(api.read(path).unwrap()["metadata"].get("annotations"), None, "the new pod is untouched");
}

/// An endpoint that was never read.
fn record_of(key: &Key) -> Record {
    let value = br#"{"spec":{"node":"node-a"}}"#.to_vec().into();
    Record { key: key.clone(), value, revision: store::Revision::new("1") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_changed_by_compare_and_swap_and_views_are_not_made_here() {
    let test = "a_node_is_changed_by_compare_and_swap_and_views_are_not_made_here";
    let Some(server) = start(test, Setup::default(), Layout::V3) else { return };
    let api = server.api();
    populate(&api);
    let store = connect(server.kubeconfig().unwrap()).await;
    let store: &dyn Store = &store;
    let key = Key::cluster(Kind::Node, "node-a");
    let node = found(store, &key).await;
    let mut value: Value = serde_json::from_slice(&node.value).unwrap();
    value["spec"]["bgp"]["ipv4Address"] = "172.30.0.2/24".into();
    value["spec"]["ipv4VXLANTunnelAddr"] = "10.0.0.1".into();
    let changed = serde_json::to_vec(&value).unwrap();
    let revision = store.update(key.clone(), changed.clone(), node.revision.clone()).await.unwrap();
    let after = found(store, &key).await;
    assert_eq!((&after.revision, &spec(&after)["ipv4VXLANTunnelAddr"]), (&revision, &json!("10.0.0.1")));
    let annotations = &api.read("/api/v1/nodes/node-a").unwrap()["metadata"]["annotations"];
    assert_eq!(annotations["projectcalico.org/IPv4Address"], "172.30.0.2/24");
    let late = store.update(key.clone(), changed, node.revision).await;
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
    let required = store.commit(vec![Change::require(key.clone(), revision.clone())]).await;
    assert!(required.is_ok(), "{required:?}");

    // Of a later version, say: what cannot be read is in no record, and stays where it is.
    let odd = json!({"metadata": {"annotations": {"projectcalico.org/ASNumber": "of a later form", "projectcalico.org/labels": "own=yes"}}});
    api.patch("merge", "/api/v1/nodes/node-a", &odd).unwrap();
    let node = found(store, &key).await;
    let mut value: Value = serde_json::from_slice(&node.value).unwrap();
    value["spec"]["ipv4VXLANTunnelAddr"] = "10.0.0.2".into();
    let revision =
        store.update(key.clone(), serde_json::to_vec(&value).unwrap(), node.revision).await.unwrap();
    let annotations = &api.read("/api/v1/nodes/node-a").unwrap()["metadata"]["annotations"];
    assert_eq!(annotations["projectcalico.org/IPv4VXLANTunnelAddr"], "10.0.0.2");
    for (name, text) in odd["metadata"]["annotations"].as_object().unwrap() {
        assert_eq!(&annotations[name], text, "{annotations}");
    }

    let there = store.create(key.clone(), b"{}".to_vec()).await;
    assert!(matches!(there, Err(StoreError::AlreadyExists { .. })), "{there:?}");
    let profile = found(store, &Key::cluster(Kind::Profile, "kns.blue")).await;
    for change in [
        Change::delete(key, revision),
        Change::create(Key::cluster(Kind::Node, "node-z"), b"{}".to_vec()),
        Change::create(endpoint("node--a-k8s-new-eth0"), b"{}".to_vec()),
        Change::create(endpoint("node--a-cni-0f3a-eth0"), b"{}".to_vec()),
        Change::update(profile.key, profile.value, profile.revision),
    ] {
        let refused = store.commit(vec![change]).await;
        assert!(matches!(refused, Err(StoreError::Unsupported { .. })), "{refused:?}");
    }
}

/// Its address is taken, whatever else stands on it; and when it goes, everybody is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_an_annotation_that_cannot_be_read_is_an_endpoint() {
    let test = "a_pod_with_an_annotation_that_cannot_be_read_is_an_endpoint";
    let Some(server) = start(test, Setup::default(), Layout::V1) else { return };
    let api = server.api();
    populate(&api);
    annotate(&api, "web-0", "10.0.0.7/32");
    let store = connect(server.kubeconfig().unwrap()).await;
    let store: &dyn Store = &store;
    let (key, path) = (endpoint("node--a-k8s-web--0-eth0"), "/api/v1/namespaces/blue/pods/web-0");
    let range = KeyRange::EndpointsOf("node-a".to_owned());
    let (_, from) = store.list_all(range.clone()).await.unwrap();
    let mut watch = store.watch(range.clone(), from).await.unwrap();
    let mut object = api.read(path).unwrap();
    object["metadata"]["annotations"]["cni.projectcalico.org/allowedSourcePrefixes"] = json!("no list");
    api.replace(path, &object).unwrap();
    let record = found(store, &key).await;
    assert_eq!(spec(&record)["ipNetworks"], json!(["10.0.0.7/32"]));
    assert_eq!(spec(&record)["allowSpoofedSourcePrefixes"], "no list");
    assert_eq!(store.list_all(range).await.unwrap().0, std::slice::from_ref(&record));
    assert!(matches!(next(&mut watch).await, Event::Put(told) if told == record));
    let options = json!({ "gracePeriodSeconds": 0 });
    assert_eq!(api.request("DELETE", path, Some(&options)).unwrap().status, 200);
    loop {
        match next(&mut watch).await {
            Event::Put(leaving) => assert_eq!(leaving.key, key),
            Event::Deleted { key: gone, .. } => break assert_eq!(gone, key),
            Event::HistoryGone => panic!("nothing was forgotten"),
        }
    }
}

/// A watch over every endpoint, and one over everything, show what happens to pods and to nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_pods_are_changes_of_endpoints() {
    let test = "changes_of_pods_are_changes_of_endpoints";
    let Some(server) = start(test, Setup::default(), Layout::V3) else { return };
    let api = server.api();
    populate(&api);
    let store = connect(server.kubeconfig().unwrap()).await;
    let store: &dyn Store = &store;
    let (_, from) = store.list_all(KeyRange::Everything).await.unwrap();
    let mut endpoints = store.watch(KeyRange::Kind(Kind::WorkloadEndpoint), from.clone()).await.unwrap();
    let mut everything = store.watch(KeyRange::Everything, from).await.unwrap();

    annotate(&api, "web-0", "10.0.0.7/32");
    api.create("/api/v1/namespaces/blue/pods", &pod("host", Some("node-a"), true)).unwrap();
    api.create("/api/v1/namespaces/blue/pods", &pod("late", Some("node-a"), false)).unwrap();
    let options = json!({ "gracePeriodSeconds": 0 });
    let gone = api.request("DELETE", "/api/v1/namespaces/blue/pods/web-1", Some(&options)).unwrap();
    assert_eq!(gone.status, 200);

    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(next(&mut endpoints).await);
    }
    match told.as_slice() {
        [Event::Put(first), Event::Put(late), Event::Put(leaving), Event::Deleted { key, .. }] => {
            assert_eq!(spec(first)["ipNetworks"], json!(["10.0.0.7/32"]));
            assert_eq!(late.key, endpoint("node--a-k8s-late-eth0"));
            // The server marks a pod before it removes it.
            assert_eq!((key, &leaving.key), (&endpoint("node--b-k8s-web--1-eth0"), key));
        }
        other => panic!("{other:?}"),
    }
    let mut seen = BTreeMap::new();
    for _ in 0..told.len() {
        let event = next(&mut everything).await;
        seen.insert(event.revision().unwrap().as_str().to_owned(), event);
    }
    let expected: BTreeMap<_, _> =
        told.into_iter().map(|event| (event.revision().unwrap().as_str().to_owned(), event)).collect();
    assert_eq!(seen, expected);

    // Another watch goes on where this one stopped, with a number for each of its streams.
    let position = everything.position().clone();
    drop(everything);
    let mut resumed = store.watch(KeyRange::Everything, position).await.unwrap();
    store
        .create(Key::cluster(Kind::IpPool, "p"), br#"{"spec":{"cidr":"10.0.0.0/16"}}"#.to_vec())
        .await
        .unwrap();
    match next(&mut resumed).await {
        Event::Put(record) => assert_eq!(record.key, Key::cluster(Kind::IpPool, "p")),
        other => panic!("{other:?}"),
    }
}
