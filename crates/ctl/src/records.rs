//! Stored records as the resources that operators know, whatever keys and encodings they are stored under.

use model::ipam::{Affinity, Block, CONFIG_NAME, Handle, IpamConfig};
use model::resource::default_allow_profile;
use model::{IpVersion, Selector};
use model::{Key, KeyRange, Kind, Resource};
use serde::Deserialize;
use serde_json::Value;
use store::{Record, Revision};

use crate::failure::Failure;

/// The name that `plumb get` finds the record by.
pub(crate) fn name(record: &Record) -> String {
    match &record.key {
        // Old releases stored policies under another name than their own.
        Key::Resource { kind, name, .. } if kind.is_tiered() => {
            to_resource(record).map_or_else(|_| name.clone(), |policy| policy.metadata.name)
        }
        Key::Resource { name, .. } => name.clone(),
        Key::Block(cidr) => cidr.to_string(),
        Key::Affinity { owner, block } => Affinity::default().to_resource(owner, block, "").metadata.name,
        Key::Handle(id) => id.to_string(),
        Key::IpamConfig => CONFIG_NAME.to_owned(),
    }
}

pub(crate) fn to_resource(record: &Record) -> Result<Resource, Failure> {
    let revision = record.revision.as_str();
    let unreadable = |error: &dyn std::error::Error| {
        Failure::of(error).hint("the record is damaged, or another program wrote it; it was not changed")
    };
    match &record.key {
        Key::Resource { kind, namespace, name } => {
            let mut resource = Resource::decode(&record.key, *kind, &record.value, revision)
                .map_err(|error| unreadable(&error))?;
            if resource.metadata.name.is_empty() {
                resource.metadata.name.clone_from(name);
                resource.metadata.namespace.clone_from(namespace);
            }
            resource.fill_defaults_on_read();
            Ok(resource)
        }
        Key::Block(cidr) => Block::decode(cidr, &record.value)
            .map(|block| block.to_resource(revision))
            .map_err(|error| unreadable(&error)),
        Key::Affinity { owner, block } => Affinity::decode(owner, block, &record.value)
            .map(|affinity| affinity.to_resource(owner, block, revision))
            .map_err(|error| unreadable(&error)),
        Key::Handle(id) => Handle::decode(id, &record.value)
            .map(|handle| handle.to_resource(id, revision))
            .map_err(|error| unreadable(&error)),
        Key::IpamConfig => IpamConfig::decode(&record.value)
            .map(|config| config.to_resource(revision))
            .map_err(|error| unreadable(&error)),
    }
}

/// Whether the labels of a record match. Records without labels, such as blocks, match only what needs none.
pub(crate) fn matches(record: &Record, selector: &Selector) -> Result<bool, Failure> {
    if record.key.kind() == Kind::WorkloadEndpoint {
        // There may be very many of these; nothing but the labels is read.
        let labelled: Labelled = serde_json::from_slice(&record.value).map_err(|error| {
            Failure::new(format!("{}: the stored value cannot be read", record.key)).caused_by(&error)
        })?;
        return Ok(selector.matches(&labelled.metadata.labels.unwrap_or_default()));
    }
    Ok(selector.matches(&to_resource(record)?.metadata.labels))
}

#[derive(Deserialize)]
struct Labelled {
    #[serde(default)]
    metadata: LabelledMetadata,
}

#[derive(Default, Deserialize)]
struct LabelledMetadata {
    #[serde(default)]
    labels: Option<std::collections::BTreeMap<String, String>>,
}

/// Where all records of a kind are; `namespace` narrows it down.
pub(crate) fn ranges(kind: Kind, namespace: Option<&str>) -> Vec<KeyRange> {
    match (kind, namespace) {
        (Kind::IpamBlock, _) => vec![KeyRange::Blocks(IpVersion::V4), KeyRange::Blocks(IpVersion::V6)],
        (Kind::BlockAffinity, _) => vec![KeyRange::HostAffinities, KeyRange::VirtualAffinities],
        (Kind::IpamHandle, _) => vec![KeyRange::Handles],
        (_, Some(namespace)) => vec![KeyRange::Namespace(kind, namespace.to_owned())],
        (_, None) => vec![KeyRange::Kind(kind)],
    }
}

/// Puts tiers in the order in which they apply, those without an order last.
pub(crate) fn sort_by_order(tiers: &mut [Record]) {
    let order = |record: &Record| {
        let order = to_resource(record).ok().and_then(|tier| tier.spec("order").and_then(Value::as_f64));
        order.unwrap_or(f64::INFINITY)
    };
    tiers.sort_by(|a, b| order(a).total_cmp(&order(b)));
}

/// The profile that is always there although no store holds it.
pub(crate) fn default_profile() -> Record {
    let profile = default_allow_profile();
    let revision = profile.metadata.resource_version.clone().unwrap_or_default();
    Record { key: profile.key(), value: profile.encode().into(), revision: Revision::new(revision) }
}

/// Whether this is the profile that no store holds.
pub(crate) fn is_default_profile(key: &Key) -> bool {
    *key == default_allow_profile().key()
}
