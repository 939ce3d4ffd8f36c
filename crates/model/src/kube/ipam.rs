//! IPAM's records: field by field between the value of the etcd layout and the spec of the custom resource.

use serde_json::{Map, Value, json};

use super::{
    DecodeError, EncodeError, Layout, OF_CUSTOM_RESOURCE, Place, affinity_labels, affinity_name,
    insert_unless_empty, names, object, take_map, take_map_if_any,
};
use crate::{AffinityOwner, Cidr, Key, Kind};

/// Settings: what the etcd layout calls a field, and what the custom resource does.
const SETTINGS: [(&str, &str); 2] =
    [("strict_affinity", "strictAffinity"), ("auto_allocate_blocks", "autoAllocateBlocks")];
/// What of the metadata is worth keeping: the rest is the server's, or ours to compute.
const KEPT: [&str; 4] = ["annotations", "finalizers", "labels", "ownerReferences"];
/// What Calico writes there, and nobody reads.
const METADATA_ANNOTATION: &str = "projectcalico.org/metadata";

pub(super) fn encode(
    layout: Layout,
    key: &Key,
    place: &Place,
    value: &[u8],
) -> Result<Map<String, Value>, EncodeError> {
    // Very old releases wrote affinities without any value.
    let mut spec = if value.is_empty() { Map::new() } else { object(key, value)? };
    let mut metadata = take_map(key, &mut spec, OF_CUSTOM_RESOURCE)?;
    metadata.insert("name".into(), place.name.clone().into());
    match key {
        Key::Block(cidr) => encode_block(cidr, &mut spec),
        Key::Affinity { owner, block } => {
            let mut labels = take_map(key, &mut metadata, "labels")?;
            for (label, text) in affinity_labels(owner, block.version()) {
                labels.insert(label.into(), text.into());
            }
            metadata.insert("labels".into(), Value::Object(labels));
            encode_affinity(layout, owner, block, &mut spec);
        }
        Key::Handle(id) => {
            spec.insert("handleID".into(), id.as_str().into());
            absent_or_null(&mut spec, "block", || json!({}));
        }
        Key::IpamConfig => {
            for (in_etcd, in_spec) in SETTINGS {
                let setting = spec.remove(in_etcd).filter(|value| !value.is_null());
                spec.insert(in_spec.into(), setting.unwrap_or(Value::Bool(false)));
            }
        }
        Key::Resource { .. } => return Err(EncodeError::NoPlace { key: key.clone() }),
    }
    let mut document = Map::new();
    document.insert("metadata".into(), Value::Object(metadata));
    document.insert("spec".into(), Value::Object(spec));
    Ok(document)
}

fn encode_block(cidr: &Cidr, spec: &mut Map<String, Value>) {
    spec.insert("cidr".into(), cidr.to_string().into());
    let old_form = spec.remove("hostAffinity");
    if spec.get("affinity").is_none_or(Value::is_null) {
        spec.remove("affinity");
        if let Some(host) = old_form.as_ref().and_then(Value::as_str) {
            spec.insert("affinity".into(), format!("host:{host}").into());
        }
    }
    rename(spec, "affinity_claim_time", "affinityClaimTime");
    for list in ["allocations", "unallocated", "attributes"] {
        absent_or_null(spec, list, || json!([]));
    }
    // A dead field that Calico's schema still demands.
    absent_or_null(spec, "strictAffinity", || Value::Bool(false));
}

fn encode_affinity(layout: Layout, owner: &AffinityOwner, block: &Cidr, spec: &mut Map<String, Value>) {
    spec.insert("node".into(), owner.name().into());
    spec.insert("type".into(), owner.type_word().into());
    spec.insert("cidr".into(), block.to_string().into());
    absent_or_null(spec, "state", || "confirmed".into());
    let deleted = spec.get("deleted").is_some_and(is_true);
    spec.insert(
        "deleted".into(),
        match layout {
            Layout::V1 => deleted.to_string().into(),
            Layout::V3 => deleted.into(),
        },
    );
}

pub(super) fn is_tombstone(kind: Kind, document: &Map<String, Value>) -> bool {
    let is_marked_first = matches!(kind, Kind::IpamBlock | Kind::BlockAffinity | Kind::IpamHandle);
    let mark = document.get("spec").and_then(|spec| spec.get("deleted"));
    is_marked_first && mark.is_some_and(is_true)
}

fn is_true(mark: &Value) -> bool {
    mark == &Value::Bool(true) || mark.as_str() == Some("true")
}

/// The key of the record that a custom resource says it holds.
pub(super) fn key(kind: Kind, name: &str, document: &Map<String, Value>) -> Result<Key, DecodeError> {
    let missing = |field| DecodeError::Field { kind, name: name.to_owned(), field };
    let network = || network(document).ok_or_else(|| missing("spec.cidr"));
    Ok(match kind {
        Kind::IpamBlock => Key::Block(network()?),
        Kind::BlockAffinity => {
            let block = network()?;
            let owner = owner(document).ok_or_else(|| missing("spec.node or spec.type"))?;
            Key::Affinity { owner, block }
        }
        Kind::IpamHandle => match spec_text(document, "handleID") {
            "" => Key::Handle(name.into()),
            id => Key::Handle(id.into()),
        },
        _ => Key::IpamConfig,
    })
}

/// The key of the record that belongs under this name, whatever the custom resource says of itself. `None` if it cannot be told.
pub(super) fn key_of_name(kind: Kind, name: &str, document: &Map<String, Value>) -> Option<Key> {
    Some(match kind {
        Kind::IpamBlock => Key::Block(names::network_of_name(name)?),
        Kind::BlockAffinity => affinity_of_name(name, document)?,
        Kind::IpamHandle => Key::Handle(name.into()),
        _ => Key::IpamConfig,
    })
}

/// Node and network stand in the name, and where the one ends is told by the other alone.
fn affinity_of_name(name: &str, document: &Map<String, Value>) -> Option<Key> {
    let node = spec_text(document, "node");
    let (node, block) = match network(document) {
        Some(block) if node.is_empty() => {
            let node = name.strip_suffix(&names::network_name(&block))?.strip_suffix('-')?;
            (Some(node).filter(|node| !node.is_empty())?, block)
        }
        Some(block) if affinity_name(node, &block) == name => (node, block),
        _ => (node, names::network_of_name(name.strip_prefix(node)?.strip_prefix('-')?)?),
    };
    let owner = owner_of(spec_text(document, "type"), node.to_owned());
    Some(Key::Affinity { owner: owner.unwrap_or_else(|| AffinityOwner::Host(node.to_owned())), block })
}

pub(super) fn decode(
    key: &Key,
    metadata: Map<String, Value>,
    mut document: Map<String, Value>,
) -> Map<String, Value> {
    let mut spec = take_map_if_any(&mut document, "spec");
    match key {
        Key::Block(_) => decode_block(&mut spec),
        Key::Affinity { .. } => {
            for field in ["cidr", "node", "type"] {
                spec.remove(field);
            }
            let deleted = spec.get("deleted").is_some_and(is_true);
            spec.insert("deleted".into(), deleted.into());
        }
        Key::Handle(_) => {
            spec.remove("handleID");
            spec.entry("deleted").or_insert(Value::Bool(false));
        }
        Key::IpamConfig | Key::Resource { .. } => {
            for (in_etcd, in_spec) in SETTINGS {
                rename(&mut spec, in_spec, in_etcd);
            }
        }
    }
    insert_unless_empty(&mut spec, OF_CUSTOM_RESOURCE, worth_keeping(key, metadata));
    spec
}

fn decode_block(spec: &mut Map<String, Value>) {
    rename(spec, "affinityClaimTime", "affinity_claim_time");
    spec.entry("affinity").or_insert(Value::Null);
    spec.entry("deleted").or_insert(Value::Bool(false));
    if spec.get("strictAffinity") == Some(&Value::Bool(false)) {
        spec.remove("strictAffinity");
    }
}

fn network(document: &Map<String, Value>) -> Option<Cidr> {
    Cidr::parse_masked(spec_text(document, "cidr")).ok()
}

fn owner(document: &Map<String, Value>) -> Option<AffinityOwner> {
    let name = Some(spec_text(document, "node")).filter(|name| !name.is_empty())?;
    owner_of(spec_text(document, "type"), name.to_owned())
}

fn owner_of(word: &str, name: String) -> Option<AffinityOwner> {
    // Releases that knew only nodes wrote no type.
    match word {
        "" | "host" => Some(AffinityOwner::Host(name)),
        "virtual" => Some(AffinityOwner::Virtual(name)),
        _ => None,
    }
}

fn spec_text<'d>(document: &'d Map<String, Value>, field: &str) -> &'d str {
    let spec = document.get("spec").and_then(|spec| spec.get(field));
    spec.and_then(Value::as_str).unwrap_or_default()
}

fn worth_keeping(key: &Key, mut metadata: Map<String, Value>) -> Map<String, Value> {
    metadata.retain(|field, _| KEPT.contains(&field.as_str()));
    for (field, ours) in [("annotations", vec![METADATA_ANNOTATION]), ("labels", our_labels(key))] {
        let mut map = take_map_if_any(&mut metadata, field);
        map.retain(|name, _| !ours.contains(&name.as_str()));
        insert_unless_empty(&mut metadata, field, map);
    }
    metadata
}

fn our_labels(key: &Key) -> Vec<&'static str> {
    match key {
        Key::Affinity { owner, block } => {
            affinity_labels(owner, block.version()).map(|(label, _)| label).to_vec()
        }
        _ => Vec::new(),
    }
}

fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.remove(from).filter(|value| !value.is_null()) {
        map.insert(to.to_owned(), value);
    }
}

fn absent_or_null(map: &mut Map<String, Value>, field: &str, default: impl FnOnce() -> Value) {
    if map.get(field).is_none_or(Value::is_null) {
        map.insert(field.to_owned(), default());
    }
}
