//! What becomes of one record.

use serde_json::{Map, Value};

use super::{Altered, Attachment, Cluster, Destination, Origin, Why};
use crate::kube::views::{behind, node_onto};
use crate::kube::{self, Layout, OF_CUSTOM_RESOURCE, Place, is_custom_resource, place};
use crate::resource::POLICY_NAME_ANNOTATION;
use crate::validate::formats;
use crate::{Key, Kind, Resource};

/// The longest name that Kubernetes takes.
const LONGEST_NAME: usize = 253;
const OWNERS: &str = "ownerReferences";
const FINALIZERS: &str = "finalizers";

/// A record as it is written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Carried {
    /// `None`: its own.
    pub(super) key: Option<Key>,
    /// `None`: as it is.
    pub(super) value: Option<Vec<u8>>,
    pub(super) altered: Vec<Altered>,
}

pub(super) fn carry(from: Origin, to: &Destination, key: &Key, value: &[u8]) -> Result<Carried, Why> {
    if from == Origin::Kubernetes && is_without_address(key, value) {
        return Err(Why::NoAddress);
    }
    match to {
        Destination::Records => Ok(to_records(key, value)),
        Destination::Kubernetes(cluster) => to_kubernetes(cluster, key, value),
    }
}

fn is_without_address(key: &Key, value: &[u8]) -> bool {
    Attachment::read(key, value).is_some_and(|attachment| attachment.networks.is_empty())
}

fn to_records(key: &Key, value: &[u8]) -> Carried {
    let Key::Resource { kind, .. } = key else { return Carried::default() };
    // A value that cannot be read is carried byte by byte: whoever repairs it needs all of it.
    let Ok(mut body) = serde_json::from_slice::<Map<String, Value>>(value) else { return Carried::default() };
    let mut carried = Carried::default();
    let is_ended = end_deletion(*kind, &mut body, &mut carried.altered);
    if forget_empty_sandbox(*kind, &mut body) || is_ended {
        carried.value = Some(text(body));
    }
    if !is_custom_resource(*kind) {
        // Pods come and go, and nobody has to delete their endpoints again.
        carried.altered.clear();
    }
    carried
}

fn to_kubernetes(cluster: &Cluster, key: &Key, value: &[u8]) -> Result<Carried, Why> {
    let Some(place) = place(key) else { return to_view(cluster, key, value) };
    if cluster.unserved.contains(&place.kind) {
        return Err(Why::NotServed);
    }
    let mut carried = match key {
        Key::Resource { kind, .. } => of_resource(cluster.layout, *kind, key, value)?,
        _ => of_ipam(value)?,
    };
    let to_key = carried.key.as_ref().unwrap_or(key);
    let place = kube::place(to_key).unwrap_or(place);
    check_place(cluster, &place)?;
    let written = carried.value.as_deref().unwrap_or(value);
    let document = kube::encode(cluster.layout, to_key, written).map_err(|error| unreadable(&error))?;
    match kube::decode(cluster.layout, place.kind, document) {
        Ok(decoded) if decoded.is_tombstone => return Err(Why::Deleted),
        Ok(decoded) if decoded.key != *to_key => {
            return Err(Why::Unreadable { problem: format!("it says that it is {}", decoded.key) });
        }
        Ok(_) => {}
        Err(undecodable) => return Err(unreadable(&undecodable)),
    }
    carried.altered.extend(
        carried.key.iter().filter(|renamed| *renamed != key).map(|to| Altered::Renamed { to: to.clone() }),
    );
    Ok(carried)
}

fn unreadable(error: &dyn std::error::Error) -> Why {
    Why::Unreadable { problem: crate::text::on_one_line(error) }
}

fn check_place(cluster: &Cluster, place: &Place) -> Result<(), Why> {
    let refused = |rule: String| Why::NameRefused { name: place.name.clone(), rule };
    if place.name.len() > LONGEST_NAME {
        return Err(refused(format!(
            "has {} characters, and {LONGEST_NAME} are allowed",
            place.name.chars().count()
        )));
    }
    formats::name(&place.name).map_err(refused)?;
    match &place.namespace {
        Some(namespace) if !cluster.has_namespace(namespace) => {
            Err(Why::NoNamespace { namespace: namespace.clone() })
        }
        _ => Ok(()),
    }
}

/// Records that Kubernetes shows from its own objects, and keys that no resource has.
fn to_view(cluster: &Cluster, key: &Key, value: &[u8]) -> Result<Carried, Why> {
    let Key::Resource { kind, name, .. } = key else { return Err(Why::ReadByNobody) };
    match kind {
        Kind::WorkloadEndpoint => onto_pod(cluster, key, value),
        Kind::Profile if cluster.profiles.contains(name) => Err(Why::ShownByObject),
        Kind::Profile => Err(Why::NoObjectForProfile),
        Kind::Node => {
            let node = Resource::decode(key, *kind, value, "").map_err(|error| unreadable(&error))?;
            if let Some(other) = name_in_kubernetes(&node).filter(|other| other != name) {
                return Err(Why::OtherNodeName { name: other });
            }
            let there = cluster.nodes.get(name).ok_or(Why::NoNode)?;
            let onto = node_onto(&node, there);
            let lists = [Altered::NodeLabels(onto.labels), Altered::NodeFields(onto.unkept)];
            let altered = lists.into_iter().filter(|altered| {
                !matches!(altered, Altered::NodeLabels(list) | Altered::NodeFields(list) if list.is_empty())
            });
            Ok(Carried { key: None, value: Some(onto.node.encode()), altered: altered.collect() })
        }
        _ => Err(Why::ReadByNobody),
    }
}

/// Where Calico keeps its records in etcd, its plugin notes no sandbox on the pods. So a Pod learns it here, if it is certainly the one
/// that the record is about: it has the same addresses.
fn onto_pod(cluster: &Cluster, key: &Key, value: &[u8]) -> Result<Carried, Why> {
    if behind(key).is_none() {
        return Err(Why::NotOfAPod);
    }
    let there = cluster.endpoints.get(key).ok_or(Why::NoPod)?;
    let here = Attachment::read(key, value).unwrap_or_default();
    if there.networks.is_empty() {
        return Err(Why::NoAddress);
    }
    match here.networks == there.networks {
        true if here.has_sandbox && !there.has_sandbox => Ok(Carried::default()),
        true => Err(Why::ShownByPod),
        false => Err(Why::PodDiffers { addresses: there.networks.iter().cloned().collect() }),
    }
}

/// What Kubernetes calls a node that may have another name in Calico.
fn name_in_kubernetes(node: &Resource) -> Option<String> {
    let references = node.spec("orchRefs").and_then(Value::as_array)?;
    let of_kubernetes = references.iter().find(|reference| reference["orchestrator"] == "k8s")?;
    of_kubernetes["nodeName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

fn of_resource(layout: Layout, kind: Kind, key: &Key, value: &[u8]) -> Result<Carried, Why> {
    let mut body: Map<String, Value> = serde_json::from_slice(value).map_err(|error| unreadable(&error))?;
    let mut carried = Carried::default();
    let mut is_changed = end_deletion(kind, &mut body, &mut carried.altered);
    if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
        is_changed |= release(metadata, &mut carried.altered);
    }
    if kind.is_tiered() {
        is_changed |= keep_policy_name(layout, key, value, &mut body, &mut carried)?;
    }
    carried.value = is_changed.then(|| text(body));
    Ok(carried)
}

fn of_ipam(value: &[u8]) -> Result<Carried, Why> {
    let mut carried = Carried::default();
    // Very old releases wrote affinities without any value.
    if value.is_empty() {
        return Ok(carried);
    }
    let mut body: Map<String, Value> = serde_json::from_slice(value).map_err(|error| unreadable(&error))?;
    carried.value = release(&mut body, &mut carried.altered).then(|| text(body));
    Ok(carried)
}

/// Removes the marks of a deletion that the source's API server was asked for; whether there were any.
fn end_deletion(kind: Kind, body: &mut Map<String, Value>, altered: &mut Vec<Altered>) -> bool {
    let Some(Value::Object(metadata)) = body.get_mut("metadata") else { return false };
    metadata.remove("deletionGracePeriodSeconds");
    if metadata.remove("deletionTimestamp").is_none_or(|time| time.is_null()) {
        return false;
    }
    let disables_pool = kind == Kind::IpPool;
    if let (true, Some(Value::Object(spec))) = (disables_pool, body.get_mut("spec")) {
        spec.insert("disabled".to_owned(), true.into());
    }
    altered.push(Altered::Deletion { disables_pool });
    true
}

/// Removes what a pod shows whose sandbox is gone: a record of its own that has such a container ID would count as nobody's.
fn forget_empty_sandbox(kind: Kind, body: &mut Map<String, Value>) -> bool {
    let Some(Value::Object(spec)) = body.get_mut("spec").filter(|_| kind == Kind::WorkloadEndpoint) else {
        return false;
    };
    let is_empty = spec.get("containerID").and_then(Value::as_str) == Some("");
    is_empty && spec.remove("containerID").is_some()
}

/// Removes what acts on the object that carries it, here or on the custom resource it came from; whether there was any.
fn release(map: &mut Map<String, Value>, altered: &mut Vec<Altered>) -> bool {
    let (mut owners, mut finalizers) = (Vec::new(), Vec::new());
    let mut is_changed = take_acting(map, &mut owners, &mut finalizers);
    if let Some(Value::Object(own)) = map.get_mut(OF_CUSTOM_RESOURCE) {
        is_changed |= take_acting(own, &mut owners, &mut finalizers);
        if own.is_empty() {
            map.remove(OF_CUSTOM_RESOURCE);
        }
    }
    for (list, what) in [(owners, Altered::Owners as fn(_) -> _), (finalizers, Altered::Finalizers)] {
        altered.extend((!list.is_empty()).then(|| what(list)));
    }
    is_changed
}

fn take_acting(map: &mut Map<String, Value>, owners: &mut Vec<String>, finalizers: &mut Vec<String>) -> bool {
    let (taken_owners, taken_finalizers) = (map.remove(OWNERS), map.remove(FINALIZERS));
    for owner in taken_owners.iter().filter_map(Value::as_array).flatten() {
        let word = |field: &str| owner[field].as_str().unwrap_or("?").to_owned();
        owners.push(format!("{} {}", word("kind"), word("name")));
    }
    let listed = taken_finalizers.iter().filter_map(Value::as_array).flatten();
    finalizers.extend(listed.filter_map(Value::as_str).map(str::to_owned));
    taken_owners.is_some() || taken_finalizers.is_some()
}

/// Lets a policy keep the name that operators know. Old releases stored `default.NAME` and showed NAME. Their custom resources of the
/// v1 group do the same; those of the v3 group are shown by the name they have.
fn keep_policy_name(
    layout: Layout,
    key: &Key,
    value: &[u8],
    body: &mut Map<String, Value>,
    carried: &mut Carried,
) -> Result<bool, Why> {
    let Key::Resource { kind, namespace, name } = key else { return Ok(false) };
    let policy = Resource::decode(key, *kind, value, "").map_err(|error| unreadable(&error))?;
    let shown = Some(policy.metadata.name).filter(|shown| !shown.is_empty()).unwrap_or_else(|| name.clone());
    if layout == Layout::V3 {
        let renamed = (shown != *name).then(|| Key::Resource {
            kind: *kind,
            namespace: namespace.clone(),
            name: shown.clone(),
        });
        carried.key = renamed;
    }
    let Some(Value::Object(metadata)) = body.get_mut("metadata") else { return Ok(false) };
    if metadata.get("name").and_then(Value::as_str).is_none_or(|stored| stored == shown) {
        return Ok(false);
    }
    let is_named = metadata.get("annotations").is_some_and(|map| map.get(POLICY_NAME_ANNOTATION).is_some());
    match is_named || layout == Layout::V3 {
        true => drop(metadata.insert("name".to_owned(), shown.into())),
        false => drop(metadata.remove("name")),
    }
    Ok(true)
}

fn text(body: Map<String, Value>) -> Vec<u8> {
    serde_json::to_vec(&body).expect("a JSON value can always be written")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn that_a_pods_sandbox_is_gone_is_not_carried() {
        let key = Key::namespaced(Kind::WorkloadEndpoint, "shop", "a-k8s-web-eth0");
        let value = json!({ "spec": { "containerID": "", "ipNetworks": ["10.0.0.1/32"] } }).to_string();
        let carried = carry(Origin::Kubernetes, &Destination::Records, &key, value.as_bytes())
            .expect("it has an address");
        let carried: Value = serde_json::from_slice(&carried.value.expect("it is another")).unwrap();
        assert_eq!(carried, json!({ "spec": { "ipNetworks": ["10.0.0.1/32"] } }));
    }
}
