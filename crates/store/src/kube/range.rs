//! Which collections of objects a range of keys lies in, and where a record is.

use model::kube::views::{Shown, behind, shown_as, view_with};
use model::kube::{
    Decoded, HOSTNAME_HASH_LABEL, Layout, Undecodable, affinity_labels, decode, decode_brief_block,
    is_custom_resource, place,
};
use model::names::EndpointName;
use model::text::on_one_line;
use model::{DevicePrefixes, IpVersion, Key, KeyRange, Kind};
use serde_json::{Map, Value};

use super::once;

/// 20 KB each where all addresses are taken.
const BLOCKS_PER_PAGE: usize = 100;

/// What it takes to understand an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form<'s> {
    pub(super) layout: Layout,
    /// What devices of pods are called.
    pub(super) prefixes: &'s DevicePrefixes,
}

/// What kind of object keeps records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Custom(Kind),
    /// One of Kubernetes' own, which shows a record.
    View(Shown),
}

impl Source {
    /// As its objects are called in a path.
    pub(super) fn plural(self, layout: Layout) -> &'static str {
        match self {
            Source::Custom(kind) => layout.plural(kind),
            Source::View(shown) => shown.plural(),
        }
    }

    pub(super) fn path(self, layout: Layout, namespace: Option<&str>) -> String {
        let api = match self {
            Source::Custom(_) => format!("/apis/{}", layout.api_version()),
            Source::View(_) => "/api/v1".to_owned(),
        };
        match namespace {
            Some(namespace) => format!("{api}/namespaces/{}/{}", escaped(namespace), self.plural(layout)),
            None => format!("{api}/{}", self.plural(layout)),
        }
    }

    /// Whether the metadata of an object is all that its record is made of.
    pub(super) fn is_in_metadata(self) -> bool {
        matches!(self, Source::View(Shown::Namespace | Shown::ServiceAccount))
    }

    /// Whether names of its records can start so.
    fn may_show(self, prefix: &str) -> bool {
        let all = match self {
            Source::View(Shown::Namespace) => "kns.",
            Source::View(Shown::ServiceAccount) => "ksa.",
            _ => return true,
        };
        all.starts_with(prefix) || prefix.starts_with(all)
    }

    /// The record in an object, if it holds one. One that cannot be read is a record all the same: it has a key, and whatever it may hold
    /// counts for whoever finds it unreadable. An object that no key names is passed over.
    pub(super) fn decode(self, form: Form<'_>, object: Map<String, Value>) -> Option<Decoded> {
        let decoded = match self {
            Source::Custom(kind) => decode(form.layout, kind, object).map(Some),
            Source::View(shown) => view_with(shown, &object, form.prefixes),
        };
        decoded.unwrap_or_else(|Undecodable { error, stand_in }| {
            let problem = on_one_line(&error);
            match &stand_in {
                Some(stand_in) => {
                    once::warn(format!("{} counts as unreadable: {problem}", stand_in.key));
                }
                None => once::warn(format!("passed over an object that no record's key names: {problem}")),
            }
            stand_in.map(|stand_in| *stand_in)
        })
    }
}

/// The object in which a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) source: Source,
    namespace: Option<String>,
    name: String,
}

impl Location {
    /// `None` if no object can hold the record.
    pub(super) fn of(key: &Key) -> Option<Location> {
        if let Some(place) = place(key) {
            let source = Source::Custom(place.kind);
            return Some(Location { source, namespace: place.namespace, name: place.name });
        }
        let behind = behind(key)?;
        Some(Location { source: Source::View(behind.shown), namespace: behind.namespace, name: behind.name })
    }

    pub(super) fn path(&self, layout: Layout) -> String {
        format!("{}/{}", self.source.path(layout, self.namespace.as_deref()), escaped(&self.name))
    }

    /// A list of this object alone.
    pub(super) fn path_as_list(&self, layout: Layout) -> String {
        let selector = escaped(&format!("metadata.name={}", self.name));
        format!("{}?fieldSelector={selector}", self.source.path(layout, self.namespace.as_deref()))
    }
}

/// A collection, or the part of it that the server can single out. What it holds besides the range is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Collection {
    pub(super) source: Source,
    namespace: Option<String>,
    /// Selectors, as a query has them.
    selector: Option<String>,
    /// The metadata of its objects is enough.
    pub(super) is_in_metadata: bool,
    range: KeyRange,
}

impl Collection {
    fn new(source: Source, range: &KeyRange) -> Collection {
        let is_in_metadata = source.is_in_metadata();
        Collection { source, namespace: None, selector: None, is_in_metadata, range: range.clone() }
    }

    pub(super) fn holds(&self, key: &Key) -> bool {
        key.etcd_text().starts_with(&self.range.etcd_prefix())
    }

    /// How many objects to ask for where so many may come. Blocks have up to 64 addresses with all about their owners, and whoever
    /// follows all blocks of a cluster is to hold one page of them, not two dozen MiB.
    pub(super) fn page(&self, limit: usize) -> usize {
        let is_long = self.source == Source::Custom(Kind::IpamBlock) && !self.is_in_metadata;
        limit.clamp(1, if is_long { BLOCKS_PER_PAGE } else { usize::MAX })
    }

    /// The record in an object of the collection, if it holds one.
    pub(super) fn decode(&self, form: Form<'_>, object: Map<String, Value>) -> Option<Decoded> {
        let decoded = match self.source {
            Source::Custom(Kind::IpamBlock) if self.is_in_metadata => decode_brief_block(&object),
            source => source.decode(form, object),
        };
        decoded.filter(|decoded| self.holds(&decoded.key))
    }

    /// The path of the collection, with the question mark that begins its query.
    pub(super) fn path(&self, layout: Layout) -> String {
        let path = self.source.path(layout, self.namespace.as_deref());
        match &self.selector {
            Some(selector) => format!("{path}?{selector}&"),
            None => format!("{path}?"),
        }
    }
}

/// The collections of a range, in the order of their keys. Several of them may be of one source.
pub(super) fn collections(range: &KeyRange) -> Vec<Collection> {
    match range {
        KeyRange::Everything => parts_of_everything().iter().flat_map(collections).collect(),
        KeyRange::Kind(kind) => of_kind(*kind, range, None),
        KeyRange::Namespace(kind, namespace) => of_kind(*kind, range, Some(namespace)),
        KeyRange::NamePrefix { kind, namespace, prefix } => {
            let mut collections = of_kind(*kind, range, namespace.as_deref());
            // A list has a revision even where nothing can be in it, so something is asked for.
            if collections.iter().any(|collection| collection.source.may_show(prefix)) {
                collections.retain(|collection| collection.source.may_show(prefix));
            }
            let node = (*kind == Kind::WorkloadEndpoint && namespace.is_some())
                .then(|| EndpointName::node_of_prefix(prefix))
                .flatten();
            for collection in &mut collections {
                collection.selector = node.as_deref().map(pods_of);
            }
            collections
        }
        KeyRange::NodesInBrief => {
            let mut collections = of_kind(Kind::Node, range, None);
            collections.iter_mut().for_each(|collection| collection.is_in_metadata = true);
            collections
        }
        KeyRange::NodeInBrief(name) => {
            let selector = format!("fieldSelector={}", escaped(&format!("metadata.name={name}")));
            let mut collections = collections(&KeyRange::NodesInBrief);
            for collection in &mut collections {
                (collection.selector, collection.range) = (Some(selector.clone()), range.clone());
            }
            collections
        }
        KeyRange::EndpointsOf(node) => {
            let mut collections = of_kind(Kind::WorkloadEndpoint, range, None);
            collections.iter_mut().for_each(|collection| collection.selector = Some(pods_of(node)));
            collections
        }
        KeyRange::Blocks(_) | KeyRange::AllBlocks => vec![custom(Kind::IpamBlock, range)],
        KeyRange::BlocksInBrief(_) => {
            vec![Collection { is_in_metadata: true, ..custom(Kind::IpamBlock, range) }]
        }
        KeyRange::HostAffinities | KeyRange::VirtualAffinities => vec![custom(Kind::BlockAffinity, range)],
        KeyRange::UnlabelledAffinities => {
            let selector = Some(format!("labelSelector={}", escaped(&format!("!{HOSTNAME_HASH_LABEL}"))));
            vec![Collection { selector, ..custom(Kind::BlockAffinity, range) }]
        }
        KeyRange::AffinitiesOf(owner, version) => {
            let labels = affinity_labels(owner, *version).map(|(label, text)| format!("{label}={text}"));
            let selector = Some(format!("labelSelector={}", escaped(&labels.join(","))));
            vec![Collection { selector, ..custom(Kind::BlockAffinity, range) }]
        }
        KeyRange::Handles => vec![custom(Kind::IpamHandle, range)],
        KeyRange::IpamConfig => vec![custom(Kind::IpamConfiguration, range)],
    }
}

fn pods_of(node: &str) -> String {
    format!("fieldSelector={}", escaped(&format!("spec.nodeName={node}")))
}

/// The collections to watch: each once.
pub(super) fn watched(range: &KeyRange) -> Vec<Collection> {
    let mut watched: Vec<Collection> = Vec::new();
    for mut collection in collections(range) {
        collection.range = range.clone();
        if !watched.contains(&collection) {
            watched.push(collection);
        }
    }
    watched
}

fn custom(kind: Kind, range: &KeyRange) -> Collection {
    Collection::new(Source::Custom(kind), range)
}

fn of_kind(kind: Kind, range: &KeyRange, namespace: Option<&str>) -> Vec<Collection> {
    let mut collections: Vec<Collection> =
        shown_as(kind).iter().map(|shown| Collection::new(Source::View(*shown), range)).collect();
    if is_custom_resource(kind) {
        collections.push(custom(kind, range));
    }
    for collection in &mut collections {
        // Nodes and profiles have no namespace, whatever is behind them.
        collection.namespace = namespace.filter(|_| kind.is_namespaced()).map(str::to_owned);
    }
    collections
}

fn parts_of_everything() -> Vec<KeyRange> {
    let mut kinds: Vec<Kind> = Kind::all().collect();
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
        let listed = collections(&KeyRange::Everything);
        let prefixes: Vec<String> = listed.iter().map(|part| part.range.etcd_prefix()).collect();
        assert!(prefixes.is_sorted(), "{prefixes:?}");
        let watched = watched(&KeyRange::Everything);
        let mut sources: Vec<Source> = watched.iter().map(|part| part.source).collect();
        let count = sources.len();
        sources.sort();
        sources.dedup();
        assert_eq!((sources.len(), count), (count, Kind::all().count() + 1), "profiles have two");
    }

    #[test]
    fn the_affinities_of_a_node_are_found_by_their_labels() {
        let range = KeyRange::AffinitiesOf(AffinityOwner::Host("node-a".into()), IpVersion::V4);
        let path = collections(&range)[0].path(Layout::V1);
        assert!(path.starts_with("/apis/crd.projectcalico.org/v1/blockaffinities?labelSelector="), "{path}");
        assert!(path.contains("projectcalico.org%2Fhostname-hash%3DPY3TQE2E"), "{path}");
    }

    #[test]
    fn the_pods_of_a_node_are_singled_out_by_the_server() {
        let range = KeyRange::NamePrefix {
            kind: Kind::WorkloadEndpoint,
            namespace: Some("blue".into()),
            prefix: "node--a-k8s-web".into(),
        };
        let path = collections(&range)[0].path(Layout::V1);
        assert_eq!(path, "/api/v1/namespaces/blue/pods?fieldSelector=spec.nodeName%3Dnode-a&");
        let path = collections(&KeyRange::EndpointsOf("node-a".into()))[0].path(Layout::V1);
        assert_eq!(path, "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-a&");
    }

    #[test]
    fn one_node_is_singled_out_by_the_server() {
        let part = &collections(&KeyRange::NodeInBrief("node-1".into()))[0];
        assert_eq!(part.path(Layout::V1), "/api/v1/nodes?fieldSelector=metadata.name%3Dnode-1&");
        assert!(part.is_in_metadata && part.holds(&Key::cluster(Kind::Node, "node-1")));
    }

    #[test]
    fn profiles_of_namespaces_are_found_without_accounts() {
        let paths = |prefix: &str| {
            let prefix = prefix.to_owned();
            let range = KeyRange::NamePrefix { kind: Kind::Profile, namespace: None, prefix };
            collections(&range).iter().map(|part| part.path(Layout::V1)).collect::<Vec<_>>()
        };
        assert_eq!(paths("kns."), ["/api/v1/namespaces?"]);
        assert_eq!(paths("ksa.blue."), ["/api/v1/serviceaccounts?"]);
        assert_eq!(paths("k").len(), 2);
        assert_eq!(paths("web").len(), 2, "neither can have one, and the list is empty");
    }

    #[test]
    fn views_are_found_behind_their_keys() {
        let path = |key: Key| Location::of(&key).map(|location| location.path(Layout::V1));
        let endpoint = Key::namespaced(Kind::WorkloadEndpoint, "blue", "node--a-k8s-web--0-eth0");
        assert_eq!(path(endpoint).unwrap(), "/api/v1/namespaces/blue/pods/web-0");
        assert_eq!(path(Key::cluster(Kind::Node, "n")).unwrap(), "/api/v1/nodes/n");
        assert_eq!(path(Key::cluster(Kind::Profile, "kns.blue")).unwrap(), "/api/v1/namespaces/blue");
        assert_eq!(path(Key::cluster(Kind::Profile, "projectcalico-default-allow")), None);
        assert_eq!(path(Key::cluster(Kind::IpamBlock, "10-0-0-0-26")), None);
    }
}
