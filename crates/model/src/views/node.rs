//! Kubernetes Nodes as Calico's Nodes: Calico's fields are annotations.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{metadata_of, set, text, texts};
use crate::validate::formats;
use crate::{Kind, Resource};

const PREFIX: &str = "projectcalico.org/";
/// Labels and annotations that only Calico's Node has, as JSON maps.
const CALICO_LABELS: &str = "projectcalico.org/labels";
const CALICO_ANNOTATIONS: &str = "projectcalico.org/annotations";
/// In Calico's Node: which of its labels are Kubernetes', so that a write can leave them out again.
const KUBE_LABELS: &str = "projectcalico.org/kube-labels";
const INTERFACES: &str = "projectcalico.org/Interfaces";

/// Where a field of Calico's Node stands in Kubernetes' one.
struct Row {
    annotation: &'static str,
    /// In the record, from the top.
    field: &'static [&'static str],
    /// The value, out of the annotation's text; one that cannot be read is passed over.
    read: fn(&str) -> Option<Value>,
}

/// A field that is a text in both, if it holds to a rule.
macro_rules! row {
    ($annotation:literal, $field:expr, $rule:path) => {
        Row { annotation: $annotation, field: &$field, read: |text| $rule(text).is_ok().then(|| text.into()) }
    };
}

/// Every field that a write sets or removes, with [`INTERFACES`], [`CALICO_LABELS`] and [`CALICO_ANNOTATIONS`].
static ROWS: [Row; 13] = [
    row!("IPv4Address", ["spec", "bgp", "ipv4Address"], formats::cidr_or_ip_v4),
    row!("IPv6Address", ["spec", "bgp", "ipv6Address"], formats::cidr_or_ip_v6),
    Row {
        annotation: "ASNumber",
        field: &["spec", "bgp", "asNumber"],
        read: |text| formats::parse_as_number(text).map(Value::from),
    },
    row!("RouteReflectorClusterID", ["spec", "bgp", "routeReflectorClusterID"], formats::ip_v4),
    row!("IPv4IPIPTunnelAddr", ["spec", "bgp", "ipv4IPIPTunnelAddr"], formats::ip_v4),
    row!("IPv4VXLANTunnelAddr", ["spec", "ipv4VXLANTunnelAddr"], formats::ip_v4),
    row!("IPv6VXLANTunnelAddr", ["spec", "ipv6VXLANTunnelAddr"], formats::ip_v6),
    row!("VXLANTunnelMACAddr", ["spec", "vxlanTunnelMACAddr"], formats::mac),
    row!("VXLANTunnelMACAddrV6", ["spec", "vxlanTunnelMACAddrV6"], formats::mac),
    row!("IPv4WireguardInterfaceAddr", ["spec", "wireguard", "interfaceIPv4Address"], formats::ip_v4),
    row!("IPv6WireguardInterfaceAddr", ["spec", "wireguard", "interfaceIPv6Address"], formats::ip_v6),
    row!("WireguardPublicKey", ["status", "wireguardPublicKey"], formats::wireguard_key),
    row!("WireguardPublicKeyV6", ["status", "wireguardPublicKeyV6"], formats::wireguard_key),
];

/// Calico's Node, out of Kubernetes' one.
pub fn node_of_kubernetes(object: &Value) -> Resource {
    let name = text(&object["metadata"], "name");
    let annotations = texts(&object["metadata"]["annotations"]);
    let mut node = Resource::new(Kind::Node, "");
    node.metadata = metadata_of(object, name.to_owned());
    set_labels(&mut node, object, &annotations);
    for row in &ROWS {
        let noted = annotations.get(&format!("{PREFIX}{}", row.annotation));
        if let Some(value) = noted.filter(|noted| !noted.is_empty()).and_then(|noted| (row.read)(noted)) {
            set_at(&mut node.body, row.field, value);
        }
    }
    let interfaces: Option<Value> =
        annotations.get(INTERFACES).and_then(|noted| serde_json::from_str(noted).ok());
    let addresses = addresses(&node, object);
    let spec = node.spec_mut();
    set(spec, "interfaces", interfaces.filter(Value::is_array));
    set(spec, "orchRefs", json!([{"nodeName": name, "orchestrator": "k8s"}]));
    set(spec, "addresses", addresses);
    let pod_cidrs = &object["spec"]["podCIDRs"];
    let one_cidr = Some(text(&object["spec"], "podCIDR")).filter(|cidr| !cidr.is_empty());
    let pod_cidrs = if pod_cidrs.is_array() {
        pod_cidrs.clone()
    } else {
        json!(one_cidr.into_iter().collect::<Vec<_>>())
    };
    if pod_cidrs != json!([]) {
        set_at(&mut node.body, &["status", "podCIDRs"], pod_cidrs);
    }
    node
}

/// Kubernetes' labels, over those that only Calico's Node has.
fn set_labels(node: &mut Resource, object: &Value, annotations: &BTreeMap<String, String>) {
    let map = |name| annotations.get(name).and_then(|noted| serde_json::from_str::<Value>(noted).ok());
    let of_kubernetes = texts(&object["metadata"]["labels"]);
    node.metadata.labels = map(CALICO_LABELS).map(|labels| texts(&labels)).unwrap_or_default();
    node.metadata.labels.extend(of_kubernetes.clone());
    node.metadata.annotations = map(CALICO_ANNOTATIONS).map(|noted| texts(&noted)).unwrap_or_default();
    let labels = serde_json::to_string(&of_kubernetes).unwrap_or_default();
    node.metadata.annotations.insert(KUBE_LABELS.to_owned(), labels);
}

/// The addresses that Calico uses, then those that Kubernetes reports.
fn addresses(node: &Resource, object: &Value) -> Vec<Value> {
    let bgp = node.spec("bgp").cloned().unwrap_or_default();
    let own = ["ipv4Address", "ipv6Address"].into_iter().filter_map(|field| bgp.get(field).cloned());
    let own = own.map(|address| json!({"address": address, "type": "CalicoNodeIP"}));
    let reported = object["status"]["addresses"].as_array().into_iter().flatten();
    let reported = reported.filter(|entry| matches!(text(entry, "type"), "InternalIP" | "ExternalIP"));
    own.chain(reported.map(|entry| json!({"address": entry["address"], "type": entry["type"]}))).collect()
}

fn set_at(body: &mut Map<String, Value>, path: &[&str], value: Value) {
    let [first, rest @ ..] = path else { return };
    if rest.is_empty() {
        body.insert((*first).to_owned(), value);
        return;
    }
    let inner = body.entry((*first).to_owned()).or_insert_with(|| json!({}));
    if let Some(inner) = inner.as_object_mut() {
        set_at(inner, rest, value);
    }
}

/// The merge patch of a Kubernetes Node's status by which Calico's Node is written: our annotations and nothing else. With
/// the version that the record was read at, so that a Node which has changed since refuses it.
pub fn node_patch(node: &Resource) -> Value {
    let mut annotations = Map::new();
    for row in &ROWS {
        let mut steps = row.field.iter();
        let found = steps.next().and_then(|first| node.body.get(*first));
        let found = steps.fold(found, |value, field| value?.get(*field));
        annotations.insert(format!("{PREFIX}{}", row.annotation), as_annotation(found));
    }
    let interfaces =
        node.spec("interfaces").filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
    annotations.insert(INTERFACES.to_owned(), interfaces.map(Value::to_string).into());
    let (labels, own) = own_labels_and_annotations(node);
    annotations.insert(CALICO_LABELS.to_owned(), as_json(&labels));
    annotations.insert(CALICO_ANNOTATIONS.to_owned(), as_json(&own));
    let mut metadata = Map::new();
    set(&mut metadata, "uid", node.metadata.uid.as_deref());
    set(&mut metadata, "resourceVersion", node.metadata.resource_version.as_deref());
    metadata.insert("annotations".to_owned(), Value::Object(annotations));
    json!({"metadata": metadata})
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
    match map.is_empty() {
        true => Value::Null,
        false => serde_json::to_string(map).unwrap_or_default().into(),
    }
}

/// What Calico's Node has and Kubernetes' one does not.
fn own_labels_and_annotations(node: &Resource) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let mut annotations = node.metadata.annotations.clone();
    let of_kubernetes = annotations.remove(KUBE_LABELS).and_then(|noted| serde_json::from_str(&noted).ok());
    let of_kubernetes: BTreeMap<String, String> = of_kubernetes.unwrap_or_default();
    let mut labels = node.metadata.labels.clone();
    labels.retain(|name, value| of_kubernetes.get(name) != Some(value));
    (labels, annotations)
}
