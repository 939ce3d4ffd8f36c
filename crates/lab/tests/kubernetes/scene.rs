//! A lab on Kubernetes, and looks at what its API server has.

use std::time::Duration;

use lab::Programs;
use lab::cluster::{ApiGroup, OwnCluster, Plan, StoreKind};
use lab::kubelet::{KubeletRequest, NewPod, PodKey, PodReport};
use serde_json::Value;

pub(crate) fn plan(nodes: usize) -> Plan {
    let programs = Programs::of_test().unwrap();
    // Nothing depends on it, so each run tries one.
    let api_group = if testkit::seed().is_multiple_of(2) { ApiGroup::V1 } else { ApiGroup::V3 };
    let store = StoreKind::Kubernetes;
    Plan { nodes, store, api_group, grace: Duration::from_secs(1), ..Plan::new(&programs) }
}

/// `None`, with the reason reported, where such a lab cannot run.
pub(crate) fn up(test: &str, plan: impl FnOnce() -> Plan) -> Option<OwnCluster> {
    if let Some(reason) = lab::missing_for_cluster(StoreKind::Kubernetes, None) {
        testkit::skip(test, &reason);
        return None;
    }
    Some(OwnCluster::up(plan(), &|_| {}).unwrap())
}

pub(crate) fn key(name: &str) -> PodKey {
    name.parse().unwrap()
}

pub(crate) fn add(lab: &OwnCluster, node: &str, name: &str) -> PodReport {
    let request = KubeletRequest::Add { pods: vec![NewPod::new(&key(name))], waits: true };
    lab.kubelet(node, &request).unwrap().pop().unwrap()
}

pub(crate) fn delete(lab: &OwnCluster, node: &str, name: &str, waits: bool) {
    lab.kubelet(node, &KubeletRequest::Delete { pods: vec![key(name)], waits }).unwrap();
}

/// The object at a path, if it exists.
pub(crate) fn read(lab: &OwnCluster, path: &str) -> Option<Value> {
    let answer = lab.with_api(|api| api.get(path)).unwrap();
    assert!([200, 404].contains(&answer.status), "{}", answer.text);
    (answer.status == 200).then(|| answer.json())
}

pub(crate) fn read_pod(lab: &OwnCluster, name: &str) -> Option<Value> {
    let PodKey { namespace, name } = key(name);
    read(lab, &format!("/api/v1/namespaces/{namespace}/pods/{name}"))
}

/// What the plugin has noted on a pod.
pub(crate) fn noted(pod: &Value, name: &str) -> String {
    let text = &pod["metadata"]["annotations"][format!("cni.projectcalico.org/{name}")];
    text.as_str().unwrap_or_default().to_owned()
}

/// Container IDs that hold addresses.
pub(crate) fn holders(lab: &OwnCluster) -> Vec<String> {
    let handles = lab.plumb(&["get", "ipamhandles", "-o", "name"]).unwrap();
    let ids = handles.lines().filter_map(|line| line.rsplit('.').next().map(str::to_owned));
    ids.collect()
}
