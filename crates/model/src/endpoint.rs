//! What an endpoint record says of an attachment.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::Mac;

/// Whom a record is for, and what that has.
#[derive(Clone, Copy, Debug)]
pub struct EndpointSpec<'a> {
    pub node: &'a str,
    pub namespace: &'a str,
    /// `k8s` for pods, `cni` for other containers.
    pub orchestrator: &'a str,
    /// The pod's name, or the container's ID.
    pub workload: &'a str,
    pub container_id: &'a str,
    /// Inside the sandbox.
    pub interface: &'a str,
    pub addresses: &'a [IpAddr],
    /// On the node.
    pub device: &'a str,
    pub mac: Option<Mac>,
}

/// The `spec` of the record.
pub fn endpoint_spec(of: &EndpointSpec<'_>) -> Value {
    let mut spec = json!({
        "orchestrator": of.orchestrator,
        "node": of.node,
        "containerID": of.container_id,
        "endpoint": of.interface,
        "ipNetworks": endpoint_networks(of.addresses),
        "interfaceName": of.device,
    });
    if let Some(mac) = of.mac {
        spec["mac"] = mac.to_string().into();
    }
    if of.orchestrator == "k8s" {
        spec["pod"] = of.workload.into();
        spec["profiles"] = json!([format!("kns.{}", of.namespace)]);
    }
    spec
}

/// Addresses as a record lists them: networks of one address each.
pub fn endpoint_networks(addresses: &[IpAddr]) -> Vec<String> {
    let length = |address: &IpAddr| if address.is_ipv4() { 32 } else { 128 };
    addresses.iter().map(|address| format!("{address}/{}", length(address))).collect()
}
