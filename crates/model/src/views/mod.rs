//! Kubernetes' own objects as Calico's records: a cluster that keeps its records in the Kubernetes API has no others for
//! endpoints (pods), nodes (nodes) and profiles (namespaces and service accounts).
//!
//! An object goes in as the API server sends it, a record comes out. Where Calico writes such a record, this module says
//! which change of the object that is.

mod node;
mod pod;
mod profile;
mod qos;
#[cfg(test)]
mod tests;

pub use node::{node_of_kubernetes, node_patch};
pub use pod::{PodError, endpoint_of_pod, endpoint_patch, endpoint_removal_patch, is_endpoint};
pub use profile::{profile_of_namespace, profile_of_service_account};

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::Metadata;

/// The text of a field; empty if it is not there or no text.
fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object[field].as_str().unwrap_or_default()
}

/// A map of texts, such as labels. What is not a text is left out.
fn texts(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// What a record takes over from its object: when it was made, and as which version it was read.
fn metadata_of(object: &Value, name: String) -> Metadata {
    let own = &object["metadata"];
    let given = |field| Some(text(own, field)).filter(|text| !text.is_empty()).map(str::to_owned);
    Metadata {
        name,
        uid: given("uid"),
        resource_version: given("resourceVersion"),
        creation_timestamp: given("creationTimestamp"),
        ..Metadata::default()
    }
}

/// Adds a field, unless it is empty.
fn set(object: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    let value = value.into();
    let is_empty = match &value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    if !is_empty {
        object.insert(field.to_owned(), value);
    }
}
