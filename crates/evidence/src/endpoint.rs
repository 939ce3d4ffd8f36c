//! Workload endpoints, of the API of 2017 (v1) and of today (v3), as one type.
//!
//! Slim, because a cluster has very many: what no check looks at is left behind.

use jiff::Timestamp;
use std::net::IpAddr;

use ipnet::IpNet;
use model::names::EndpointName;
use model::originals::Named;
use model::{Mac, NodeName, Resource};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::PodName;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    pub api: EndpointApi,
    /// v3: the record's namespace. v1: the first part of the workload, if it is a pod's.
    pub namespace: Option<String>,
    /// The pod's own, where a record cannot have it as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_namespace: Option<String>,
    /// The record's name in v3; the workload (`namespace.pod`) in v1.
    pub name: String,
    /// `k8s` for pods.
    pub orchestrator: String,
    /// The pod's bare name.
    pub pod: Option<String>,
    pub node: Option<NodeName>,
    /// Inside the pod: `eth0`.
    pub interface: Option<String>,
    /// On the node: `cali…`.
    pub device: Option<String>,
    pub mac: Option<Mac>,
    /// The sandbox. v1 and old v3 records do not name it.
    pub container_id: Option<String>,
    pub addresses: Vec<IpAddr>,
    pub created_at: Option<Timestamp>,
    /// Fields that could not be understood, as `field value`.
    pub unread: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointApi {
    V1,
    #[default]
    V3,
}

impl Endpoint {
    /// Reads a v3 record. Whatever is odd about it is noted, never refused.
    pub fn of_resource(resource: &Resource) -> Endpoint {
        let text = |field: &str| {
            resource.spec(field).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        // As the caller of the plugin named it, where the record has something in its place.
        let original = |named: Named| named.original(resource).map(str::to_owned);
        let name = &resource.metadata.name;
        let parts = name.parse::<EndpointName>().ok();
        let part = |choose: fn(&EndpointName) -> &String| parts.as_ref().map(|parts| choose(parts).clone());
        let mut endpoint = Endpoint {
            api: EndpointApi::V3,
            namespace: resource.metadata.namespace.clone(),
            name: name.clone(),
            orchestrator: text("orchestrator")
                .or_else(|| part(|parts| &parts.orchestrator))
                .unwrap_or_default(),
            pod: original(Named::Pod).or_else(|| part(|parts| &parts.workload)),
            node: text("node").or_else(|| part(|parts| &parts.node)).map(NodeName::from),
            interface: original(Named::Interface).or_else(|| part(|parts| &parts.endpoint)),
            device: text("interfaceName"),
            container_id: original(Named::ContainerId),
            pod_namespace: original(Named::Namespace)
                .filter(|own| Some(own) != resource.metadata.namespace.as_ref()),
            created_at: resource.metadata.creation_timestamp.as_deref().and_then(|text| text.parse().ok()),
            ..Endpoint::default()
        };
        endpoint.read_mac(text("mac"));
        endpoint.read_networks(resource.spec("ipNetworks"));
        endpoint
    }

    /// What it is called in sentences: its pod, or else the record.
    pub fn pod_name(&self) -> Option<PodName> {
        let name = self.pod.clone()?;
        Some(PodName { namespace: self.namespace_of_pod().cloned(), name })
    }

    fn namespace_of_pod(&self) -> Option<&String> {
        self.pod_namespace.as_ref().or(self.namespace.as_ref())
    }

    /// Whether it may be this pod's: a namespace that is not known fits any.
    pub fn may_be_of(&self, pod: &PodName) -> bool {
        let namespaces = self.namespace_of_pod().zip(pod.namespace.as_ref());
        let differs = namespaces.is_some_and(|(own, other)| own != other);
        self.pod.as_deref() == Some(&pod.name) && !differs
    }

    /// Takes in the text of a hardware address.
    pub fn read_mac(&mut self, text: Option<String>) {
        let Some(text) = text else { return };
        match text.parse() {
            Ok(mac) => self.mac = Some(mac),
            Err(_) => self.unread.push(format!("mac {text:?}")),
        }
    }

    /// Whether it has addresses that nobody can read: it may use any.
    pub fn has_unread_addresses(&self) -> bool {
        self.unread.iter().any(|what| what.starts_with(NETWORKS))
    }

    /// Takes in `ipNetworks`: a list of single addresses, written as networks or bare.
    pub fn read_networks(&mut self, networks: Option<&Value>) {
        let networks = match networks {
            None | Some(Value::Null) => &[],
            Some(Value::Array(networks)) => networks.as_slice(),
            Some(other) => std::slice::from_ref(other),
        };
        for network in networks {
            match network.as_str().and_then(single_address) {
                Some(address) => self.addresses.push(address),
                None => self.unread.push(format!("{NETWORKS} {network}")),
            }
        }
    }
}

const NETWORKS: &str = "ipNetworks";

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) if self.api == EndpointApi::V3 => write!(f, "{namespace}/{}", self.name),
            _ => f.write_str(&self.name),
        }
    }
}

/// Endpoints hold single addresses, written as networks: `10.0.0.1/32`.
pub fn single_address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let net: IpNet = text.parse().ok()?;
    (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())
}

#[cfg(test)]
mod tests {
    use model::Kind;
    use serde_json::json;

    use super::*;

    fn read(name: &str, spec: Value) -> Endpoint {
        let mut resource = Resource::new(Kind::WorkloadEndpoint, name);
        resource.metadata.namespace = Some("default".to_owned());
        resource.body.insert("spec".to_owned(), spec);
        Endpoint::of_resource(&resource)
    }

    #[test]
    fn the_spec_speaks_and_the_name_stands_in() {
        let full = json!({"orchestrator": "k8s", "node": "n", "pod": "p", "endpoint": "eth0", "containerID": "c",
            "interfaceName": "cali1", "mac": "EE:ee:ee:ee:ee:01", "ipNetworks": ["10.0.0.1/32", "fd00::1"],
            "profiles": ["kns.default"]});
        let endpoint = read("n-k8s-p-eth0", full);
        assert_eq!(endpoint.pod_name(), Some(PodName::new("default", "p")));
        assert_eq!(endpoint.addresses.len(), 2);
        assert_eq!(endpoint.mac.unwrap().to_string(), "ee:ee:ee:ee:ee:01");
        let bare = read("node--a-k8s-web--0-eth0", json!({}));
        assert_eq!((bare.node, bare.pod.as_deref()), (Some("node-a".into()), Some("web-0")));
        assert_eq!((bare.interface.as_deref(), bare.container_id), (Some("eth0"), None));
    }

    #[test]
    fn what_cannot_be_read_is_noted() {
        let odd = read("x", json!({"ipNetworks": ["10.0.0.0/24", 7, "10.0.0.300/32"], "mac": "zz"}));
        assert_eq!(
            odd.unread,
            ["mac \"zz\"", "ipNetworks \"10.0.0.0/24\"", "ipNetworks 7", "ipNetworks \"10.0.0.300/32\""]
        );
        assert_eq!(read("x", json!({"ipNetworks": "10.0.0.0/24"})).unread.len(), 1);
        assert!(read("x", json!({"ipNetworks": null})).unread.is_empty());
    }
}
