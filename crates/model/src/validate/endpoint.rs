//! WorkloadEndpoint and HostEndpoint: rules over several fields.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use super::{Report, formats, shorten};
use crate::Resource;
use crate::names::EndpointName;
use crate::path::FieldPath;

fn spec(field: &str) -> FieldPath {
    FieldPath::root().key("spec").key(field)
}

pub(super) fn check_workload(endpoint: &Resource, report: &mut Report) {
    check_name(endpoint, report);
    check_nats(endpoint, report);
    check_ports(endpoint, report);
}

/// The name is part of the key that other tools compute from the spec, so it must be the one they compute.
fn check_name(endpoint: &Resource, report: &mut Report) {
    match EndpointName::of_spec(endpoint).compute() {
        Ok(name) if endpoint.metadata.name == name || endpoint.metadata.name.is_empty() => {}
        Ok(name) => {
            let path = FieldPath::root().key("metadata").key("name");
            let rule = format!("must be {name}, as the spec says");
            report.broken(&path, shorten(&endpoint.metadata.name), rule);
        }
        Err(error) => {
            let path = spec(error.field().unwrap_or("node"));
            let value = endpoint.spec(error.field().unwrap_or("node")).and_then(Value::as_str);
            let rule = match value {
                None | Some("") => "must be set: the endpoint is named by it",
                Some(_) => "must not begin or end with '-': the endpoint is named by it",
            };
            report.broken(&path, shorten(value.unwrap_or_default()), rule);
        }
    }
}

fn check_nats(endpoint: &Resource, report: &mut Report) {
    let texts = endpoint.spec("ipNetworks").and_then(Value::as_array).into_iter().flatten();
    let networks: Vec<IpNet> = texts.filter_map(Value::as_str).filter_map(formats::parse_network).collect();
    let nats = endpoint.spec("ipNATs").and_then(Value::as_array).into_iter().flatten();
    for (index, nat) in nats.enumerate() {
        let address =
            |field| nat.get(field).and_then(Value::as_str).and_then(|text| text.parse::<IpAddr>().ok());
        let (internal, external) = (address("internalIP"), address("externalIP"));
        let path = spec("ipNATs").index(index);
        if let Some(internal) = internal.filter(|ip| !networks.iter().any(|net| net.contains(ip))) {
            report.broken(
                &path.key("internalIP"),
                internal.to_string(),
                "must be one of the endpoint's ipNetworks",
            );
        }
        if let (Some(internal), Some(external)) = (internal, external)
            && internal.is_ipv4() != external.is_ipv4()
        {
            report.broken(
                &path.key("externalIP"),
                external.to_string(),
                "must be of the same IP version as internalIP",
            );
        }
    }
}

fn check_ports(endpoint: &Resource, report: &mut Report) {
    let ports = endpoint.spec("ports").and_then(Value::as_array).into_iter().flatten();
    for (index, port) in ports.enumerate() {
        let is_named = port.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
        let is_mapped = port.get("hostPort").and_then(Value::as_u64).is_some_and(|port| port != 0);
        if !is_named && !is_mapped {
            let path = spec("ports").index(index).key("name");
            report.broken(&path, "", "must be set if there is no hostPort");
        }
    }
}

pub(super) fn check_host(endpoint: &Resource, report: &mut Report) {
    let has_interface =
        endpoint.spec("interfaceName").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    let has_addresses =
        endpoint.spec("expectedIPs").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if !has_interface && !has_addresses {
        report.broken(&spec("interfaceName"), "", "must be set if expectedIPs is empty");
    }
}
