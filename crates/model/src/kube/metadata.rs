//! Resources of the v3 API: where their metadata goes.
//!
//! On `projectcalico.org/v3` it is the custom resource's own. On `crd.projectcalico.org/v1` Calico keeps it in an annotation:
//! there two APIs show the same object, and what is set through the one must not act on the other.

use serde_json::{Map, Value, json};

use super::{
    DecodeError, EncodeError, Layout, OF_CUSTOM_RESOURCE, Place, convert_uid, insert_unless_empty, take_map,
    take_map_if_any,
};
use crate::resource::POLICY_NAME_ANNOTATION;
use crate::{Key, Kind};

/// The same name, for another purpose: the whole metadata on v1 resources, the name alone in values of policies.
const METADATA_ANNOTATION: &str = POLICY_NAME_ANNOTATION;
const V1_API: &str = "crd.projectcalico.org/v1";
const V3_API: &str = crate::resource::API_VERSION;
const OF_SERVER: [&str; 4] = ["resourceVersion", "selfLink", "managedFields", "generation"];
/// What only the API server sets, and shows.
const TIMES: [&str; 3] = ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];
/// What acts on the object that carries it.
const ACTING: [&str; 2] = ["finalizers", "ownerReferences"];

pub(super) fn encode(
    layout: Layout,
    key: &Key,
    place: &Place,
    mut body: Map<String, Value>,
) -> Result<Map<String, Value>, EncodeError> {
    let mut metadata = take_map(key, &mut body, "metadata")?;
    for field in OF_SERVER {
        metadata.remove(field);
    }
    metadata.remove("namespace");
    let mut annotations = take_map(key, &mut metadata, "annotations")?;
    annotations.remove(METADATA_ANNOTATION);
    insert_unless_empty(&mut metadata, "annotations", annotations);
    let mut encoded = match layout {
        Layout::V1 => encode_v1(key, place, metadata)?,
        Layout::V3 => {
            for field in TIMES {
                metadata.remove(field);
            }
            metadata
        }
    };
    encoded.insert("name".into(), place.name.clone().into());
    if let Some(namespace) = &place.namespace {
        encoded.insert("namespace".into(), namespace.clone().into());
    }
    body.insert("metadata".into(), Value::Object(encoded));
    Ok(body)
}

fn encode_v1(
    key: &Key,
    place: &Place,
    mut metadata: Map<String, Value>,
) -> Result<Map<String, Value>, EncodeError> {
    let mut own = take_map(key, &mut metadata, OF_CUSTOM_RESOURCE)?;
    if !place.kind.is_tiered() {
        metadata.remove("name");
    }
    if let Some(uid) = metadata.remove("uid").as_ref().and_then(Value::as_str) {
        own.insert("uid".into(), convert_uid(uid).into());
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(field);
    }
    convert_owners(&mut metadata, &[V3_API], V1_API);
    let [labels, mut annotations] = ["labels", "annotations"].map(|field| ours(metadata.get(field)));
    let kept = Value::Object(metadata).to_string();
    annotations.insert(METADATA_ANNOTATION.into(), kept.into());
    insert_unless_empty(&mut own, "labels", labels);
    insert_unless_empty(&mut own, "annotations", annotations);
    Ok(own)
}

/// Calico's own labels and annotations stand on the custom resource, too: those who look at it go by them.
fn ours(map: Option<&Value>) -> Map<String, Value> {
    let is_ours = |name: &str| name.contains("projectcalico.org/") || name.contains("operator.tigera.io/");
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries.filter(|(name, _)| is_ours(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn convert_owners(metadata: &mut Map<String, Value>, from: &[&str], to: &str) {
    let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
        if !owner.get("apiVersion").and_then(Value::as_str).is_some_and(|api| from.contains(&api)) {
            continue;
        }
        owner.insert("apiVersion".into(), to.into());
        if let Some(uid) = owner.get("uid").and_then(Value::as_str).map(convert_uid) {
            owner.insert("uid".into(), uid.into());
        }
    }
}

/// The key of a custom resource.
pub(super) fn key(kind: Kind, name: &str, metadata: &Map<String, Value>) -> Result<Key, DecodeError> {
    let namespace = metadata.get("namespace").and_then(Value::as_str);
    match (kind.is_namespaced(), namespace) {
        (true, Some(namespace)) => Ok(Key::namespaced(kind, namespace, name)),
        (false, None) => Ok(Key::cluster(kind, name)),
        _ => Err(DecodeError::Field { kind, name: name.to_owned(), field: "metadata.namespace" }),
    }
}

/// What the annotation keeps of the metadata of the v3 API.
pub(super) fn kept(
    layout: Layout,
    kind: Kind,
    name: &str,
    metadata: &Map<String, Value>,
) -> Result<Map<String, Value>, DecodeError> {
    let annotation = metadata.get("annotations").and_then(|map| map.get(METADATA_ANNOTATION));
    match (layout, annotation.and_then(Value::as_str)) {
        (Layout::V3, _) | (Layout::V1, None) => Ok(Map::new()),
        (Layout::V1, Some(text)) => serde_json::from_str(text).map_err(|source| DecodeError::Annotation {
            kind,
            name: name.to_owned(),
            source,
        }),
    }
}

pub(super) fn decode(
    layout: Layout,
    kind: Kind,
    name: &str,
    metadata: Map<String, Value>,
    kept: Map<String, Value>,
    mut body: Map<String, Value>,
) -> Map<String, Value> {
    let (mut metadata, policy_name) = match layout {
        Layout::V1 => decode_v1(name, metadata, kept),
        Layout::V3 => (metadata, Some(name.to_owned())),
    };
    if let (true, Some(policy_name)) = (kind.is_tiered(), policy_name) {
        let mut annotations = take_map_if_any(&mut metadata, "annotations");
        annotations.insert(POLICY_NAME_ANNOTATION.into(), json!({ "name": policy_name }).to_string().into());
        metadata.insert("annotations".into(), Value::Object(annotations));
    }
    body.insert("apiVersion".into(), crate::resource::API_VERSION.into());
    body.insert("kind".into(), kind.name().into());
    body.insert("metadata".into(), Value::Object(metadata));
    body
}

/// The metadata of the v3 API, and the name that the annotation gives, if it gives one.
fn decode_v1(
    name: &str,
    mut own: Map<String, Value>,
    mut kept: Map<String, Value>,
) -> (Map<String, Value>, Option<String>) {
    let mut annotations = take_map_if_any(&mut own, "annotations");
    annotations.remove(METADATA_ANNOTATION);
    kept.retain(|_, value| !value.is_null());
    let given_name = kept.remove("name").as_ref().and_then(Value::as_str).map(str::to_owned);
    let given_name = given_name.filter(|given| !given.is_empty());
    // What releases before v3.31 set on the custom resource itself lies beneath what the annotation says.
    let mut labels = take_map_if_any(&mut own, "labels");
    labels.append(&mut take_map_if_any(&mut kept, "labels"));
    annotations.append(&mut take_map_if_any(&mut kept, "annotations"));
    insert_unless_empty(&mut kept, "labels", labels);
    insert_unless_empty(&mut kept, "annotations", annotations);
    // Releases that did not convert UIDs yet wrote the custom resource's under the name of the v3 API.
    convert_owners(&mut kept, &[V1_API, V3_API], V3_API);

    kept.insert("name".into(), given_name.clone().unwrap_or_else(|| name.to_owned()).into());
    if let Some(uid) = own.remove("uid").as_ref().and_then(Value::as_str) {
        kept.insert("uid".into(), convert_uid(uid).into());
    }
    if let Some(namespace) = own.remove("namespace") {
        kept.insert("namespace".into(), namespace);
    }
    for field in TIMES {
        if let Some(time) = own.remove(field) {
            kept.entry(field).or_insert(time);
        }
    }
    let acting: Map<String, Value> =
        ACTING.into_iter().filter_map(|field| Some((field.to_owned(), own.remove(field)?))).collect();
    insert_unless_empty(&mut kept, OF_CUSTOM_RESOURCE, acting);
    for (field, value) in own {
        kept.entry(field).or_insert(value);
    }
    (kept, given_name)
}
