//! Objects of the Kubernetes API: pods, nodes, events.

use jiff::Timestamp;
use model::NodeName;
use serde_json::Value;

use crate::draft::Draft;
use crate::words;
use evidence::kubernetes::Condition;
use evidence::{Event, KubeNode, Origin, Pod, PodName, Sighted};

/// Takes in an object. `false`: it is none of these.
pub(super) fn object(value: &Value, origin: &Origin, draft: &mut Draft) -> bool {
    let (api, kind) = (text(&value["apiVersion"]), text(&value["kind"]));
    match (api, kind) {
        ("v1", "Pod") => {
            draft.cluster.pods.get_or_insert_default().push(Sighted::new(pod(value), origin.clone()))
        }
        ("v1", "Node") => {
            draft.cluster.kube_nodes.get_or_insert_default().push(Sighted::new(node(value), origin.clone()));
        }
        ("v1" | "events.k8s.io/v1", "Event") => {
            draft.cluster.events.get_or_insert_default().push(Sighted::new(event(value), origin.clone()));
        }
        // Known, and not looked at: what it holds is nobody's business here.
        (api, kind) if is_other_kind(api, kind) => {}
        _ => return false,
    }
    true
}

/// An object of Kubernetes or of an operator that says nothing to the checks: a dump has many.
fn is_other_kind(api: &str, kind: &str) -> bool {
    let is_calico = api.ends_with("projectcalico.org/v3") || api.ends_with("projectcalico.org/v1");
    let is_version = |word: &str| word.starts_with('v') && word.len() > 1;
    let is_api = match api.split_once('/') {
        Some((group, version)) => !group.is_empty() && is_version(version),
        // Calico's of 2017 began in lower case.
        None => is_version(api),
    };
    is_api
        && !is_calico
        && kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind != "NodeEvidence"
}

/// A pod of the API.
pub fn pod(value: &Value) -> Pod {
    let (metadata, spec, status) = (&value["metadata"], &value["spec"], &value["status"]);
    let mut pod = Pod {
        name: PodName { namespace: owned(&metadata["namespace"]), name: text(&metadata["name"]).to_owned() },
        uid: owned(&metadata["uid"]),
        node: owned(&spec["nodeName"]).map(NodeName::from),
        host_network: Some(spec["hostNetwork"].as_bool().unwrap_or(false)),
        status: text(&status["phase"]).to_owned(),
        created_at: moment(&metadata["creationTimestamp"]),
        deleted_at: moment(&metadata["deletionTimestamp"]),
        ..Pod::default()
    };
    let told = list(&status["podIPs"]).map(|entry| text(&entry["ip"])).chain([text(&status["podIP"])]);
    for address in told.filter_map(words::address) {
        if !pod.addresses.contains(&address) {
            pod.addresses.push(address);
        }
    }
    let containers = || list(&status["containerStatuses"]);
    let ready = containers().filter(|container| container["ready"] == true).count();
    let all = containers().count();
    pod.ready = (all > 0).then_some((ready as u32, all as u32));
    let annotations = metadata["annotations"].as_object().into_iter().flatten();
    let ours =
        annotations.filter(|(name, _)| name.contains("projectcalico.org") || name.contains("plumbline"));
    pod.annotations = ours.map(|(name, value)| (name.clone(), text(value).to_owned())).collect();
    pod
}

/// A node of the API.
pub fn node(value: &Value) -> KubeNode {
    let (metadata, status) = (&value["metadata"], &value["status"]);
    let strings = |value: &Value| {
        let entries = value.as_object().into_iter().flatten();
        entries.map(|(name, value)| (name.clone(), text(value).to_owned())).collect()
    };
    let internal = list(&status["addresses"]).filter(|address| address["type"] == "InternalIP");
    KubeNode {
        name: text(&metadata["name"]).into(),
        internal_ips: internal.filter_map(|address| words::address(text(&address["address"]))).collect(),
        conditions: list(&status["conditions"]).map(condition).collect(),
        annotations: strings(&metadata["annotations"]),
        labels: strings(&metadata["labels"]),
        created_at: moment(&metadata["creationTimestamp"]),
        ..KubeNode::default()
    }
}

fn condition(value: &Value) -> Condition {
    Condition {
        kind: text(&value["type"]).to_owned(),
        status: text(&value["status"]).to_owned(),
        reason: text(&value["reason"]).to_owned(),
        message: text(&value["message"]).to_owned(),
        heartbeat_at: moment(&value["lastHeartbeatTime"]),
        changed_at: moment(&value["lastTransitionTime"]),
    }
}

/// An event of the API, of either group.
pub fn event(value: &Value) -> Event {
    let about =
        if value["involvedObject"].is_object() { &value["involvedObject"] } else { &value["regarding"] };
    let parts = [&about["kind"], &about["namespace"], &about["name"]];
    let object: Vec<&str> = parts.into_iter().map(text).filter(|part| !part.is_empty()).collect();
    let last = ["lastTimestamp", "eventTime", "deprecatedLastTimestamp"];
    let message = owned(&value["message"]).or_else(|| owned(&value["note"])).unwrap_or_default();
    let (series, source) = (&value["series"], &value["source"]);
    Event {
        reason: text(&value["reason"]).to_owned(),
        object: (!object.is_empty()).then(|| object.join("/")),
        node: owned(&source["host"]).map(NodeName::from),
        message,
        count: value["count"].as_u64().or_else(|| series["count"].as_u64()).unwrap_or(1),
        last_at: last.into_iter().find_map(|name| moment(&value[name])),
        ..Event::default()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn owned(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn moment(value: &Value) -> Option<Timestamp> {
    words::moment(value.as_str()?)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
