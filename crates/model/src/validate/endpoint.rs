//! WorkloadEndpoint and HostEndpoint: rules over several fields.

use std::net::IpAddr;

use ipnet::IpNet;

use super::fields::Fields;
use super::{Report, formats, shorten};
use crate::Resource;
use crate::names::{EndpointName, EndpointNameError};
use crate::path::FieldPath;

pub(super) fn check_workload(endpoint: &Resource, report: &mut Report) {
    let spec = Fields::of_spec(endpoint);
    check_name(endpoint, &spec, report);
    check_nats(&spec, report);
    check_ports(&spec, report);
}

/// The name is part of the key that other tools compute from the spec, so it must be the one they compute.
fn check_name(endpoint: &Resource, spec: &Fields<'_>, report: &mut Report) {
    match EndpointName::of_spec(endpoint).compute() {
        Ok(name) if endpoint.metadata.name == name || endpoint.metadata.name.is_empty() => {}
        Ok(name) => {
            let path = FieldPath::root().key("metadata").key("name");
            let rule = format!("must be {name}, according to the spec");
            report.broken(&path, shorten(&endpoint.metadata.name), rule);
        }
        Err(EndpointNameError::Missing { field }) => {
            report.broken(&spec.path(field), "", "must be set: it is part of the endpoint's name");
        }
        // The schema has already said that such a field is no name.
        Err(_) => {}
    }
}

fn check_nats(spec: &Fields<'_>, report: &mut Report) {
    let networks: Vec<IpNet> = spec.texts("ipNetworks").filter_map(formats::parse_network).collect();
    for nat in spec.objects("ipNATs") {
        let address = |field| nat.text(field).parse::<IpAddr>().ok();
        let (internal, external) = (address("internalIP"), address("externalIP"));
        if let Some(internal) = internal.filter(|ip| !networks.iter().any(|net| net.contains(ip))) {
            let rule = "must be one of the endpoint's ipNetworks";
            report.broken(&nat.path("internalIP"), internal.to_string(), rule);
        }
        if let (Some(internal), Some(external)) = (internal, external)
            && internal.is_ipv4() != external.is_ipv4()
        {
            let rule = "must be of the same IP version as internalIP";
            report.broken(&nat.path("externalIP"), external.to_string(), rule);
        }
    }
}

fn check_ports(spec: &Fields<'_>, report: &mut Report) {
    for port in spec.objects("ports") {
        if !port.has("name") && !port.has("hostPort") {
            report.broken(&port.path("name"), "", "must be set if there is no hostPort");
        }
    }
}

pub(super) fn check_host(endpoint: &Resource, report: &mut Report) {
    let spec = Fields::of_spec(endpoint);
    if !spec.has("interfaceName") && !spec.has("expectedIPs") {
        report.broken(&spec.path("interfaceName"), "", "must be set if expectedIPs is empty");
    }
}
