//! What a finding is about, so that findings can be matched with each other, and a repair knows what to look at.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use model::{AffinityOwner, Cidr, HandleId, Key, NodeName};
use serde::{Serialize, Serializer};

use evidence::endpoint::EndpointApi;
use evidence::{Endpoint, PodName};

/// In JSON and on the terminal its words: `192.168.91.33`, `pod default/web-0`, `device cali1 on node-a`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The cluster as a whole.
    Cluster,
    /// An address, whoever has it.
    Address(IpAddr),
    /// A node.
    Node(NodeName),
    /// A pod, whatever its sandbox.
    Pod(PodName),
    /// By the record's own name; the namespace is empty for v1.
    Endpoint { namespace: String, name: String },
    /// By container ID.
    Sandbox(String),
    /// An IPAMBlock.
    Block(Cidr),
    /// An IPAMHandle, by its ID.
    Handle(HandleId),
    /// A BlockAffinity.
    Affinity { owner: AffinityOwner, block: Cidr },
    /// A network device of a node.
    Device { node: NodeName, device: String },
    /// A route of a node's main table.
    Route { node: NodeName, destination: IpNet },
    /// A neighbour entry of a node.
    Neighbour { node: NodeName, address: IpAddr, device: String },
    /// A setting of a node, by its path below `/proc/sys`.
    Sysctl { node: NodeName, path: String },
    /// A BGP session, by the node that was looked at and its peer.
    Session { node: NodeName, peer: IpAddr },
    /// From one node to another.
    Way { node: NodeName, to: NodeName },
    /// Any other record.
    Record(Key),
    /// A file of evidence.
    File(String),
}

impl Subject {
    pub fn node(name: impl Into<NodeName>) -> Subject {
        Subject::Node(name.into())
    }

    pub fn device(node: impl Into<NodeName>, device: impl Into<String>) -> Subject {
        Subject::Device { node: node.into(), device: device.into() }
    }

    /// The route of a node to a network, or to a single address.
    pub fn route(node: impl Into<NodeName>, destination: impl Into<IpNet>) -> Subject {
        Subject::Route { node: node.into(), destination: destination.into() }
    }

    pub fn neighbour(node: impl Into<NodeName>, address: IpAddr, device: impl Into<String>) -> Subject {
        Subject::Neighbour { node: node.into(), address, device: device.into() }
    }

    pub fn sysctl(node: impl Into<NodeName>, path: impl Into<String>) -> Subject {
        Subject::Sysctl { node: node.into(), path: path.into() }
    }

    pub fn session(node: impl Into<NodeName>, peer: IpAddr) -> Subject {
        Subject::Session { node: node.into(), peer }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Cluster => f.write_str("cluster"),
            Subject::Address(address) => write!(f, "{address}"),
            Subject::Node(name) => write!(f, "node {name}"),
            Subject::Pod(name) => write!(f, "pod {name}"),
            Subject::Endpoint { namespace, name } if namespace.is_empty() => write!(f, "endpoint {name}"),
            Subject::Endpoint { namespace, name } => write!(f, "endpoint {namespace}/{name}"),
            Subject::Sandbox(id) => write!(f, "sandbox {}", id.get(..12).unwrap_or(id)),
            Subject::Block(cidr) => write!(f, "block {cidr}"),
            Subject::Handle(id) => write!(f, "handle {id}"),
            Subject::Affinity { owner, block } => write!(f, "affinity of {} for {block}", owner.name()),
            Subject::Device { node, device } => write!(f, "device {device} on {node}"),
            Subject::Route { node, destination } => write!(f, "route {destination} on {node}"),
            Subject::Neighbour { node, address, device } => {
                write!(f, "neighbour {address} at {device} on {node}")
            }
            Subject::Sysctl { node, path } => write!(f, "{path} on {node}"),
            Subject::Session { node, peer } => write!(f, "BGP session {node} to {peer}"),
            Subject::Way { node, to } => write!(f, "way {node} to {to}"),
            Subject::Record(key) => write!(f, "{key}"),
            Subject::File(name) => write!(f, "file {name}"),
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<IpAddr> for Subject {
    fn from(address: IpAddr) -> Subject {
        Subject::Address(address)
    }
}

impl From<&NodeName> for Subject {
    fn from(name: &NodeName) -> Subject {
        Subject::Node(name.clone())
    }
}

impl From<Cidr> for Subject {
    fn from(block: Cidr) -> Subject {
        Subject::Block(block)
    }
}

impl From<&Endpoint> for Subject {
    fn from(endpoint: &Endpoint) -> Subject {
        let namespace = match endpoint.api {
            EndpointApi::V3 => endpoint.namespace.clone().unwrap_or_default(),
            EndpointApi::V1 => String::new(),
        };
        Subject::Endpoint { namespace, name: endpoint.name.clone() }
    }
}

impl From<&PodName> for Subject {
    fn from(name: &PodName) -> Subject {
        Subject::Pod(name.clone())
    }
}

impl From<PodName> for Subject {
    fn from(name: PodName) -> Subject {
        Subject::Pod(name)
    }
}

impl From<Key> for Subject {
    /// IPAM's own records have subjects of their own.
    fn from(key: Key) -> Subject {
        match key {
            Key::Block(cidr) => Subject::Block(cidr),
            Key::Handle(id) => Subject::Handle(id),
            Key::Affinity { owner, block } => Subject::Affinity { owner, block },
            other => Subject::Record(other),
        }
    }
}
