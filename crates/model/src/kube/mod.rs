//! Calico's records as custom resources of Kubernetes: which resource keeps a key, and how a value of the etcd layout
//! becomes its document and comes back.
//!
//! Records that Kubernetes keeps as objects of its own are in [`views`].
//!
//! Nothing is lost on the way in either direction: fields that are not named here stay where they are, and what only the
//! custom resource has (finalizers, owners) travels with the value under [`OF_CUSTOM_RESOURCE`].

pub mod access;
mod definition;
mod ipam;
mod metadata;
mod names;
#[cfg(test)]
pub(crate) mod properties;
mod pruned;
mod uid;
pub mod views;

pub use definition::{definition, definitions};
pub use names::{AFFINITY_TYPE_LABEL, HOSTNAME_HASH_LABEL, IP_VERSION_LABEL, affinity_labels, affinity_name};
pub use pruned::{Shortfall, shortfall};
pub use uid::convert_uid;

use serde_json::{Map, Value};

use crate::ipam::CONFIG_NAME;
use crate::{Key, Kind};

/// What a value keeps for the custom resource it came from, in a field of its own: things that have a meaning there and none
/// in a value.
pub const OF_CUSTOM_RESOURCE: &str = "customResource";

/// Which API group keeps the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// `crd.projectcalico.org/v1`: metadata of the v3 API is kept in an annotation.
    V1,
    /// `projectcalico.org/v3`: the v3 API itself.
    V3,
}

impl Layout {
    /// What Calico's setting `CALICO_API_GROUP` means.
    pub fn configured(api_group: &str) -> Layout {
        let is_v3 = api_group.eq_ignore_ascii_case(&Layout::V3.api_version());
        if is_v3 { Layout::V3 } else { Layout::V1 }
    }

    pub fn group(self) -> &'static str {
        match self {
            Layout::V1 => "crd.projectcalico.org",
            Layout::V3 => "projectcalico.org",
        }
    }

    pub fn version(self) -> &'static str {
        match self {
            Layout::V1 => "v1",
            Layout::V3 => "v3",
        }
    }

    /// `crd.projectcalico.org/v1`.
    pub fn api_version(self) -> String {
        format!("{}/{}", self.group(), self.version())
    }

    /// As custom resources of this kind are called in a path.
    pub fn plural(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Layout::V1, Kind::IpamConfiguration) => "ipamconfigs",
            _ => kind.plural(),
        }
    }

    /// As custom resources of this kind call themselves.
    pub fn kind_name(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Layout::V1, Kind::IpamConfiguration) => "IPAMConfig",
            _ => kind.name(),
        }
    }
}

/// Whether records of this kind are custom resources. The others are views of Kubernetes' own objects.
pub fn is_custom_resource(kind: Kind) -> bool {
    !matches!(kind, Kind::Node | Kind::Profile | Kind::WorkloadEndpoint)
}

/// Whether the API server keeps `status` apart: a write of the resource ignores it.
pub fn has_status_apart(kind: Kind) -> bool {
    matches!(kind, Kind::CalicoNodeStatus | Kind::IpPool | Kind::KubeControllersConfiguration | Kind::Tier)
}

/// The custom resource that keeps a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub kind: Kind,
    pub namespace: Option<String>,
    pub name: String,
}

/// Where a record is kept; `None` if no custom resource does. IPAM's records have keys of their own, so the resource keys
/// of their kinds name nothing.
pub fn place(key: &Key) -> Option<Place> {
    let of_cluster = |kind, name| Some(Place { kind, namespace: None, name });
    match key {
        Key::Resource { kind, .. } if !is_custom_resource(*kind) || is_of_ipam(*kind) => None,
        Key::Resource { kind, namespace, name } => {
            Some(Place { kind: *kind, namespace: namespace.clone(), name: name.clone() })
        }
        Key::Block(cidr) => of_cluster(Kind::IpamBlock, names::network_name(cidr)),
        Key::Affinity { owner, block } => of_cluster(Kind::BlockAffinity, affinity_name(owner.name(), block)),
        Key::Handle(id) => of_cluster(Kind::IpamHandle, id.as_str().to_lowercase()),
        Key::IpamConfig => of_cluster(Kind::IpamConfiguration, CONFIG_NAME.to_owned()),
    }
}

fn is_of_ipam(kind: Kind) -> bool {
    matches!(kind, Kind::IpamBlock | Kind::BlockAffinity | Kind::IpamHandle | Kind::IpamConfiguration)
}

/// Why a value cannot become a custom resource.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("{key} is not kept as a custom resource")]
    NoPlace { key: Key },
    #[error("{key}: the value is not a JSON object")]
    NotAnObject {
        key: Key,
        #[source]
        source: serde_json::Error,
    },
    #[error("{key}: {field} is not an object")]
    NotAMap { key: Key, field: &'static str },
}

/// Why a custom resource is no record of ours.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("{kind} {name:?}: {field} is missing or not of its type")]
    Field { kind: Kind, name: String, field: &'static str },
    #[error("{kind} {name:?} has the contents of {key}, which is kept under another name")]
    Misnamed { kind: Kind, name: String, key: Key },
    #[error("{kind} {name:?}: the annotation projectcalico.org/metadata cannot be read")]
    Annotation {
        kind: Kind,
        name: String,
        #[source]
        source: serde_json::Error,
    },
}

/// An object that is no readable record.
#[derive(Debug)]
pub struct Undecodable {
    pub error: DecodeError,
    /// What is there all the same: a record with the object's key. Whoever reads it must find that it cannot be read, or at least
    /// every address that it may have. `None` if no key names the object.
    pub stand_in: Option<Box<Decoded>>,
}

impl std::fmt::Display for Undecodable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Undecodable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// A record as a custom resource holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    pub key: Key,
    /// The JSON text of the etcd layout.
    pub value: Vec<u8>,
    /// `metadata.resourceVersion`.
    pub revision: String,
    /// Calico removes IPAM's records in two steps: it marks them first. A marked one does not exist any more, and whoever
    /// sees it may remove it.
    pub is_tombstone: bool,
}

/// The document to write for a record. The caller adds `metadata.resourceVersion`.
pub fn encode(layout: Layout, key: &Key, value: &[u8]) -> Result<Map<String, Value>, EncodeError> {
    let place = place(key).ok_or_else(|| EncodeError::NoPlace { key: key.clone() })?;
    let mut document = match key {
        Key::Resource { .. } => {
            let body = object(key, value)?;
            metadata::encode(layout, key, &place, body)?
        }
        _ => ipam::encode(layout, key, &place, value)?,
    };
    document.insert("apiVersion".into(), layout.api_version().into());
    document.insert("kind".into(), layout.kind_name(place.kind).into());
    Ok(document)
}

/// The record that a document of a collection holds.
pub fn decode(layout: Layout, kind: Kind, document: Map<String, Value>) -> Result<Decoded, Undecodable> {
    let outline = match outline(layout, kind, &document) {
        Ok(outline) => outline,
        Err(error) => {
            let stand_in = stand_in(kind, &document, &error).map(Box::new);
            return Err(Undecodable { error, stand_in });
        }
    };
    Ok(take_apart(layout, kind, outline, document))
}

/// The block behind a document of which only the metadata is known: its value is empty. `None` if its name is no block's.
pub fn decode_brief_block(document: &Map<String, Value>) -> Option<Decoded> {
    let metadata = document.get("metadata")?.as_object()?;
    let key = Key::Block(names::network_of_name(text(metadata, "name"))?);
    let revision = text(metadata, "resourceVersion").to_owned();
    Some(Decoded { key, value: Vec::new(), revision, is_tombstone: false })
}

/// What has to be understood of a document, all of which can fail.
struct Outline {
    key: Key,
    name: String,
    /// The metadata of the v3 API that an annotation keeps.
    kept: Map<String, Value>,
}

fn outline(layout: Layout, kind: Kind, document: &Map<String, Value>) -> Result<Outline, DecodeError> {
    let Some(Value::Object(metadata)) = document.get("metadata") else {
        return Err(DecodeError::Field { kind, name: String::new(), field: "metadata" });
    };
    let name = text(metadata, "name");
    let (key, kept) = if is_of_ipam(kind) {
        (ipam::key(kind, name, document)?, Map::new())
    } else {
        (metadata::key(kind, name, metadata)?, metadata::kept(layout, kind, name, metadata)?)
    };
    match place(&key) {
        Some(place) if place.name == name => Ok(Outline { key, name: name.to_owned(), kept }),
        _ => Err(DecodeError::Misnamed { kind, name: name.to_owned(), key }),
    }
}

fn take_apart(layout: Layout, kind: Kind, outline: Outline, mut document: Map<String, Value>) -> Decoded {
    let Outline { key, name, kept } = outline;
    let mut metadata = take_map_if_any(&mut document, "metadata");
    let revision = text(&metadata, "resourceVersion").to_owned();
    for field in ["resourceVersion", "selfLink", "managedFields", "generation"] {
        metadata.remove(field);
    }
    document.remove("apiVersion");
    document.remove("kind");
    let is_tombstone = ipam::is_tombstone(kind, &document);
    let body = if is_of_ipam(kind) {
        ipam::decode(&key, metadata, document)
    } else {
        metadata::decode(layout, kind, &name, metadata, kept, document)
    };
    let value = serde_json::to_vec(&body).expect("a JSON value can always be written");
    Decoded { key, value, revision, is_tombstone }
}

/// A record that nobody can read, in the place of a document that holds none. Its value has all of the document, for whoever
/// repairs it, after words that keep it from being taken for a value.
fn stand_in(kind: Kind, document: &Map<String, Value>, error: &DecodeError) -> Option<Decoded> {
    let metadata = document.get("metadata")?.as_object()?;
    let name = text(metadata, "name");
    let key = match is_of_ipam(kind) {
        true => ipam::key_of_name(kind, name, document)?,
        false => metadata::key(kind, name, metadata).ok()?,
    };
    if place(&key).is_none_or(|place| place.name != name) {
        return None;
    }
    let whole = serde_json::to_string(document).expect("a JSON value can always be written");
    Some(Decoded {
        key,
        value: format!("unreadable: {error}\n{whole}").into_bytes(),
        revision: text(metadata, "resourceVersion").to_owned(),
        is_tombstone: ipam::is_tombstone(kind, document),
    })
}

fn text<'m>(map: &'m Map<String, Value>, field: &str) -> &'m str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn object(key: &Key, value: &[u8]) -> Result<Map<String, Value>, EncodeError> {
    serde_json::from_slice(value).map_err(|source| EncodeError::NotAnObject { key: key.clone(), source })
}

/// Takes a field that is an object or nothing.
fn take_map(
    key: &Key,
    from: &mut Map<String, Value>,
    field: &'static str,
) -> Result<Map<String, Value>, EncodeError> {
    match from.remove(field) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map),
        Some(_) => Err(EncodeError::NotAMap { key: key.clone(), field }),
    }
}

/// The same where what is not an object is nobody's.
fn take_map_if_any(from: &mut Map<String, Value>, field: &str) -> Map<String, Value> {
    match from.remove(field) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

fn insert_unless_empty(into: &mut Map<String, Value>, field: &str, map: Map<String, Value>) {
    if !map.is_empty() {
        into.insert(field.to_owned(), Value::Object(map));
    }
}
