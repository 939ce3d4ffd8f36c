//! Objects of Kubernetes' API as evidence: read from the API server, or from a text that somebody pasted. Whatever is odd about one
//! is left out, never refused.

use jiff::Timestamp;
use model::NodeName;
use serde_json::Value;

use super::{Condition, Event, KubeNode, Pod, PodName};
use crate::address_of;

/// On a pod that the kubelet shows for one from a file: that one's UID.
const MIRROR: &str = "kubernetes.io/config.mirror";

impl Pod {
    pub fn of_object(object: &Value) -> Pod {
        let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let mut pod = Pod {
            name: PodName {
                namespace: owned(&metadata["namespace"]),
                name: text(&metadata["name"]).to_owned(),
            },
            uid: owned(&metadata["uid"]),
            static_uid: metadata["annotations"].get(MIRROR).and_then(owned),
            node: owned(&spec["nodeName"]).map(NodeName::from),
            service_account: owned(&spec["serviceAccountName"]),
            host_network: Some(spec["hostNetwork"].as_bool().unwrap_or(false)),
            status: text(&status["phase"]).to_owned(),
            created_at: moment(&metadata["creationTimestamp"]),
            deleted_at: moment(&metadata["deletionTimestamp"]),
            ..Pod::default()
        };
        let told = list(&status["podIPs"]).map(|entry| text(&entry["ip"])).chain([text(&status["podIP"])]);
        for address in told.filter_map(address_of) {
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
}

impl KubeNode {
    pub fn of_object(object: &Value) -> KubeNode {
        let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let strings = |value: &Value| {
            let entries = value.as_object().into_iter().flatten();
            entries.map(|(name, value)| (name.clone(), text(value).to_owned())).collect()
        };
        let internal = list(&status["addresses"]).filter(|address| address["type"] == "InternalIP");
        KubeNode {
            name: text(&metadata["name"]).into(),
            internal_ips: internal.filter_map(|address| address_of(text(&address["address"]))).collect(),
            conditions: list(&status["conditions"]).map(Condition::of_object).collect(),
            annotations: strings(&metadata["annotations"]),
            labels: strings(&metadata["labels"]),
            created_at: moment(&metadata["creationTimestamp"]),
            taints: list(&spec["taints"]).map(taint).collect(),
            provider: text(&spec["providerID"]).to_owned(),
            ..KubeNode::default()
        }
    }
}

impl Condition {
    fn of_object(object: &Value) -> Condition {
        Condition {
            kind: text(&object["type"]).to_owned(),
            status: text(&object["status"]).to_owned(),
            reason: text(&object["reason"]).to_owned(),
            message: text(&object["message"]).to_owned(),
            heartbeat_at: moment(&object["lastHeartbeatTime"]),
            changed_at: moment(&object["lastTransitionTime"]),
        }
    }
}

impl Event {
    /// Of either group of the API.
    pub fn of_object(object: &Value) -> Event {
        let about = match &object["involvedObject"] {
            about @ Value::Object(_) => about,
            _ => &object["regarding"],
        };
        let parts = [&about["kind"], &about["namespace"], &about["name"]];
        let parts: Vec<&str> = parts.into_iter().map(text).filter(|part| !part.is_empty()).collect();
        let last = ["lastTimestamp", "eventTime", "deprecatedLastTimestamp"];
        let message = owned(&object["message"]).or_else(|| owned(&object["note"])).unwrap_or_default();
        let (series, source) = (&object["series"], &object["source"]);
        Event {
            reason: text(&object["reason"]).to_owned(),
            object: (!parts.is_empty()).then(|| parts.join("/")),
            node: owned(&source["host"]).map(NodeName::from),
            message,
            count: object["count"].as_u64().or_else(|| series["count"].as_u64()).unwrap_or(1),
            last_at: last.into_iter().find_map(|name| moment(&object[name])),
            ..Event::default()
        }
    }
}

/// The node of a kubelet's lease, and when the kubelet renewed it last.
pub fn lease_of_object(object: &Value) -> Option<(NodeName, Timestamp)> {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let name = owned(&metadata["name"])?;
    Some((name.into(), moment(&spec["renewTime"])?))
}

fn taint(taint: &Value) -> String {
    let value = owned(&taint["value"]).map_or_else(String::new, |value| format!("={value}"));
    format!("{}{value}:{}", text(&taint["key"]), text(&taint["effect"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn owned(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn moment(value: &Value) -> Option<Timestamp> {
    value.as_str()?.trim().parse().ok()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_what_its_object_says() {
        let pod = Pod::of_object(&json!({
            "metadata": { "namespace": "shop", "name": "web-0", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "annotations": { "cni.projectcalico.org/podIP": "10.0.0.1/32", "secret": "x" } },
            "spec": { "nodeName": "a" },
            "status": { "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }, { "ip": "fd00::1" }],
                "containerStatuses": [{ "ready": true }, { "ready": false }] },
        }));
        assert_eq!((pod.name.to_string().as_str(), pod.uid.as_deref()), ("shop/web-0", Some("u")));
        assert_eq!((pod.addresses.len(), pod.ready, pod.host_network), (2, Some((1, 2)), Some(false)));
        assert!(pod.is_terminating() && pod.node == Some("a".into()));
        assert_eq!(pod.annotations.keys().collect::<Vec<_>>(), ["cni.projectcalico.org/podIP"]);
    }

    #[test]
    fn a_lease_is_its_nodes() {
        let lease =
            json!({ "metadata": { "name": "a" }, "spec": { "renewTime": "2026-01-01T00:00:10.000000Z" } });
        assert_eq!(lease_of_object(&lease).unwrap().0, "a".into());
        assert_eq!(lease_of_object(&json!({ "metadata": { "name": "a" }, "spec": {} })), None);
    }

    proptest! {
        #[test]
        fn any_object_is_survived(text in "\\PC{0,20}") {
            for field in ["metadata", "spec", "status", "involvedObject"] {
                for value in [json!(text), json!([text]), json!({ "name": [text], "podIPs": text, "addresses": [7] })] {
                    let object = json!({ field: value });
                    Pod::of_object(&object);
                    KubeNode::of_object(&object);
                    Event::of_object(&object);
                    lease_of_object(&object);
                }
            }
        }
    }
}
