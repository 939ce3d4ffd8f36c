//! Which collections of custom resources a range of keys lies in.

use model::kube::{Layout, affinity_labels, is_custom_resource};
use model::{IpVersion, Key, KeyRange, Kind};

use crate::StoreError;

/// A collection, or the part of it that the server can single out. What it holds besides the range is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Collection {
    pub(super) kind: Kind,
    namespace: Option<String>,
    labels: Option<String>,
    range: KeyRange,
}

impl Collection {
    fn of_kind(kind: Kind, range: KeyRange) -> Collection {
        Collection { kind, namespace: None, labels: None, range }
    }

    pub(super) fn holds(&self, key: &Key) -> bool {
        key.etcd_text().starts_with(&self.range.etcd_prefix())
    }

    /// The path of the collection, with the question mark that begins its query.
    pub(super) fn path(&self, layout: Layout) -> String {
        let path = collection_path(layout, self.kind, self.namespace.as_deref());
        match &self.labels {
            Some(labels) => format!("{path}?labelSelector={}&", escaped(labels)),
            None => format!("{path}?"),
        }
    }
}

/// The collections of a range, in the order of their keys. Several of them may be of one kind.
pub(super) fn collections(range: &KeyRange) -> Result<Vec<Collection>, StoreError> {
    if *range == KeyRange::Everything {
        return Ok(parts_of_everything().into_iter().map(|part| single(&part)).collect());
    }
    if let Some(kind) = kind_of(range).filter(|kind| !is_custom_resource(*kind)) {
        let operation =
            format!("show {kind} records: they are views of Kubernetes' own objects, which are not read yet");
        return Err(StoreError::Unsupported { operation });
    }
    Ok(vec![single(range)])
}

/// The collections to watch: each once.
pub(super) fn watched(range: &KeyRange) -> Result<Vec<Collection>, StoreError> {
    let mut watched: Vec<Collection> = Vec::new();
    for mut collection in collections(range)? {
        collection.range = range.clone();
        if !watched.contains(&collection) {
            watched.push(collection);
        }
    }
    Ok(watched)
}

fn kind_of(range: &KeyRange) -> Option<Kind> {
    match range {
        KeyRange::Kind(kind) | KeyRange::Namespace(kind, _) | KeyRange::NamePrefix { kind, .. } => {
            Some(*kind)
        }
        _ => None,
    }
}

/// Everything but the views.
fn parts_of_everything() -> Vec<KeyRange> {
    let mut kinds: Vec<Kind> = Kind::all().filter(|kind| is_custom_resource(*kind)).collect();
    kinds.retain(|kind| {
        !matches!(kind, Kind::IpamBlock | Kind::BlockAffinity | Kind::IpamHandle | Kind::IpamConfiguration)
    });
    kinds.sort_by_key(|kind| kind.plural());
    let of_ipam = [
        KeyRange::Blocks(IpVersion::V4),
        KeyRange::Blocks(IpVersion::V6),
        KeyRange::IpamConfig,
        KeyRange::Handles,
        KeyRange::HostAffinities,
        KeyRange::VirtualAffinities,
    ];
    of_ipam.into_iter().chain(kinds.into_iter().map(KeyRange::Kind)).collect()
}

fn single(range: &KeyRange) -> Collection {
    let plain = |kind| Collection::of_kind(kind, range.clone());
    match range {
        KeyRange::Kind(kind) => plain(*kind),
        KeyRange::Namespace(kind, namespace) => {
            Collection { namespace: Some(namespace.clone()), ..plain(*kind) }
        }
        KeyRange::NamePrefix { kind, namespace, .. } => {
            Collection { namespace: namespace.clone(), ..plain(*kind) }
        }
        KeyRange::Blocks(_) => plain(Kind::IpamBlock),
        KeyRange::HostAffinities | KeyRange::VirtualAffinities => plain(Kind::BlockAffinity),
        KeyRange::AffinitiesOf(owner, version) => {
            let labels = affinity_labels(owner, *version).map(|(label, text)| format!("{label}={text}"));
            Collection { labels: Some(labels.join(",")), ..plain(Kind::BlockAffinity) }
        }
        KeyRange::Handles => plain(Kind::IpamHandle),
        KeyRange::IpamConfig | KeyRange::Everything => plain(Kind::IpamConfiguration),
    }
}

pub(super) fn collection_path(layout: Layout, kind: Kind, namespace: Option<&str>) -> String {
    let api = format!("/apis/{}", layout.api_version());
    match namespace {
        Some(namespace) => format!("{api}/namespaces/{}/{}", escaped(namespace), layout.plural(kind)),
        None => format!("{api}/{}", layout.plural(kind)),
    }
}

/// A text as one segment of a path or one value of a query.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use model::AffinityOwner;

    use super::*;

    #[test]
    fn everything_is_listed_in_key_order_and_watched_once() {
        let listed = collections(&KeyRange::Everything).unwrap();
        let prefixes: Vec<String> = listed.iter().map(|part| part.range.etcd_prefix()).collect();
        assert!(prefixes.is_sorted(), "{prefixes:?}");
        let watched = watched(&KeyRange::Everything).unwrap();
        let mut kinds: Vec<Kind> = watched.iter().map(|part| part.kind).collect();
        let count = kinds.len();
        kinds.sort();
        kinds.dedup();
        assert_eq!((kinds.len(), count), (count, Kind::all().count() - 3));
    }

    #[test]
    fn the_affinities_of_a_node_are_found_by_their_labels() {
        let range = KeyRange::AffinitiesOf(AffinityOwner::Host("node-a".into()), IpVersion::V4);
        let [collection] = collections(&range).unwrap().try_into().unwrap();
        let path = collection.path(Layout::V1);
        assert!(path.starts_with("/apis/crd.projectcalico.org/v1/blockaffinities?labelSelector="), "{path}");
        assert!(path.contains("projectcalico.org%2Fhostname-hash%3DPY3TQE2E"), "{path}");
    }

    #[test]
    fn views_are_not_read_yet() {
        for kind in [Kind::Node, Kind::WorkloadEndpoint, Kind::Profile] {
            assert!(matches!(collections(&KeyRange::Kind(kind)), Err(StoreError::Unsupported { .. })));
        }
    }
}
