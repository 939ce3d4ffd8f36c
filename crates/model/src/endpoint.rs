//! What an endpoint record says of an attachment.

use std::borrow::Cow;
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

/// Whether two values of an endpoint's record describe the same attachment: one sandbox, with the same addresses and devices.
/// What others write into the record (labels, ports) may differ.
pub fn is_same_attachment(one: &[u8], other: &[u8]) -> bool {
    match (attachment(one), attachment(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Whether a record has no sandbox, as a pod that is not attached to the network shows it where endpoints are views of pods. The kubelet
/// may still report the addresses of the last sandbox: then the container ID is empty, and there is no device. One with addresses and a
/// device may be anybody's: old releases of Calico wrote no container ID.
pub fn is_detached(value: &[u8]) -> bool {
    attachment(value).is_some_and(|[sandbox, networks, device, _]| {
        let is_empty = |value: &Value| match value {
            Value::Array(list) => list.is_empty(),
            Value::String(text) => text.is_empty(),
            other => other.is_null(),
        };
        is_empty(&sandbox) && (is_empty(&networks) || sandbox.is_string() && device.is_null())
    })
}

/// The record of a pod as its attachment has it: without the addresses that the kubelet still reports for a sandbox that is gone.
pub fn as_attached(value: &[u8]) -> Cow<'_, [u8]> {
    const EMPTY: &[u8] = br#""containerID":"""#;
    // Most have a sandbox, and need not be read for this.
    if !value.windows(EMPTY.len()).any(|part| part == EMPTY) || !is_detached(value) {
        return Cow::Borrowed(value);
    }
    let Ok(mut record) = serde_json::from_slice::<Value>(value) else { return Cow::Borrowed(value) };
    if let Some(spec) = record.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("containerID");
        spec.remove("ipNetworks");
    }
    Cow::Owned(record.to_string().into_bytes())
}

fn attachment(value: &[u8]) -> Option<[Value; 4]> {
    let mut value: Value = serde_json::from_slice(value).ok()?;
    let spec = value.get_mut("spec")?.as_object_mut()?;
    Some(
        ["containerID", "ipNetworks", "interfaceName", "mac"]
            .map(|field| spec.remove(field).unwrap_or_default()),
    )
}

/// Addresses as a record lists them: networks of one address each.
pub fn endpoint_networks(addresses: &[IpAddr]) -> Vec<String> {
    let length = |address: &IpAddr| if address.is_ipv4() { 32 } else { 128 };
    addresses.iter().map(|address| format!("{address}/{}", length(address))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_is_recognised_whatever_else_the_record_says() {
        let written = br#"{"spec":{"containerID":"a","ipNetworks":["10.0.0.1/32"],"interfaceName":"cali1","mac":"02:00:00:00:00:01"}}"#;
        let read = br#"{"metadata":{"labels":{"x":"y"}},"spec":{"containerID":"a","ipNetworks":["10.0.0.1/32"],"interfaceName":"cali1","mac":"02:00:00:00:00:01","ports":[]}}"#;
        let other = br#"{"spec":{"containerID":"b","ipNetworks":["10.0.0.1/32"],"interfaceName":"cali1","mac":"02:00:00:00:00:01"}}"#;
        assert!(is_same_attachment(written, read) && !is_same_attachment(written, other));
        assert!(!is_same_attachment(b"", b"") && !is_detached(b"{}") && !is_detached(written));
        assert!(is_detached(br#"{"spec":{"node":"n","ipNetworks":[]}}"#));
        assert!(!is_detached(br#"{"spec":{"ipNetworks":["10.0.0.1/32"]}}"#), "it may be anybody's");
        let reported = br#"{"spec":{"containerID":"","ipNetworks":["10.0.0.1/32"],"node":"n"}}"#;
        assert!(is_detached(reported));
        assert_eq!(*as_attached(reported), *br#"{"spec":{"node":"n"}}"#);
        let old =
            br#"{"spec":{"containerID":"","ipNetworks":["10.0.0.1/32"],"interfaceName":"cali1"}}"#.as_slice();
        assert!(!is_detached(old), "as old releases of Calico wrote it");
        for other in [
            &br#"{"spec":{"containerID":"c","ipNetworks":["10.0.0.1/32"]}}"#[..],
            old,
            br#""containerID":"""#,
        ] {
            assert_eq!(*as_attached(other), *other);
        }
    }
}
