//! EndpointSlices: where the endpoints of a service are. Whether they are ready makes no difference to policy.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use super::fields::{At, shared};
use crate::ruleset::AddressPort;

const SERVICE_NAME: &str = "kubernetes.io/service-name";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Of the slice itself.
    pub(crate) name: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) service: Arc<str>,
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) ports: BTreeSet<AddressPort>,
}

/// None if it belongs to no service. What cannot be read in it is left out.
pub(crate) fn read_slice(object: &Value) -> Option<Slice> {
    let root = At::root(object);
    let metadata = root.field("metadata");
    let text = |at: At<'_>| at.word().ok().flatten().map(shared);
    let mut slice = Slice {
        name: text(metadata.field("name"))?,
        namespace: text(metadata.field("namespace"))?,
        service: text(metadata.field("labels").field(SERVICE_NAME))?,
        addresses: BTreeSet::new(),
        ports: BTreeSet::new(),
    };
    let list = |at: At<'_>| at.value().and_then(Value::as_array).cloned().unwrap_or_default();
    let ports: BTreeSet<(u8, u16)> = list(root.field("ports")).iter().filter_map(port).collect();
    // As in Calico, a slice without ports gives nothing, not even addresses.
    let endpoints = if ports.is_empty() { Vec::new() } else { list(root.field("endpoints")) };
    for endpoint in endpoints {
        let addresses = endpoint.get("addresses").and_then(Value::as_array).into_iter().flatten();
        for address in addresses.filter_map(|address| address.as_str()?.parse::<IpAddr>().ok()) {
            slice.addresses.insert(address);
            slice.ports.extend(ports.iter().map(|(protocol, port)| AddressPort {
                address,
                protocol: *protocol,
                port: *port,
            }));
        }
    }
    Some(slice)
}

fn port(port: &Value) -> Option<(u8, u16)> {
    let number = port.get("port")?.as_u64().and_then(|number| u16::try_from(number).ok())?;
    let protocol = match port.get("protocol").and_then(Value::as_str).unwrap_or("TCP") {
        "TCP" => 6,
        "UDP" => 17,
        "SCTP" => 132,
        _ => return None,
    };
    Some((protocol, number))
}
