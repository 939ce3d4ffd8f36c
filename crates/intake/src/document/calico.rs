//! Calico's own objects: v3, the custom resources, those of 2017, and values of its etcd keys.

use model::ipam::IpamConfig;
use model::kube::{self, Layout};
use model::{Key, Kind, Resource};
use serde_json::{Map, Value, json};

use crate::draft::Draft;
use crate::tables;
use evidence::{Endpoint, Origin, Sighted};

use super::crd;

/// Takes in an object. `false`: it is none of Calico's.
pub(super) fn object(value: &Value, origin: &Origin, draft: &mut Draft) -> bool {
    let (api, kind) =
        (value["apiVersion"].as_str().unwrap_or_default(), value["kind"].as_str().unwrap_or_default());
    match api {
        "projectcalico.org/v3" | "crd.projectcalico.org/v1" => {
            let is_custom = api == "crd.projectcalico.org/v1";
            draft.has_custom_resources |= is_custom;
            if crd::record(kind, value, origin, draft) {
                return true;
            }
            let Some(kind) = Kind::from_manifest(kind) else { return false };
            is_custom && custom(kind, value, origin, draft) || resource(kind, value, origin, draft)
        }
        "v1" => object_of_2017(kind, value, origin, draft),
        _ if kind == "NodeEvidence" => node_evidence(value, draft),
        _ => false,
    }
}

/// A value of Calico's etcd layout, under its key.
pub(super) fn stored(key: &Key, value: &Value, origin: Origin, draft: &mut Draft) -> bool {
    match key {
        Key::Resource { kind, .. } => resource(*kind, value, &origin, draft),
        Key::IpamConfig => {
            let Ok(config) = IpamConfig::decode(value.to_string().as_bytes()) else { return false };
            draft.ipam().config = Some(Sighted::new(config, origin));
            true
        }
        Key::Block(_) | Key::Handle(_) | Key::Affinity { .. } => {
            draft.ipam().add(key.clone(), value.to_string().as_bytes(), origin);
            true
        }
    }
}

/// A custom resource keeps the metadata of the v3 API in an annotation. `false`: it is not as Calico writes it.
fn custom(kind: Kind, value: &Value, origin: &Origin, draft: &mut Draft) -> bool {
    let Some(document) = value.as_object() else { return false };
    let Ok(decoded) = kube::decode(Layout::V1, kind, document.clone()) else { return false };
    let Ok(resource) = Resource::decode(&decoded.key, kind, &decoded.value, "") else { return false };
    add(resource, origin, draft);
    true
}

fn resource(kind: Kind, value: &Value, origin: &Origin, draft: &mut Draft) -> bool {
    let Some(resource) = read(kind, value) else { return false };
    add(resource, origin, draft);
    true
}

fn read(kind: Kind, value: &Value) -> Option<Resource> {
    let mut body: Map<String, Value> = value.as_object()?.clone();
    body.remove("apiVersion");
    body.remove("kind");
    let metadata = serde_json::from_value(body.remove("metadata")?).ok()?;
    Some(Resource { kind, metadata, body })
}

fn add(resource: Resource, origin: &Origin, draft: &mut Draft) {
    if resource.kind == Kind::WorkloadEndpoint {
        let endpoint = Endpoint::of_resource(&resource);
        draft.cluster.endpoints.get_or_insert_default().push(Sighted::new(endpoint, origin.clone()));
    } else {
        draft.cluster.records.add(Sighted::new(resource, origin.clone()));
    }
}

/// `calicoctl` before v3: the same words in lower case, names in other places.
fn object_of_2017(kind: &str, value: &Value, origin: &Origin, draft: &mut Draft) -> bool {
    let (metadata, spec) = (&value["metadata"], &value["spec"]);
    match kind {
        "workloadEndpoint" => {
            let part = |field: &str| metadata[field].as_str().unwrap_or_default();
            let mut endpoint =
                tables::endpoint_of_2017(part("node"), part("orchestrator"), part("workload"), part("name"));
            endpoint.device = spec["interfaceName"].as_str().map(str::to_owned);
            endpoint.read_mac(spec["mac"].as_str().map(str::to_owned));
            endpoint.read_networks(spec.get("ipNetworks"));
            draft.cluster.endpoints.get_or_insert_default().push(Sighted::new(endpoint, origin.clone()));
        }
        "node" => add(named(Kind::Node, metadata["name"].as_str(), spec.clone()), origin, draft),
        "ipPool" => {
            let cidr = metadata["cidr"].as_str().unwrap_or_default();
            let name = cidr.replace(['.', ':', '/'], "-");
            let ipip = &spec["ipip"];
            let mode = match (ipip["enabled"].as_bool(), ipip["mode"].as_str()) {
                (Some(true), Some("cross-subnet")) => "CrossSubnet",
                (Some(true), _) => "Always",
                _ => "Never",
            };
            let spec = json!({"cidr": cidr, "ipipMode": mode, "natOutgoing": spec["nat-outgoing"] == true,
                "disabled": spec["disabled"] == true});
            add(named(Kind::IpPool, Some(&name), spec), origin, draft);
        }
        "bgpPeer" => {
            let spec =
                json!({"peerIP": metadata["peerIP"], "node": metadata["node"], "asNumber": spec["asNumber"]});
            add(named(Kind::BgpPeer, metadata["peerIP"].as_str(), spec), origin, draft);
        }
        "policy" | "profile" | "hostEndpoint" => {}
        _ => return false,
    }
    true
}

fn named(kind: Kind, name: Option<&str>, spec: Value) -> Resource {
    let mut resource = Resource::new(kind, name.unwrap_or_default());
    resource.body.insert("spec".to_owned(), spec);
    resource
}

/// What an agent tells about its node.
fn node_evidence(value: &Value, draft: &mut Draft) -> bool {
    let Ok(node) = serde_json::from_value::<evidence::NodeEvidence>(value["node"].clone()) else {
        return false;
    };
    let name = Some(node.name.clone()).filter(|name| !name.is_empty());
    draft.nodes.entry(name).or_insert_with(|| evidence::NodeEvidence::new(&node.name)).absorb(node);
    true
}
