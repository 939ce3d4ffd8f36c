//! BGPConfiguration, BGPPeer, BGPFilter: rules over several fields.

use serde_json::Value;

use super::fields::Fields;
use super::{Report, formats, shown};
use crate::Resource;

/// What only makes sense for the whole cluster.
const DEFAULT_ONLY: [&str; 7] = [
    "nodeToNodeMeshEnabled",
    "asNumber",
    "serviceLoadBalancerIPs",
    "serviceExternalIPs",
    "serviceClusterIPs",
    "nodeMeshPassword",
    "nodeMeshMaxRestartTime",
];

pub(super) fn check_configuration(configuration: &Resource, report: &mut Report) {
    let spec = Fields::of_spec(configuration);
    if configuration.metadata.name != "default" {
        for field in DEFAULT_ONLY {
            let empty_list = spec.value(field).and_then(Value::as_array).is_some_and(Vec::is_empty);
            if let Some(value) = spec.value(field).filter(|_| !empty_list) {
                let rule = "can only be set on the BGPConfiguration named default";
                report.broken(&spec.path(field), shown(value), rule);
            }
        }
    }
    if spec.value("nodeToNodeMeshEnabled") == Some(&Value::Bool(false)) {
        for field in ["nodeMeshPassword", "nodeMeshMaxRestartTime"] {
            if spec.value(field).is_some() {
                report.broken(&spec.path(field), "", "must not be set while nodeToNodeMeshEnabled is false");
            }
        }
    }
    if spec.has("communities") && !spec.has("prefixAdvertisements") {
        report.broken(
            &spec.path("communities"),
            "",
            "must not be set without prefixAdvertisements that use them",
        );
    }
    check_advertised_communities(&spec, report);
}

fn check_advertised_communities(spec: &Fields<'_>, report: &mut Report) {
    let defined: Vec<&str> = spec.objects("communities").map(|community| community.text("name")).collect();
    for advertisement in spec.objects("prefixAdvertisements") {
        for (path, item) in advertisement.items("communities") {
            let text = item.as_str().unwrap_or_default();
            if formats::community(text).is_err() && !defined.contains(&text) {
                let rule = "must be a community such as 65001:100, or the name of one in communities";
                report.broken(&path, shown(item), rule);
            }
        }
    }
}

/// Pairs of fields that exclude each other: the second may not be set beside the first.
const PEER_EXCLUSIONS: [(&str, &str); 6] = [
    ("node", "nodeSelector"),
    ("peerIP", "peerSelector"),
    ("peerSelector", "asNumber"),
    ("localWorkloadSelector", "peerIP"),
    ("localWorkloadSelector", "peerSelector"),
    ("keepOriginalNextHop", "nextHopMode"),
];

pub(super) fn check_peer(peer: &Resource, report: &mut Report) {
    let spec = Fields::of_spec(peer);
    for (first, second) in PEER_EXCLUSIONS {
        if spec.has(first)
            && let Some(value) = spec.value(second).filter(|_| spec.has(second))
        {
            report.broken(&spec.path(second), shown(value), format!("must not be set together with {first}"));
        }
    }
    if spec.has("localWorkloadSelector") && !spec.has("asNumber") {
        report.broken(&spec.path("asNumber"), "", "must be set together with localWorkloadSelector");
    }
    if spec.has("reachableBy") && !spec.has("peerIP") {
        report.broken(&spec.path("reachableBy"), spec.text("reachableBy"), "must not be set without peerIP");
    }
    let gateway = spec.text("reachableBy").parse().ok();
    let address = formats::parse_ip_with_port(spec.text("peerIP")).map(|(address, _)| address);
    if let (Some(gateway), Some(address)) = (gateway, address)
        && std::net::IpAddr::is_ipv4(&gateway) != address.is_ipv4()
    {
        let rule = "must be of the same IP version as peerIP";
        report.broken(&spec.path("reachableBy"), gateway.to_string(), rule);
    }
}

pub(super) fn check_filter(filter: &Resource, report: &mut Report) {
    let spec = Fields::of_spec(filter);
    for direction in ["exportV4", "importV4", "exportV6", "importV6"] {
        for rule in spec.objects(direction) {
            check_filter_rule(&rule, report);
        }
    }
}

fn check_filter_rule(rule: &Fields<'_>, report: &mut Report) {
    if rule.has("cidr") && !rule.has("matchOperator") {
        report.broken(&rule.path("matchOperator"), "", "must be set together with cidr");
    }
    if rule.has("matchOperator") && !rule.has("cidr") {
        report.broken(&rule.path("cidr"), "", "must be set together with matchOperator");
    }
    if rule.object("prefixLength").exists() && !rule.has("cidr") {
        report.broken(&rule.path("prefixLength"), "", "must not be set without cidr");
    }
    if rule.has("operations") && rule.text("action") != "Accept" {
        report.broken(&rule.path("operations"), "", "must not be set unless action is Accept");
    }
    for operation in rule.objects("operations") {
        let count = operation.set_fields().count();
        if count != 1 {
            let rule = format!("must contain exactly one operation, not {count}");
            report.broken(operation.own_path(), "", rule);
        }
    }
}
