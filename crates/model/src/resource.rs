//! One record of Calico's v3 API, with every field kept, known or not.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::{Key, Kind};

pub const API_VERSION: &str = "projectcalico.org/v3";
pub const DEFAULT_TIER: &str = "default";
pub const DEFAULT_ALLOW_PROFILE: &str = "projectcalico-default-allow";

pub(crate) const POLICY_NAME_ANNOTATION: &str = "projectcalico.org/metadata";
const LEGACY_POLICY_PREFIX: &str = "default.";

/// A v3 resource as read from a store or from a manifest. Only metadata is typed; `body` holds the rest of the
/// document (`spec`, `status`, and whatever newer Calico versions put beside them) so that a read-modify-write
/// never loses a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    pub kind: Kind,
    pub metadata: Metadata,
    pub body: Map<String, Value>,
}

/// Object metadata. `extra` keeps what is not named here (ownerReferences, finalizers, generateName …).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A stored value that cannot be read as the record its key names.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("{key}: the stored value is not a JSON object")]
    NotAnObject {
        key: Key,
        #[source]
        source: serde_json::Error,
    },
    #[error("{key}: metadata cannot be read")]
    Metadata {
        key: Key,
        #[source]
        source: serde_json::Error,
    },
    #[error("{key}: the stored value says kind {found:?}")]
    WrongKind { key: Key, found: String },
    #[error("{key}: the annotation {POLICY_NAME_ANNOTATION} cannot be read")]
    PolicyName {
        key: Key,
        #[source]
        source: serde_json::Error,
    },
}

impl Resource {
    pub fn new(kind: Kind, name: impl Into<String>) -> Resource {
        let metadata = Metadata { name: name.into(), ..Metadata::default() };
        Resource { kind, metadata, body: Map::new() }
    }

    pub fn key(&self) -> Key {
        Key::Resource {
            kind: self.kind,
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
        }
    }

    /// The value of one field of the spec.
    pub fn spec(&self, field: &str) -> Option<&Value> {
        self.body.get("spec").and_then(|spec| spec.get(field))
    }

    /// The spec, made if it is not there.
    pub fn spec_mut(&mut self) -> &mut Map<String, Value> {
        let spec = self.body.entry("spec").or_insert_with(|| Value::Object(Map::new()));
        if !spec.is_object() {
            *spec = Value::Object(Map::new());
        }
        spec.as_object_mut().expect("made an object above")
    }

    /// Reads a stored value. `revision` becomes `metadata.resourceVersion`.
    pub fn decode(key: &Key, kind: Kind, value: &[u8], revision: &str) -> Result<Resource, DecodeError> {
        let mut body: Map<String, Value> = serde_json::from_slice(value)
            .map_err(|source| DecodeError::NotAnObject { key: key.clone(), source })?;
        body.remove("apiVersion");
        if let Some(Value::String(found)) = body.remove("kind").filter(|found| found != kind.name()) {
            return Err(DecodeError::WrongKind { key: key.clone(), found });
        }
        let mut metadata: Metadata = null_is_empty(body.remove("metadata").unwrap_or(Value::Null))
            .map_err(|source| DecodeError::Metadata { key: key.clone(), source })?;
        metadata.resource_version = Some(revision.to_owned());
        let mut resource = Resource { kind, metadata, body };
        if kind.is_tiered() {
            resource
                .restore_policy_name()
                .map_err(|source| DecodeError::PolicyName { key: key.clone(), source })?;
        }
        Ok(resource)
    }

    /// The value to store: everything but what the store itself knows (`resourceVersion`, `selfLink`).
    ///
    /// Policies of a tier carry their name once more, in an annotation, because releases before v3.32 stored them
    /// as `default.NAME`.
    pub fn encode(&self) -> Vec<u8> {
        let mut stored = self.clone();
        stored.metadata.resource_version = None;
        stored.metadata.extra.remove("selfLink");
        if stored.kind.is_tiered() {
            let name = json!({ "name": stored.metadata.name }).to_string();
            stored.metadata.annotations.insert(POLICY_NAME_ANNOTATION.to_owned(), name);
        }
        serde_json::to_vec(&stored.to_document()).expect("a JSON value can always be written")
    }

    /// The tier of a policy.
    pub fn tier(&self) -> &str {
        match self.spec("tier").and_then(Value::as_str) {
            None | Some("") => DEFAULT_TIER,
            Some(tier) => tier,
        }
    }

    /// Whether it would deny traffic if it were enforced. A policy denies what it does not allow to those whom it
    /// selects, so each of them counts; of profiles, only those with a rule that denies.
    pub fn would_deny(&self) -> bool {
        let denies = |rule: &Value| rule.get("action").and_then(Value::as_str) == Some("Deny");
        let mut lists = ["ingress", "egress"].into_iter().filter_map(|list| self.spec(list)?.as_array());
        match self.kind {
            Kind::GlobalNetworkPolicy | Kind::NetworkPolicy => true,
            Kind::Profile => lists.any(|rules| rules.iter().any(denies)),
            _ => false,
        }
    }

    /// Takes the name from the annotation, or else a name that an old release prefixed with its tier.
    fn restore_policy_name(&mut self) -> Result<(), serde_json::Error> {
        #[derive(Deserialize)]
        struct Stored {
            #[serde(default)]
            name: String,
        }
        let annotation = self.metadata.annotations.remove(POLICY_NAME_ANNOTATION);
        match annotation.filter(|text| !text.is_empty()) {
            Some(text) => {
                let stored: Stored = serde_json::from_str(&text)?;
                if !stored.name.is_empty() {
                    self.metadata.name = stored.name;
                }
            }
            None if self.tier() == DEFAULT_TIER => {
                if let Some(name) = self.metadata.name.strip_prefix(LEGACY_POLICY_PREFIX) {
                    self.metadata.name = name.to_owned();
                }
            }
            None => {}
        }
        Ok(())
    }

    /// The whole document as an operator sees it.
    pub fn to_document(&self) -> Map<String, Value> {
        let mut document = Map::new();
        document.insert("apiVersion".into(), API_VERSION.into());
        document.insert("kind".into(), self.kind.name().into());
        let metadata = serde_json::to_value(&self.metadata).expect("metadata can always be written");
        document.insert("metadata".into(), metadata);
        document.extend(self.body.clone());
        document
    }
}

/// Go reads `null` as the zero of any type, and some writers write it where nothing is set.
pub(crate) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The profile that is always there although no store holds it. It cannot be written or deleted.
pub fn default_allow_profile() -> Resource {
    let mut profile = Resource::new(Kind::Profile, DEFAULT_ALLOW_PROFILE);
    profile.metadata.resource_version = Some("1".to_owned());
    let spec = json!({ "ingress": [{ "action": "Allow" }], "egress": [{ "action": "Allow" }] });
    profile.body.insert("spec".to_owned(), spec);
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_nothing_set() {
        let key = Key::cluster(Kind::IpPool, "a");
        for (stored, written) in [
            (r#"{"metadata":null}"#, r#""metadata":{}"#),
            (
                r#"{"metadata":{"name":null,"labels":null,"annotations":null,"creationTimestamp":null}}"#,
                r#""metadata":{}"#,
            ),
        ] {
            let resource = Resource::decode(&key, Kind::IpPool, stored.as_bytes(), "5").unwrap();
            let text = String::from_utf8(resource.encode()).unwrap();
            assert!(text.contains(written), "{stored} became {text}");
        }
    }
}
