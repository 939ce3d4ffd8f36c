//! A node of Kubernetes as Calico's: what Calico adds to it stands in annotations.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Object;
use crate::schema::Check;
use crate::validate::formats::{self, parse_as_number};
use crate::{Kind, Resource};

pub(super) const PREFIX: &str = "projectcalico.org/";
/// The type of an address that follows from `spec.bgp`.
pub(super) const CALICO_ADDRESS: &str = "CalicoNodeIP";

/// An annotation, the field it is, and what it must be to count.
pub(super) struct Annotated {
    pub(super) annotation: &'static str,
    pub(super) path: &'static [&'static str],
    check: Check,
}

const fn annotated(annotation: &'static str, path: &'static [&'static str], check: Check) -> Annotated {
    Annotated { annotation, path, check }
}

pub(super) const FIELDS: [Annotated; 13] = [
    annotated("IPv4Address", &["spec", "bgp", "ipv4Address"], formats::cidr_or_ip_v4),
    annotated("IPv6Address", &["spec", "bgp", "ipv6Address"], formats::cidr_or_ip_v6),
    annotated("RouteReflectorClusterID", &["spec", "bgp", "routeReflectorClusterID"], formats::ip_v4),
    annotated("IPv4IPIPTunnelAddr", &["spec", "bgp", "ipv4IPIPTunnelAddr"], formats::ip_v4),
    annotated("IPv4VXLANTunnelAddr", &["spec", "ipv4VXLANTunnelAddr"], formats::ip_v4),
    annotated("IPv6VXLANTunnelAddr", &["spec", "ipv6VXLANTunnelAddr"], formats::ip_v6),
    annotated("VXLANTunnelMACAddr", &["spec", "vxlanTunnelMACAddr"], formats::mac),
    annotated("VXLANTunnelMACAddrV6", &["spec", "vxlanTunnelMACAddrV6"], formats::mac),
    annotated("IPv4WireguardInterfaceAddr", &["spec", "wireguard", "interfaceIPv4Address"], formats::ip_v4),
    annotated("IPv6WireguardInterfaceAddr", &["spec", "wireguard", "interfaceIPv6Address"], formats::ip_v6),
    annotated("WireguardPublicKey", &["status", "wireguardPublicKey"], formats::wireguard_key),
    annotated("WireguardPublicKeyV6", &["status", "wireguardPublicKeyV6"], formats::wireguard_key),
    annotated("ASNumber", &["spec", "bgp", "asNumber"], as_number),
];

pub(super) fn node(node: &Object<'_>) -> Resource {
    let mut resource = node.record(Kind::Node, node.name().to_owned());
    let of_kubernetes: BTreeMap<String, String> =
        node.labels().map(|(name, value)| (name.clone(), value.to_owned())).collect();
    resource.metadata.labels = map_in(node, "labels");
    resource.metadata.annotations = map_in(node, "annotations");
    // So that a write can tell Calico's own labels from these.
    let shown = json!(of_kubernetes).to_string();
    resource.metadata.annotations.insert(format!("{PREFIX}kube-labels"), shown);
    resource.metadata.labels.extend(of_kubernetes);

    for field in &FIELDS {
        let text = node.annotation(&format!("{PREFIX}{}", field.annotation)).unwrap_or_default();
        if text.is_empty() || (field.check)(text).is_err() {
            continue;
        }
        let value = match field.path {
            [.., "asNumber"] => parse_as_number(text).map_or_else(|| text.into(), Value::from),
            _ => text.into(),
        };
        set(&mut resource.body, field.path, value);
    }
    let interfaces =
        node.annotation(&format!("{PREFIX}Interfaces")).and_then(|text| serde_json::from_str(text).ok());
    if let Some(interfaces @ Value::Array(_)) = interfaces {
        set(&mut resource.body, &["spec", "interfaces"], interfaces);
    }
    let reference = json!([{ "nodeName": node.name(), "orchestrator": "k8s" }]);
    set(&mut resource.body, &["spec", "orchRefs"], reference);
    let addresses = addresses(node, &resource);
    if !addresses.is_empty() {
        set(&mut resource.body, &["spec", "addresses"], addresses.into());
    }
    let pod_cidrs = node.list(&["spec", "podCIDRs"]);
    if !pod_cidrs.is_empty() {
        set(&mut resource.body, &["status", "podCIDRs"], json!(pod_cidrs));
    }
    resource
}

/// Whether an annotation says something that is in no record.
pub(super) fn is_unreadable(name: &str, text: &str) -> bool {
    let Some(annotation) = name.strip_prefix(PREFIX).filter(|_| !text.is_empty()) else { return false };
    match annotation {
        "labels" | "annotations" => serde_json::from_str::<BTreeMap<String, String>>(text).is_err(),
        "Interfaces" => serde_json::from_str::<Vec<Value>>(text).is_err(),
        _ => FIELDS.iter().any(|field| field.annotation == annotation && (field.check)(text).is_err()),
    }
}

/// The addresses that Calico uses, then those that Kubernetes knows.
fn addresses(node: &Object<'_>, resource: &Resource) -> Vec<Value> {
    let bgp = resource.spec("bgp");
    let of_calico = ["ipv4Address", "ipv6Address"]
        .into_iter()
        .filter_map(|field| bgp?.get(field)?.as_str())
        .map(|address| json!({ "address": address, "type": CALICO_ADDRESS }));
    let of_kubernetes = node.list(&["status", "addresses"]).iter().filter_map(|entry| {
        let (kind, address) = (entry.get("type")?.as_str()?, entry.get("address")?.as_str()?);
        matches!(kind, "InternalIP" | "ExternalIP").then(|| json!({ "address": address, "type": kind }))
    });
    of_calico.chain(of_kubernetes).collect()
}

/// A map that an annotation holds as JSON. One that cannot be read is as good as none.
fn map_in(node: &Object<'_>, annotation: &str) -> BTreeMap<String, String> {
    let text = node.annotation(&format!("{PREFIX}{annotation}"));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn as_number(text: &str) -> Result<(), String> {
    parse_as_number(text).map(drop).ok_or_else(|| format!("{text:?} is not an AS number"))
}

pub(super) fn set(body: &mut Map<String, Value>, path: &[&str], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut map = body;
    for parent in parents {
        let entry = map.entry(*parent).or_insert_with(|| json!({}));
        if !entry.is_object() {
            *entry = json!({});
        }
        let Value::Object(inner) = entry else { return };
        map = inner;
    }
    map.insert((*last).to_owned(), value);
}
