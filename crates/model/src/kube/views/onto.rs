//! A node of another store put onto a Node of Kubernetes: what Calico knows of it moves, what Kubernetes knows stays.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::node::{FIELDS, PREFIX, set};
use super::patch::{Fence, node_patch, own_labels_and_annotations};
use crate::{Kind, Resource};

/// What a Node of Kubernetes says itself, so that it is never taken from elsewhere.
const OF_KUBERNETES: [[&str; 2]; 3] = [["spec", "orchRefs"], ["spec", "addresses"], ["status", "podCIDRs"]];
const INTERFACES: [&str; 2] = ["spec", "interfaces"];

/// A node as it can be written, and what of it cannot.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeOnto {
    pub node: Resource,
    /// Fields that no annotation keeps.
    pub unkept: Vec<String>,
    /// Labels whose names Kubernetes uses for other values.
    pub labels: Vec<String>,
}

/// Puts Calico's part of `node` onto `there`, the view of a Node that exists.
pub fn node_onto(node: &Resource, there: &Resource) -> NodeOnto {
    let mut onto = there.clone();
    for path in FIELDS.iter().map(|field| field.path).chain([&INTERFACES[..]]) {
        match at(&node.body, path).filter(|value| !value.is_null()) {
            Some(value) => set(&mut onto.body, path, value.clone()),
            None => remove(&mut onto.body, path),
        }
    }
    let name = format!("{PREFIX}kube-labels");
    let noted = there.metadata.annotations.get(&name).cloned().unwrap_or_default();
    let of_kubernetes: BTreeMap<String, String> = serde_json::from_str(&noted).unwrap_or_default();
    let (mut labels, mut annotations) = own_labels_and_annotations(node);
    let is_taken = |name: &String, value: &String| of_kubernetes.get(name).is_some_and(|own| own != value);
    let taken = labels.iter().filter(|(name, value)| is_taken(name, value)).map(|(name, _)| name.clone());
    let taken = taken.collect();
    labels.extend(of_kubernetes);
    annotations.insert(name, noted);
    onto.metadata.labels = labels;
    onto.metadata.annotations = annotations;
    NodeOnto { node: onto, unkept: unkept(&node.body), labels: taken }
}

/// What two records of one node or endpoint must share to say the same of Calico's part.
pub fn calicos_part(record: &Resource) -> Value {
    if record.kind == Kind::WorkloadEndpoint {
        let listed = record.spec("ipNetworks").and_then(Value::as_array).into_iter().flatten();
        // The kubelet lists them in an order of its own.
        let networks: BTreeSet<&str> = listed.filter_map(Value::as_str).collect();
        return json!({"containerID": record.spec("containerID"), "ipNetworks": networks});
    }
    let patch = node_patch(record, &BTreeMap::new(), Fence::Revision(""));
    let annotations = patch.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let mut annotations = annotations.and_then(Value::as_object).cloned().unwrap_or_default();
    annotations.retain(|_, value| !value.is_null());
    Value::Object(annotations)
}

fn unkept(body: &Map<String, Value>) -> Vec<String> {
    let mut rest = body.clone();
    let own = OF_KUBERNETES.iter().chain([&INTERFACES]).map(|path| &path[..]);
    for path in FIELDS.iter().map(|field| field.path).chain(own) {
        remove(&mut rest, path);
    }
    let mut paths = Vec::new();
    for (field, value) in &rest {
        leaves(field, value, &mut paths);
    }
    paths
}

/// Paths of everything that says something. An empty object says nothing.
fn leaves(path: &str, value: &Value, paths: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(field, value)| leaves(&format!("{path}.{field}"), value, paths));
        }
        Value::Null => {}
        _ => paths.push(path.to_owned()),
    }
}

fn at<'a>(body: &'a Map<String, Value>, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(body.get(*first)?, |value, field| value.get(field))
}

/// Removes a field, and objects that are empty without it.
fn remove(body: &mut Map<String, Value>, path: &[&str]) {
    match path {
        [] => {}
        [last] => drop(body.remove(*last)),
        [first, rest @ ..] => {
            let Some(Value::Object(inner)) = body.get_mut(*first) else { return };
            remove(inner, rest);
            if body.get(*first) == Some(&json!({})) {
                body.remove(*first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Shown, view};
    use super::*;
    use crate::Key;

    fn resource(document: Value) -> Resource {
        let key = Key::cluster(Kind::Node, "n");
        Resource::decode(&key, Kind::Node, document.to_string().as_bytes(), "1").unwrap()
    }

    fn there() -> Resource {
        let object = json!({"metadata": {"name": "n", "uid": "u-there", "labels": {"zone": "a", "both": "k8s"},
            "annotations": {"projectcalico.org/IPv4VXLANTunnelAddr": "10.9.9.9", "projectcalico.org/labels": "{\"old\":\"x\"}"}},
            "spec": {"podCIDRs": ["10.244.0.0/24"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "172.30.0.1"}]}});
        let shown = view(Shown::Node, object.as_object().unwrap()).unwrap().unwrap();
        Resource::decode(&shown.key, Kind::Node, &shown.value, "7").unwrap()
    }

    #[test]
    fn calicos_part_moves_and_kubernetes_part_stays() {
        let node = resource(json!({"metadata": {"name": "n", "uid": "u-source",
                "labels": {"rack": "r1", "both": "etcd", "synced": "y"},
                "annotations": {"note": "kept", "projectcalico.org/kube-labels": "{\"synced\":\"y\"}"}},
            "spec": {"bgp": {"ipv4Address": "172.30.0.5/24", "asNumber": 64513, "later": 1}, "orchRefs": [{"nodeName": "m"}],
                "addresses": [{"address": "1.2.3.4"}], "interfaces": [{"name": "eth0"}], "new": {"a": {}, "b": [1]}},
            "status": {"podCIDRs": ["10.1.0.0/24"], "wireguardPublicKey": "k"}}));
        let onto = node_onto(&node, &there());
        assert_eq!(onto.unkept, ["spec.bgp.later", "spec.new.b"]);
        assert_eq!(onto.labels, ["both"]);
        let moved = &onto.node;
        assert_eq!(moved.metadata.uid.as_deref(), Some("u-there"));
        assert_eq!(moved.spec("bgp"), Some(&json!({"ipv4Address": "172.30.0.5/24", "asNumber": 64513})));
        assert_eq!(moved.spec("ipv4VXLANTunnelAddr"), None, "the source has none");
        assert_eq!(moved.spec("orchRefs"), there().spec("orchRefs"));
        assert_eq!(moved.spec("addresses"), there().spec("addresses"));
        let status = json!({"podCIDRs": ["10.244.0.0/24"], "wireguardPublicKey": "k"});
        assert_eq!(moved.body["status"], status);
        let labels = json!({"zone": "a", "both": "k8s", "rack": "r1"});
        assert_eq!(json!(moved.metadata.labels), labels);
        let part = calicos_part(moved);
        assert_eq!(part["projectcalico.org/labels"], "{\"rack\":\"r1\"}");
        assert_eq!(part["projectcalico.org/annotations"], "{\"note\":\"kept\"}");
        assert_eq!(part["projectcalico.org/ASNumber"], "64513");
    }

    #[test]
    fn a_node_put_onto_itself_stays_as_it_is() {
        let onto = node_onto(&there(), &there());
        assert_eq!((onto.node, onto.unkept, onto.labels), (there(), vec![], vec![]));
    }
}
