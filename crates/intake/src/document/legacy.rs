//! Values of etcd without their keys, and under the keys of 2017.

use model::{Cidr, Key};
use serde_json::Value;

use crate::draft::Draft;
use crate::tables;
use evidence::{Endpoint, Origin, Sighted};

/// The key of an endpoint of 2017: `/calico/v1/host/NODE/workload/k8s/NAMESPACE.POD/endpoint/eth0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointKey {
    node: String,
    orchestrator: String,
    workload: String,
    interface: String,
}

impl EndpointKey {
    pub(crate) fn read(text: &str) -> Option<EndpointKey> {
        let mut parts = text.strip_prefix("/calico/v1/host/")?.split('/');
        let mut next =
            || parts.next().filter(|part| !part.is_empty() && !part.contains(' ')).map(str::to_owned);
        let node = next()?;
        next().filter(|word| word == "workload")?;
        let (orchestrator, workload) = (next()?, next()?);
        next().filter(|word| word == "endpoint")?;
        Some(EndpointKey { node, orchestrator, workload, interface: next()? })
    }

    /// The endpoint that a value under this key describes.
    pub(super) fn endpoint(&self, value: &Value) -> Option<Endpoint> {
        value.get("ipv4_nets").or_else(|| value.get("ipv6_nets"))?;
        let mut endpoint =
            tables::endpoint_of_2017(&self.node, &self.orchestrator, &self.workload, &self.interface);
        endpoint.device = value["name"].as_str().map(str::to_owned);
        endpoint.read_mac(value["mac"].as_str().map(str::to_owned));
        endpoint.read_networks(value.get("ipv4_nets"));
        endpoint.read_networks(value.get("ipv6_nets"));
        Some(endpoint)
    }
}

pub(super) fn endpoint(key: &EndpointKey, value: &Value, origin: &Origin, draft: &mut Draft) -> bool {
    let Some(endpoint) = key.endpoint(value) else { return false };
    draft.cluster.endpoints.get_or_insert_default().push(Sighted::new(endpoint, origin.clone()));
    true
}

/// A block says itself which it is; other records do not.
pub(super) fn block(value: &Value, origin: &Origin, draft: &mut Draft) -> bool {
    if !(value["allocations"].is_array() && value["unallocated"].is_array()) {
        return false;
    }
    let Some(cidr) = value["cidr"].as_str().and_then(|text| Cidr::parse_masked(text).ok()) else {
        return false;
    };
    draft.ipam().add(Key::Block(cidr), value.to_string().as_bytes(), origin.clone());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_2017_name_the_endpoint() {
        let key = EndpointKey::read("/calico/v1/host/n1/workload/k8s/shop.web-0/endpoint/eth0").unwrap();
        let value = serde_json::json!({"state": "active", "name": "cali1", "mac": "aa:aa:aa:aa:aa:aa",
            "profile_ids": ["k8s_ns.shop"], "ipv4_nets": ["10.0.0.1/32"], "ipv6_nets": []});
        let endpoint = key.endpoint(&value).unwrap();
        assert_eq!(endpoint.pod_name().unwrap().to_string(), "shop/web-0");
        assert_eq!((endpoint.node, endpoint.device.as_deref()), (Some("n1".into()), Some("cali1")));
        assert_eq!(endpoint.addresses.len(), 1);
        for text in ["/calico/v1/host/n1/config/x", "/calico/v1/host/n1/workload/k8s/a.b/endpoint/", "x"] {
            assert_eq!(EndpointKey::read(text), None, "{text}");
        }
    }
}
