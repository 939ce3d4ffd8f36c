//! What a record is called in every store, and how Calico's etcd layout spells it.
//!
//! The etcd text of a key is also the key in SQLite and in memory, so that moving between them is a copy.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::fmt;

use crate::{Cidr, HandleId, IpVersion, Kind, NodeName};

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";
const BLOCKS: &str = "/calico/ipam/v2/assignment/";
const HOST_AFFINITIES: &str = "/calico/ipam/v2/host/";
const VIRTUAL_AFFINITIES: &str = "/calico/ipam/v2/virtual/";
const HANDLES: &str = "/calico/ipam/v2/handle/";
const IPAM_CONFIG: &str = "/calico/ipam/v2/config";

/// The name of one record.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A v3 resource. `namespace` is there exactly if the kind is namespaced.
    Resource { kind: Kind, namespace: Option<String>, name: String },
    /// An allocation block.
    Block(Cidr),
    /// Who a block belongs to.
    Affinity { owner: AffinityOwner, block: Cidr },
    /// The addresses held under one handle.
    Handle(HandleId),
    /// The IPAM settings that allocation really reads.
    IpamConfig,
}

/// Who may own a block: a node, or something that is not a node (Calico: `load-balancer`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AffinityOwner {
    Host(String),
    Virtual(String),
}

impl AffinityOwner {
    pub fn name(&self) -> &str {
        match self {
            AffinityOwner::Host(name) | AffinityOwner::Virtual(name) => name,
        }
    }

    /// The node, if it is one.
    pub fn node(&self) -> Option<NodeName> {
        match self {
            AffinityOwner::Host(name) => Some(name.as_str().into()),
            AffinityOwner::Virtual(_) => None,
        }
    }

    pub fn is_node(&self, node: &NodeName) -> bool {
        matches!(self, AffinityOwner::Host(name) if node.is(name))
    }

    /// `host` or `virtual`, as block and affinity records spell it.
    pub fn type_word(&self) -> &'static str {
        match self {
            AffinityOwner::Host(_) => "host",
            AffinityOwner::Virtual(_) => "virtual",
        }
    }
}

/// A key text that is not one of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a known record key")]
pub struct UnknownKey(pub String);

impl Key {
    pub fn cluster(kind: Kind, name: impl Into<String>) -> Key {
        debug_assert!(!kind.is_namespaced(), "{kind} needs a namespace");
        Key::Resource { kind, namespace: None, name: name.into() }
    }

    pub fn namespaced(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Key {
        debug_assert!(kind.is_namespaced(), "{kind} has no namespace");
        Key::Resource { kind, namespace: Some(namespace.into()), name: name.into() }
    }

    /// The kind of resource that the record is shown as.
    pub fn kind(&self) -> Kind {
        match self {
            Key::Resource { kind, .. } => *kind,
            Key::Block(_) => Kind::IpamBlock,
            Key::Affinity { .. } => Kind::BlockAffinity,
            Key::Handle(_) => Kind::IpamHandle,
            Key::IpamConfig => Kind::IpamConfiguration,
        }
    }

    /// The key of Calico's etcd layout.
    pub fn etcd_text(&self) -> String {
        match self {
            Key::Resource { kind, namespace: None, name } => format!("{RESOURCES}{}/{name}", kind.plural()),
            Key::Resource { kind, namespace: Some(namespace), name } => {
                format!("{RESOURCES}{}/{namespace}/{name}", kind.plural())
            }
            Key::Block(cidr) => {
                format!("{BLOCKS}{}/block/{}", cidr.version().key_segment(), cidr.key_segment())
            }
            Key::Affinity { owner, block } => {
                format!(
                    "{}{}/{}/block/{}",
                    affinity_root(owner),
                    owner.name(),
                    block.version().key_segment(),
                    block.key_segment()
                )
            }
            Key::Handle(id) => format!("{HANDLES}{id}"),
            Key::IpamConfig => IPAM_CONFIG.to_owned(),
        }
    }

    /// Reads a key of Calico's etcd layout. Keys of other records (Felix status, legacy markers) are unknown, and
    /// so is a network that is spelled another way than ours: under the key it would be read as there is nothing.
    pub fn from_etcd_text(text: &str) -> Result<Key, UnknownKey> {
        parse(text).filter(|key| key.etcd_text() == text).ok_or_else(|| UnknownKey(text.to_owned()))
    }
}

fn affinity_root(owner: &AffinityOwner) -> &'static str {
    match owner {
        AffinityOwner::Host(_) => HOST_AFFINITIES,
        AffinityOwner::Virtual(_) => VIRTUAL_AFFINITIES,
    }
}

fn parse(text: &str) -> Option<Key> {
    if let Some(rest) = text.strip_prefix(RESOURCES) {
        return parse_resource(rest);
    }
    if let Some(rest) = text.strip_prefix(BLOCKS) {
        return parse_family_and_block(rest).map(Key::Block);
    }
    if let Some(rest) = text.strip_prefix(HOST_AFFINITIES) {
        return parse_affinity(rest, AffinityOwner::Host);
    }
    if let Some(rest) = text.strip_prefix(VIRTUAL_AFFINITIES) {
        return parse_affinity(rest, AffinityOwner::Virtual);
    }
    if let Some(id) = text.strip_prefix(HANDLES) {
        return (!id.is_empty()).then(|| Key::Handle(id.into()));
    }
    (text == IPAM_CONFIG).then_some(Key::IpamConfig)
}

fn parse_resource(rest: &str) -> Option<Key> {
    let mut segments = rest.split('/');
    let kind = Kind::from_plural(segments.next()?)?;
    let first = segments.next().filter(|segment| !segment.is_empty())?;
    let second = segments.next();
    if segments.next().is_some() {
        return None;
    }
    match (kind.is_namespaced(), second) {
        (false, None) => Some(Key::cluster(kind, first)),
        (true, Some(name)) if !name.is_empty() => Some(Key::namespaced(kind, first, name)),
        _ => None,
    }
}

fn parse_affinity(rest: &str, owner: fn(String) -> AffinityOwner) -> Option<Key> {
    let (name, block) = rest.split_once('/')?;
    let block = parse_family_and_block(block)?;
    (!name.is_empty()).then(|| Key::Affinity { owner: owner(name.to_owned()), block })
}

fn parse_family_and_block(rest: &str) -> Option<Cidr> {
    let (family, block) = rest.split_once("/block/")?;
    let cidr = Cidr::from_key_segment(block).ok()?;
    (cidr.version().key_segment() == family).then_some(cidr)
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Resource { kind, namespace: None, name } => write!(f, "{kind}({name})"),
            Key::Resource { kind, namespace: Some(namespace), name } => {
                write!(f, "{kind}({namespace}/{name})")
            }
            Key::Block(cidr) => write!(f, "IPAMBlock({cidr})"),
            Key::Affinity { owner, block } => {
                write!(f, "BlockAffinity({}:{}, {block})", owner.type_word(), owner.name())
            }
            Key::Handle(id) => write!(f, "IPAMHandle({id})"),
            Key::IpamConfig => f.write_str("IPAMConfiguration(default)"),
        }
    }
}

/// A set of keys that can be listed and watched together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyRange {
    /// Every record this product knows.
    Everything,
    /// Every resource of one kind, in all namespaces.
    Kind(Kind),
    /// Every resource of one kind in one namespace.
    Namespace(Kind, String),
    /// Resources of one kind whose name starts so. Calico's endpoint names need this: `node1-k8s-pod-` also
    /// matches pod `pod-1`, so callers look again at what they get.
    NamePrefix { kind: Kind, namespace: Option<String>, prefix: String },
    /// The endpoints of one node. A store that cannot single them out shows those of all nodes, so callers look again at
    /// what they get.
    EndpointsOf(String),
    /// All nodes, for those who need what Calico notes on them, and their labels. Where nodes are views of Kubernetes' Nodes the
    /// rest is left out: kubelets report it all the time, and it is long.
    NodesInBrief,
    /// One node, in brief. A store that cannot single it out also shows nodes whose names start so.
    NodeInBrief(String),
    /// All blocks of one IP version.
    Blocks(IpVersion),
    /// Which blocks of one IP version there are, and at which revision. Where the store can leave it out, the value is empty; a block
    /// that is marked as deleted is shown, too.
    BlocksInBrief(IpVersion),
    /// All blocks: one watch where both IP versions are in one collection.
    AllBlocks,
    /// All affinities of nodes. Owners that are not nodes are in `VirtualAffinities`.
    HostAffinities,
    /// Affinities without the labels by which a store finds those of one owner: Calico wrote none before 3.31. A store that needs no
    /// labels shows all affinities of nodes, so callers look again at what they get.
    UnlabelledAffinities,
    /// The affinities of one owner, of one IP version.
    AffinitiesOf(AffinityOwner, IpVersion),
    /// All affinities of owners that are not nodes.
    VirtualAffinities,
    /// All handles.
    Handles,
    /// The one record of IPAM settings, for those who watch it.
    IpamConfig,
}

impl KeyRange {
    /// The prefix that all keys of this set share in Calico's etcd layout, and no others do (but see
    /// `NamePrefix`, and legacy host markers under `HostAffinities`).
    pub fn etcd_prefix(&self) -> String {
        match self {
            KeyRange::Everything => "/calico/".to_owned(),
            KeyRange::Kind(kind) => format!("{RESOURCES}{}/", kind.plural()),
            KeyRange::Namespace(kind, namespace) => format!("{RESOURCES}{}/{namespace}/", kind.plural()),
            KeyRange::NamePrefix { kind, namespace: None, prefix } => {
                format!("{RESOURCES}{}/{prefix}", kind.plural())
            }
            KeyRange::NamePrefix { kind, namespace: Some(namespace), prefix } => {
                format!("{RESOURCES}{}/{namespace}/{prefix}", kind.plural())
            }
            KeyRange::NodesInBrief => KeyRange::Kind(Kind::Node).etcd_prefix(),
            KeyRange::NodeInBrief(name) => Key::cluster(Kind::Node, name.as_str()).etcd_text(),
            KeyRange::EndpointsOf(_) => KeyRange::Kind(Kind::WorkloadEndpoint).etcd_prefix(),
            KeyRange::Blocks(version) | KeyRange::BlocksInBrief(version) => {
                format!("{BLOCKS}{}/block/", version.key_segment())
            }
            KeyRange::AllBlocks => BLOCKS.to_owned(),
            KeyRange::HostAffinities | KeyRange::UnlabelledAffinities => HOST_AFFINITIES.to_owned(),
            KeyRange::AffinitiesOf(owner, version) => {
                format!("{}{}/{}/block/", affinity_root(owner), owner.name(), version.key_segment())
            }
            KeyRange::VirtualAffinities => VIRTUAL_AFFINITIES.to_owned(),
            KeyRange::Handles => HANDLES.to_owned(),
            KeyRange::IpamConfig => IPAM_CONFIG.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn keys_are_calicos() {
        let cases = [
            (
                Key::cluster(Kind::IpPool, "default-ipv4-ippool"),
                "/calico/resources/v3/projectcalico.org/ippools/default-ipv4-ippool",
            ),
            (
                Key::namespaced(Kind::WorkloadEndpoint, "default", "ip--10--0--0--5-k8s-web--0-eth0"),
                "/calico/resources/v3/projectcalico.org/workloadendpoints/default/ip--10--0--0--5-k8s-web--0-eth0",
            ),
            (
                Key::Block(cidr("192.168.106.64/26")),
                "/calico/ipam/v2/assignment/ipv4/block/192.168.106.64-26",
            ),
            (
                Key::Affinity {
                    owner: AffinityOwner::Host("node-a".into()),
                    block: cidr("fd00:10:244::40/122"),
                },
                "/calico/ipam/v2/host/node-a/ipv6/block/fd00:10:244::40-122",
            ),
            (
                Key::Affinity {
                    owner: AffinityOwner::Virtual("load-balancer".into()),
                    block: cidr("10.0.0.0/26"),
                },
                "/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.0.0.0-26",
            ),
            (Key::Handle("k8s-pod-network.0f3a".into()), "/calico/ipam/v2/handle/k8s-pod-network.0f3a"),
            (Key::IpamConfig, "/calico/ipam/v2/config"),
        ];
        for (key, text) in cases {
            assert_eq!(key.etcd_text(), text);
            assert_eq!(Key::from_etcd_text(text).as_ref(), Ok(&key), "{text}");
        }
    }

    #[test]
    fn strange_keys_are_unknown() {
        for text in [
            "/calico/ipam/v2/host/node-a",
            "/calico/felix/v2/no-region/host/node-a/status",
            "/calico/resources/v3/projectcalico.org/ippools/",
            "/calico/resources/v3/projectcalico.org/ippools/a/b",
            "/calico/resources/v3/projectcalico.org/workloadendpoints/only-namespace",
            "/calico/ipam/v2/assignment/ipv6/block/10.0.0.0-26",
            "/calico/ipam/v2/assignment/ipv4/block/10.0.0.1-26",
            "/calico/ipam/v2/assignment/ipv6/block/FD00::-122",
            "/calico/ipam/v2/host/node-a/ipv6/block/fd00:0::-122",
            "",
        ] {
            assert!(Key::from_etcd_text(text).is_err(), "{text}");
        }
    }
}
