//! `plumb status` and `plumb install check` on Kubernetes, where agents are pods.

use model::cluster::AGENT_VERSION_ANNOTATION;
use serde_json::{Value, json};

use crate::cluster::{Cluster, SHOP};
use crate::harness::{Desk, Ran, pool};

/// The pod of a node's agent, with this many of its one container ready.
fn agent(cluster: &Cluster, node: &str, is_ready: bool) {
    let name = format!("plumb-node-{node}");
    let path = format!("/api/v1/namespaces/{SHOP}/pods");
    let pod = json!({ "metadata": { "name": name }, "spec": { "nodeName": node, "hostNetwork": true,
        "containers": [{ "name": "plumbd", "image": "i" }] } });
    if cluster.api.get(&format!("{path}/{name}")).unwrap().status == 404 {
        cluster.api.create(&path, &pod).unwrap();
    }
    let container = json!({ "name": "plumbd", "ready": is_ready, "restartCount": 0, "image": "i", "imageID": "",
        "state": { "running": {} } });
    let status = json!({ "status": { "phase": "Running", "containerStatuses": [container] } });
    let answer = cluster.api.patch("strategic-merge", &format!("{path}/{name}/status"), &status).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
}

fn node(cluster: &Cluster, name: &str, address: &str) {
    let network = format!("{address}/24");
    cluster
        .node(name, &json!({ "projectcalico.org/IPv4Address": network, AGENT_VERSION_ANNOTATION: "0.1.0" }));
    let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready" });
    let info = json!({ "kubeletVersion": "v1.35.4", "containerRuntimeVersion": "containerd://1.6.20", "architecture": "amd64",
        "operatingSystem": "linux", "kernelVersion": "6.1.0", "osImage": "", "bootID": "", "machineID": "", "systemUUID": "",
        "kubeProxyVersion": "" });
    let addresses = json!([{ "type": "InternalIP", "address": address }]);
    let status = json!({ "status": { "conditions": [ready], "addresses": addresses, "nodeInfo": info } });
    let answer =
        cluster.api.patch("strategic-merge", &format!("/api/v1/nodes/{name}/status"), &status).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
}

fn status(desk: &Desk) -> (Ran, Value) {
    let ran = desk.plumb(&["status", "--settle", "0", "-o", "json"]);
    let found = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    (ran, found)
}

#[test]
fn an_agent_that_is_not_ready_is_named() {
    let Some(cluster) = Cluster::for_test("an_agent_that_is_not_ready_is_named") else { return };
    let desk = cluster.desk();
    desk.apply(&pool("pods", "10.64.0.0/16"));
    node(&cluster, "node-a", "172.30.0.1");
    node(&cluster, "node-b", "172.30.0.2");
    agent(&cluster, "node-a", true);
    agent(&cluster, "node-b", false);
    let (ran, found) = status(&desk);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let problem = found["problems"][0].as_str().unwrap();
    assert!(
        problem.starts_with("the agent on node-b is not ready: pod shop/plumb-node-node-b is "),
        "{found:#}"
    );
    agent(&cluster, "node-b", true);
    let (ran, found) = status(&desk);
    assert_eq!((ran.code, &found["works"]), (Some(0), &json!(true)), "{found:#}");
    assert_eq!((&found["agents"]["nodes"], &found["agents"]["observed"]), (&json!(2), &json!(2)));
}

/// The verdict on one thing, and what was found.
fn verdict(ran: &Ran, check: &str) -> (String, String) {
    let found: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let lines = found["checks"].as_array().unwrap();
    let line =
        lines.iter().find(|line| line["check"] == check).unwrap_or_else(|| panic!("{check}: {found:#}"));
    let text = |field: &str| line[field].as_str().unwrap().to_owned();
    (text("verdict"), text("found"))
}

#[test]
fn a_cluster_is_checked_before_and_a_user_without_rights_learns_it() {
    let Some(cluster) = Cluster::for_test("a_cluster_is_checked_before_and_a_user_without_rights_learns_it")
    else {
        return;
    };
    node(&cluster, "node-a", "172.30.0.1");
    let check = ["install", "check", "--cluster-only", "-o", "json"];
    let ran = cluster.desk().plumb(&check);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(verdict(&ran, "cluster").0, "ok");
    assert_eq!(verdict(&ran, "RBAC").0, "ok");
    assert_eq!(verdict(&ran, "nodes").1, "1 nodes; kubelet 1 × v1.35.4");
    assert_eq!(verdict(&ran, "networks").0, "ok");

    let ran = cluster.desk_of_joe().plumb(&check);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let (word, found) = verdict(&ran, "RBAC");
    assert!(
        word == "fail" && found.contains("customresourcedefinitions") && found.contains("daemonsets"),
        "{found}"
    );
    assert_eq!(verdict(&ran, "nodes").0, "fail");
}
