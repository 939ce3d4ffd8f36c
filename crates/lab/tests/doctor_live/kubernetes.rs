//! What Kubernetes would tell of the lab: there is no API server, so its answers are written from what the kubelet stand-ins
//! say, as `kubectl get … -o json` prints them.

use lab::kubelet::PodReport;
use serde_json::{Value, json};

use crate::scene::{CALICO_NODE, NODES, address_of};

const LONG_AGO: &str = "2026-01-01T00:00:00Z";

pub(crate) fn pods<'p>(nodes: impl Iterator<Item = (&'p &'static str, &'p Vec<PodReport>)>) -> Value {
    let running = nodes.flat_map(|(node, pods)| {
        pods.iter().map(|pod| self::pod(&pod.namespace, &pod.name, node, Some(&pod.addresses[0])))
    });
    let items: Vec<Value> = running.chain([calico_node()]).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// A pod that runs.
pub(crate) fn pod(namespace: &str, name: &str, node: &str, address: Option<&str>) -> Value {
    let addresses: Vec<Value> = address.iter().map(|address| json!({"ip": address})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{name}"), "creationTimestamp": LONG_AGO},
        "spec": {"nodeName": node, "containers": [{"name": "c"}]},
        "status": {"phase": "Running", "hostIP": address_of(node), "podIP": address, "podIPs": addresses,
            "containerStatuses": [{"name": "c", "ready": true, "restartCount": 0}]},
    })
}

/// One that has just been made: whatever is there of it already, or not yet, is right.
pub(crate) fn coming(namespace: &str, name: &str, node: &str) -> Value {
    let mut pod = pod(namespace, name, node, None);
    pod["metadata"]["creationTimestamp"] = json!("2100-01-01T00:00:00Z");
    pod["status"] = json!({"phase": "Pending"});
    pod
}

/// One on its node's network.
pub(crate) fn host_pod(name: &str, node: &str) -> Value {
    let mut pod = pod("kube-system", name, node, Some(&address_of(node)));
    pod["spec"]["hostNetwork"] = json!(true);
    pod
}

pub(crate) const CALICO_POD: &str = "calico-node-x7k2p";

fn calico_node() -> Value {
    host_pod(CALICO_POD, CALICO_NODE)
}

pub(crate) fn nodes() -> Value {
    let items: Vec<Value> = NODES.iter().map(|node| self::node(node, &address_of(node))).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// A node that is ready.
pub(crate) fn node(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": LONG_AGO},
        "spec": {},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
                "lastTransitionTime": LONG_AGO}],
        },
    })
}
