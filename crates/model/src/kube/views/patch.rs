//! How records that are views are written: as patches of Kubernetes' objects, which change Calico's annotations and nothing else.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::node::{FIELDS, PREFIX, is_unreadable};
use super::pod::{CONTAINER_ID, DEVICE, MAC, POD_IP, POD_IPS};
use crate::names::host_interface_name;
use crate::{DeviceName, DevicePrefixes, Resource};

/// Which object a patch is meant for. One that is not so refuses the patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence<'a> {
    /// The object with this UID: a later one of the same name is another.
    Uid(&'a str),
    /// The object at this `resourceVersion`.
    Revision(&'a str),
}

impl Fence<'_> {
    fn metadata(self, annotations: Value) -> Value {
        match self {
            Fence::Uid(uid) => json!({"metadata": {"uid": uid, "annotations": annotations}}),
            Fence::Revision(revision) => {
                json!({"metadata": {"resourceVersion": revision, "annotations": annotations}})
            }
        }
    }
}

/// Writes an endpoint: a strategic merge patch of the pod's status.
pub fn endpoint_patch(endpoint: &Resource, fence: Fence<'_>, prefixes: &DevicePrefixes) -> Value {
    let networks = endpoint.spec("ipNetworks").and_then(Value::as_array).into_iter().flatten();
    let networks: Vec<&str> = networks.filter_map(Value::as_str).collect();
    let text = |field| endpoint.spec(field).and_then(Value::as_str);
    let namespace = endpoint.metadata.namespace.as_deref().unwrap_or_default();
    let usual = host_interface_name(namespace, text("pod").unwrap_or_default()).ok();
    let is_usual = |name: &str| usual.as_ref().is_some_and(|usual| usual.as_str() == name);
    let needs_note = |name: &str| prefixes.first() != DeviceName::CALICO_PREFIX || !is_usual(name);
    fence.metadata(json!({
        POD_IP: networks.first().copied().unwrap_or_default(),
        POD_IPS: networks.join(","),
        CONTAINER_ID: text("containerID").unwrap_or_default(),
        MAC: text("mac"),
        // The usual name needs no annotation, and that of an earlier sandbox must go. Where the prefix is a setting, not everybody who
        // reads the pod knows it.
        DEVICE: text("interfaceName").filter(|name| needs_note(name)),
    }))
}

/// Removes an endpoint: the addresses go, the container ID stays, as Calico leaves it.
pub fn endpoint_removal_patch(fence: Fence<'_>) -> Value {
    fence.metadata(json!({POD_IP: "", POD_IPS: "", MAC: null, DEVICE: null}))
}

/// Writes a node: a merge patch of the Kubernetes Node's status. Calico names no revision, and overwrites what others wrote since
/// it read the node. `there` are the annotations of the object at that revision: one that cannot be read is in no record, and is not
/// removed because the record is without it.
pub fn node_patch(node: &Resource, there: &BTreeMap<String, String>, fence: Fence<'_>) -> Value {
    let mut annotations = Map::new();
    for field in &FIELDS {
        let (first, rest) = field.path.split_first().unwrap_or((&"", &[]));
        let found = rest.iter().try_fold(node.body.get(*first), |value, name| Some(value?.get(*name)));
        annotations.insert(format!("{PREFIX}{}", field.annotation), as_annotation(found.flatten()));
    }
    let interfaces =
        node.spec("interfaces").filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
    annotations.insert(format!("{PREFIX}Interfaces"), interfaces.map(Value::to_string).into());
    let (labels, own) = own_labels_and_annotations(node);
    annotations.insert(format!("{PREFIX}labels"), as_json(&labels));
    annotations.insert(format!("{PREFIX}annotations"), as_json(&own));
    annotations.retain(|name, value| {
        !value.is_null() || !there.get(name).is_some_and(|text| is_unreadable(name, text))
    });
    fence.metadata(annotations.into())
}

/// `null` removes an annotation.
fn as_annotation(value: Option<&Value>) -> Value {
    match value {
        Some(Value::String(text)) if !text.is_empty() => text.as_str().into(),
        Some(Value::Number(number)) => number.to_string().into(),
        _ => Value::Null,
    }
}

fn as_json(map: &BTreeMap<String, String>) -> Value {
    if map.is_empty() { Value::Null } else { json!(map).to_string().into() }
}

/// What Calico's node has and Kubernetes' does not.
pub(super) fn own_labels_and_annotations(
    node: &Resource,
) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let mut annotations = node.metadata.annotations.clone();
    let noted = annotations.remove(&format!("{PREFIX}kube-labels"));
    let of_kubernetes: BTreeMap<String, String> =
        noted.and_then(|noted| serde_json::from_str(&noted).ok()).unwrap_or_default();
    let mut labels = node.metadata.labels.clone();
    labels.retain(|name, value| of_kubernetes.get(name) != Some(value));
    (labels, annotations)
}

#[cfg(test)]
mod tests {
    use super::super::{Object, Shown, node, pod};
    use super::*;

    /// What a merge patch does to a map of annotations.
    fn patched(object: &Value, patch: &Value) -> Value {
        let mut object = object.clone();
        for (name, value) in patch["metadata"]["annotations"].as_object().unwrap() {
            let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
            match value {
                Value::Null => drop(annotations.remove(name)),
                value => drop(annotations.insert(name.clone(), value.clone())),
            }
        }
        object
    }

    fn endpoint(pod: &Value) -> Resource {
        let object = Object::new(Shown::Pod, pod.as_object().unwrap());
        pod::endpoint(&object, &DevicePrefixes::default()).unwrap()
    }

    fn a_pod() -> Value {
        json!({
            "metadata": {"name": "web-0", "namespace": "shop", "uid": "u-1", "annotations": {
                POD_IP: "10.0.0.9/32", POD_IPS: "10.0.0.9/32,fd00::9/128", CONTAINER_ID: "c0ffee",
                "kubernetes.io/egress-bandwidth": "2M",
            }},
            "spec": {"nodeName": "node-a"},
            "status": {"phase": "Running"},
        })
    }

    #[test]
    fn a_written_endpoint_reads_the_same_and_a_removed_one_has_no_address() {
        let mut written = endpoint(&a_pod());
        assert_eq!(written.spec("qosControls"), Some(&json!({"egressBandwidth": 2_000_000})));
        for (field, value) in [
            ("mac", json!("02:00:00:00:00:09")),
            ("interfaceName", json!("cali0123456789a")),
            ("containerID", json!("beef")),
            ("ipNetworks", json!(["10.0.0.8/32"])),
        ] {
            written.spec_mut().insert(field.to_owned(), value);
        }
        let patch = endpoint_patch(&written, Fence::Uid("u-1"), &DevicePrefixes::default());
        assert_eq!(patch["metadata"]["uid"], "u-1");
        assert_eq!(patch["metadata"].get("resourceVersion"), None, "no read is spent on it");
        let after = patched(&a_pod(), &patch);
        assert_eq!(endpoint(&after).body, written.body);

        let removed = endpoint(&patched(&after, &endpoint_removal_patch(Fence::Revision("78"))));
        assert_eq!(removed.spec("ipNetworks"), None);
        assert_eq!((removed.spec("containerID"), removed.spec("mac")), (None, None), "no sandbox has it");
    }

    #[test]
    fn a_noted_device_counts_only_if_it_can_be_a_pods() {
        for (noted, counts) in
            [("cali0123456789a", true), ("eth0", false), ("cali/../../x", false), ("", false)]
        {
            let mut pod = a_pod();
            pod["metadata"]["annotations"][DEVICE] = noted.into();
            assert_eq!(endpoint(&pod).spec("interfaceName").unwrap() == noted, counts, "{noted}");
        }
    }

    /// Felix's setting names devices, and not everybody who reads the pod has it.
    #[test]
    fn devices_are_named_by_the_configured_prefix() {
        let name = |pod: &Value, setting: &str| {
            let object = Object::new(Shown::Pod, pod.as_object().unwrap());
            let endpoint = pod::endpoint(&object, &DevicePrefixes::configured(setting)).unwrap();
            endpoint.spec("interfaceName").unwrap().as_str().unwrap().to_owned()
        };
        let hash = name(&a_pod(), "").strip_prefix("cali").unwrap().to_owned();
        for (setting, expected) in [
            ("", "cali"),
            ("tap", "tap"),
            (" tap , cali", "tap"),
            (",", "cali"),
            ("much-too-long-for-it", "cali"),
        ] {
            assert_eq!(name(&a_pod(), setting), format!("{expected}{hash}"), "{setting:?}");
        }
        let noted = |device: &str| {
            let mut pod = a_pod();
            pod["metadata"]["annotations"][DEVICE] = device.into();
            pod
        };
        let own = format!("tap{hash}");
        assert_eq!(name(&noted(&own), ""), own, "the hash is this pod's");
        assert_eq!(name(&noted("tap0123456789a"), "tap"), "tap0123456789a");
        assert_eq!(name(&noted("tap0123456789a"), ""), format!("cali{hash}"), "it may be anybody's");
        assert_eq!(name(&noted("cali0123456789a"), "tap"), "cali0123456789a", "made before the setting was");

        let mut written = endpoint(&a_pod());
        for (device, setting, is_noted) in [
            (own.clone(), "tap", true),
            (format!("cali{hash}"), "tap", true),
            (format!("cali{hash}"), "cali", false),
        ] {
            written.spec_mut().insert("interfaceName".to_owned(), json!(device));
            let patch = endpoint_patch(&written, Fence::Uid("u-1"), &DevicePrefixes::configured(setting));
            assert_eq!(patch["metadata"]["annotations"][DEVICE].is_string(), is_noted, "{device} {setting}");
            assert_eq!(name(&patched(&a_pod(), &patch), setting), device);
        }
    }

    #[test]
    fn a_written_node_changes_calicos_annotations_and_reads_the_same() {
        let object = json!({"metadata": {"name": "node-a", "labels": {"rack": "a"}, "annotations": {
            "projectcalico.org/IPv4Address": "172.30.0.1/24",
            "projectcalico.org/ASNumber": "64513",
            "projectcalico.org/IPv4VXLANTunnelAddr": "10.0.0.1",
            "projectcalico.org/labels": r#"{"own":"yes"}"#,
            "projectcalico.org/annotations": r#"{"note":"kept"}"#,
            "somebody.example/else": "stays",
        }}});
        let read = |object: &Value| node::node(&Object::new(Shown::Node, object.as_object().unwrap()));
        let mut written = read(&object);
        written.spec_mut().remove("ipv4VXLANTunnelAddr");
        written.spec_mut().insert("ipv6VXLANTunnelAddr".to_owned(), "fd00::1".into());
        written.metadata.labels.insert("own".to_owned(), "changed".to_owned());
        let patch = node_patch(&written, &BTreeMap::new(), Fence::Revision("5"));
        assert_eq!(patch["metadata"]["resourceVersion"], "5");
        let after = patched(&object, &patch);
        let annotations = after["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations["somebody.example/else"], "stays");
        assert_eq!(annotations.get("projectcalico.org/IPv4VXLANTunnelAddr"), None);
        assert_eq!(annotations["projectcalico.org/labels"], r#"{"own":"changed"}"#);
        let again = read(&after);
        assert_eq!((&again.body, &again.metadata), (&written.body, &written.metadata));
    }

    #[test]
    fn what_cannot_be_read_of_a_node_stays() {
        let odd = [
            ("IPv4Address", "later-form:1"),
            ("ASNumber", "many"),
            ("IPv4VXLANTunnelAddr", "10.0.0"),
            ("Interfaces", "[{"),
            ("labels", "own=yes"),
            ("annotations", "{\"note\":1}"),
        ];
        let odd: BTreeMap<String, String> =
            odd.map(|(name, text)| (format!("{PREFIX}{name}"), text.to_owned())).into();
        let mut annotations = odd.clone();
        annotations.insert(format!("{PREFIX}IPv6Address"), "fd00::1/64".to_owned());
        let object = json!({"metadata": {"name": "node-a", "annotations": annotations}});
        let mut written = node::node(&Object::new(Shown::Node, object.as_object().unwrap()));
        written.spec_mut().insert("ipv4VXLANTunnelAddr".to_owned(), "10.0.0.1".into());
        written.spec_mut()["bgp"].as_object_mut().unwrap().remove("ipv6Address");
        let after = patched(&object, &node_patch(&written, &annotations, Fence::Revision("5")));
        let mut expected = odd;
        expected.insert(format!("{PREFIX}IPv4VXLANTunnelAddr"), "10.0.0.1".to_owned());
        assert_eq!(after["metadata"]["annotations"], json!(expected));
    }
}
