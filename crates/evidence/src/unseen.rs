//! What could not be seen, why, and which checks could not run therefore. Its words stand here alone.

use std::collections::BTreeSet;
use std::fmt;

use model::{FindingCode, Key, Kind, NodeName};
use serde::{Serialize, Serializer};

use crate::Need;

/// Something that is missing in the evidence, or in what was concluded from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// The store could not be read.
    Store { why: String },
    /// A list of Kubernetes could not be read.
    Kubernetes { list: KubeList, why: String },
    /// Kinds of records that a cluster does not serve: its definitions are of another release.
    NotServed { kinds: Vec<Kind> },
    /// Kinds of records that may not be read. `why` is about the first of them.
    Refused { kinds: Vec<Kind>, why: String },
    /// Records are in both of Calico's API groups, and only those of one were read.
    DividedGroups { read: String, other: String },
    /// A record could not be read.
    Record { key: Key, why: String },
    /// Something of a node could not be seen.
    Node { node: NodeName, gap: NodeGap },
    /// Of a node whose name is not known, because its agent did not answer.
    UnknownNode { why: String },
    /// Something of a file could not be used.
    File { name: String, gap: FileGap },
    /// An agent did not send the packets it was asked for.
    NoPackets { why: String },
    /// Nodes that got no packets, beyond the limit.
    NodesWithoutPackets(usize),
    /// As a bundle has it: the words of the program that wrote it.
    Reported(String),
    /// Evidence of a kind is missing, so these checks could not run.
    NotCollected { need: Need, checks: BTreeSet<FindingCode> },
    /// A list is not whole, so this check could not run.
    Incomplete { list: PartialList, check: FindingCode },
    /// One value of a record that a check could not use.
    Value { record: String, value: String, check: FindingCode },
    /// Findings beyond the limit.
    Findings { more: usize, limit: usize, check: FindingCode },
}

/// What of a node could not be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeGap {
    All { why: String },
    Part { part: String, why: String },
    Bird { socket: String, why: String },
    Packets { why: String },
    PodsBeyondLimit(usize),
    PodCut { whose: String, lists: Vec<String> },
}

/// What of a file could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileGap {
    All { why: String },
    UnknownFormat,
    Compressed { program: &'static str },
    PackedTooDeep,
    CutArchive { why: String },
    Lines { first: u32, count: u64 },
    BundleLine { line: usize, why: String },
    MoreBundleLines(usize),
    MoreItems(usize),
    BeyondMemory(u64),
    RulesBeyondLimit { limit: usize },
    FilesBeyondLimit { count: u64, limit: usize },
    EventsBeyondLimit { count: u64, limit: usize },
    CutBlock { line: u32, block: Option<model::Cidr> },
    Document { line: u32 },
    UnidentifiedRecord { record: String },
}

/// What Kubernetes was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeList {
    Pods,
    Nodes,
    /// When kubelets showed last that they run. Not every cluster lets an operator read them.
    Leases,
    /// It is another cluster.
    All,
}

/// A list that a check needs as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialList {
    UsersOfAddresses,
    Endpoints,
}

impl Unseen {
    pub fn node(node: impl Into<NodeName>, gap: NodeGap) -> Unseen {
        Unseen::Node { node: node.into(), gap }
    }

    pub fn file(name: impl Into<String>, gap: FileGap) -> Unseen {
        Unseen::File { name: name.into(), gap }
    }

    /// What is missing, without the checks that it concerns.
    pub fn cause(&self) -> String {
        match self {
            Unseen::NotCollected { need, .. } => format!("{} were not collected", need.words()),
            Unseen::Incomplete { list: PartialList::UsersOfAddresses, .. } => {
                "not all users of addresses were collected".to_owned()
            }
            Unseen::Incomplete { list: PartialList::Endpoints, .. } => {
                "the list of endpoints is incomplete".to_owned()
            }
            Unseen::Value { record, value, .. } => format!("{record}: {value} cannot be read"),
            other => other.to_string(),
        }
    }

    /// Whether what most checks rest on could not be read: without it nothing found is not the same as nothing wrong.
    pub fn is_essential(&self) -> bool {
        match self {
            Unseen::Store { .. } | Unseen::Refused { .. } | Unseen::DividedGroups { .. } => true,
            Unseen::Kubernetes { list, .. } => *list != KubeList::Leases,
            _ => false,
        }
    }

    /// Whether it was not asked for, rather than there and of no use.
    pub fn is_not_collected(&self) -> bool {
        matches!(self, Unseen::NotCollected { .. })
    }
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unseen::Store { why } => write!(f, "the store could not be read: {why}"),
            Unseen::Kubernetes { list, why } => write!(f, "{} could not be read: {why}", list.words()),
            Unseen::NotServed { kinds } => {
                let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                write!(
                    f,
                    "the cluster does not serve {}, because its CustomResourceDefinitions are of another release; \
                     plumb install --crds --apply creates those that are missing",
                    kinds.join(", ")
                )
            }
            Unseen::Refused { kinds, why } => {
                let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                write!(f, "records could not be read ({}): {why}", kinds.join(", "))
            }
            Unseen::DividedGroups { read, other } => write!(
                f,
                "Calico's records are in two API groups, {read} and {other}, so a migration is not finished, and only \
                 those of {read} were read; set CALICO_API_GROUP to the group that the cluster uses"
            ),
            Unseen::Record { key, why } => write!(f, "{key} could not be read: {why}"),
            Unseen::Node { node, gap } => gap.write(node, f),
            Unseen::UnknownNode { why } => write!(f, "a node was not observed: {why}"),
            Unseen::File { name, gap } => gap.write(name, f),
            Unseen::NoPackets { why } => write!(f, "no packets were sent: {why}"),
            Unseen::NodesWithoutPackets(count) => {
                write!(f, "no packets were sent to {count} more nodes, because there are too many")
            }
            Unseen::Reported(words) => f.write_str(words),
            Unseen::NotCollected { checks, .. } => {
                let checks: Vec<&str> = checks.iter().map(|check| check.as_str()).collect();
                write!(f, "{}, so {} could not run", self.cause(), checks.join(", "))
            }
            Unseen::Incomplete { check, .. } => write!(f, "{}, so {check} could not run", self.cause()),
            Unseen::Value { check, .. } => write!(f, "{}, so {check} skipped it", self.cause()),
            Unseen::Findings { more, limit, check } => write!(
                f,
                "{more} more findings of {check} were skipped: at most {limit} findings of one code are listed"
            ),
        }
    }
}

impl KubeList {
    fn words(self) -> &'static str {
        match self {
            KubeList::Pods => "the pods of Kubernetes",
            KubeList::Nodes => "the nodes of Kubernetes",
            KubeList::Leases => "the leases of kubelets",
            KubeList::All => "Kubernetes",
        }
    }
}

impl NodeGap {
    fn write(&self, node: &NodeName, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeGap::All { why } => write!(f, "node {node} could not be observed: {why}"),
            NodeGap::Part { part, why } => write!(f, "node {node}: {part} could not be read: {why}"),
            NodeGap::Bird { socket, why } => {
                write!(f, "node {node}: BIRD at {socket} could not be asked: {why}")
            }
            NodeGap::Packets { why } => write!(f, "node {node} could not send packets: {why}"),
            NodeGap::PodsBeyondLimit(count) => {
                write!(f, "node {node}: {count} pods were not observed, because there are too many")
            }
            NodeGap::PodCut { whose, lists } => write!(
                f,
                "node {node}: the network of {whose} was not read completely: it has {}, and the rest was not read",
                lists.join(", ")
            ),
        }
    }
}

impl FileGap {
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileGap::All { why } => write!(f, "{name} could not be read: {why}"),
            FileGap::UnknownFormat => write!(f, "{name}: no known format"),
            FileGap::Compressed { program } => {
                write!(f, "{name} is compressed: unpack it first, with {program}")
            }
            FileGap::PackedTooDeep => write!(f, "{name} is packed too many times and was not read"),
            FileGap::CutArchive { why } => write!(f, "{name} could not be unpacked completely: {why}"),
            FileGap::Lines { first, count: 1 } => write!(f, "{name}: line {first} could not be read"),
            FileGap::Lines { first, count } => {
                write!(f, "{name}: {count} lines from line {first} on could not be read")
            }
            FileGap::BundleLine { line, why } => write!(f, "{name}:{line} could not be used: {why}"),
            FileGap::MoreBundleLines(count) => write!(f, "{name}: {count} more lines could not be used"),
            FileGap::MoreItems(count) => write!(f, "{name}: {count} more items could not be read"),
            FileGap::BeyondMemory(count) => write!(
                f,
                "{name}: {count} lines or items were skipped, because they hold more than can be kept"
            ),
            FileGap::RulesBeyondLimit { limit } => write!(
                f,
                "{name}: firewall rules were skipped: no dump of more than {limit} chains and rules is read"
            ),
            FileGap::FilesBeyondLimit { count: 1, limit } => {
                write!(f, "{name} was skipped: no more than {limit} files are read")
            }
            FileGap::FilesBeyondLimit { count, limit } => {
                write!(
                    f,
                    "{name} and later files, {count} in all, were skipped: no more than {limit} files are read"
                )
            }
            FileGap::EventsBeyondLimit { count, limit } => {
                write!(f, "{name}: {count} events were skipped: no more than {limit} of all files are kept")
            }
            FileGap::CutBlock { line, block } => {
                let block = block.map_or_else(|| "a block".to_owned(), |block| format!("block {block}"));
                write!(f, "{name} line {line}: {block} is cut off, so only the part that exists was checked")
            }
            FileGap::Document { line } => {
                write!(f, "{name} line {line}: a document is cut, broken or too large, and was skipped")
            }
            FileGap::UnidentifiedRecord { record } => write!(f, "{name}: {record} cannot be identified"),
        }
    }
}

/// As its words: in a report's JSON.
impl Serialize for Unseen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
