//! Which address of a node the other nodes shall use.
//!
//! In this order, for each IP version by itself:
//! 1. What the operator says: an address (`IP`), or where to look for it (`IP_AUTODETECTION_METHOD`), in Calico's words
//!    and with Calico's answers.
//! 2. The address that is recorded, while the node still has it. A card that is added, or that comes and goes, does not
//!    move a node.
//! 3. What Kubernetes calls the node's internal address, or the kubelet's `--node-ip`.
//! 4. The source address of the default route. With several cards and nothing that confirms it, that is doubtful.
//!
//! Nobody takes an address that another node has, or one that may move to another machine. By default nobody takes one that other
//! nodes do not answer to, in several looks, while they answer to another ([`Probe`], [`Silences`]). What is taken but does not
//! look right is flagged ([`Doubt`]); what must not be taken is refused ([`Refusal`]); both say why, for the log, the
//! status of the node, a metric and the doctor.

mod choose;
mod method;
mod probe;
mod silence;
mod steady;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use model::IpVersion;

pub use choose::choose_address;
pub use method::{Method, MethodError, Wish};
pub use probe::{Probe, Unanswered, unanswered};
pub use silence::Silences;
pub use steady::{Patience, Steady, Verdict};

/// A device of the node with its addresses, in the kernel's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    /// It is set up and has a carrier.
    pub is_up: bool,
    pub addresses: Vec<InterfaceAddress>,
}

/// An address with the length of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub network: IpNet,
    /// The kernel calls it secondary: there was another one of the same network before it.
    pub is_secondary: bool,
    /// Not to be used for anything new, or not yet known to be nobody else's.
    pub is_unfit: bool,
}

/// What is known about the node and its neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    pub interfaces: Vec<Interface>,
    /// Source addresses of the default routes, the one that the kernel prefers first.
    pub default_sources: Vec<IpAddr>,
    /// What Kubernetes says: the InternalIP of the node, or the kubelet's `--node-ip`.
    pub internal_addresses: Vec<IpAddr>,
    /// The local address that leads to where `can-reach` wants to, if that was asked.
    pub towards: Option<IpAddr>,
    /// What the record of the node says now.
    pub recorded: Option<IpNet>,
    pub others: Vec<OtherNode>,
    /// What came of [`Surroundings::questions`]; empty if nobody was asked.
    pub probes: Vec<Probe>,
}

/// Another node, as its record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherNode {
    pub name: String,
    pub address: IpNet,
}

/// The address to use, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// `None` if there is none to be had, or none that may be taken.
    pub address: Option<Chosen>,
    /// What speaks against it, though it is taken.
    pub doubts: Vec<Doubt>,
    /// What was not taken that would have come first.
    pub refused: Vec<Refusal>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub network: IpNet,
    /// The device that has it, if one does.
    pub interface: Option<String>,
    pub why: Why,
}

/// How the address came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The operator has said so.
    Said,
    /// By a method that the operator has named.
    Method(String),
    /// It was the node's before, and still is.
    Recorded,
    KubernetesInternal,
    DefaultRoute,
    /// Nothing that comes before it is any good, and other nodes answer to it.
    Answered,
}

/// What speaks against an address that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// No device of the node has it.
    NotOnNode { address: IpAddr },
    /// Its device is down.
    DeviceDown { address: IpAddr, interface: String },
    /// The other nodes are in other networks.
    OtherNetwork { network: IpNet, common: IpNet, nodes: usize },
    /// Kubernetes calls another address the node's internal one.
    NotInternal { address: IpAddr, internal: IpAddr },
    /// The node had another one.
    Moved { from: IpAddr, to: IpAddr },
    /// Other nodes do not answer to it, but to another one.
    Unanswered { address: IpAddr, unanswered: Unanswered },
    /// The operator named a method, and it was not applied: the recorded address stays as long as the node has it.
    MethodUnused { method: String, address: IpAddr, found: Option<IpAddr> },
    /// Other cards would do as well, and nothing says which of them the other nodes use.
    SeveralCards { address: IpAddr, others: Vec<IpAddr> },
}

impl Doubt {
    /// Whether only the operator can settle it, by a setting.
    pub fn is_for_operator(&self) -> bool {
        matches!(self, Doubt::MethodUnused { .. } | Doubt::SeveralCards { .. })
    }
}

/// An address that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub address: IpAddr,
    pub reason: RefusalReason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// Another node has it.
    OtherNode { node: String },
    /// It may move to another machine: a secondary address, or one without a network beside one that has one.
    Virtual { interface: String },
    /// It leads nowhere: loopback, link-local, multicast.
    NotGlobal,
    /// None of the other nodes' networks contains it, and there is one that does.
    OtherNetwork { common: IpNet },
    /// Other nodes do not answer to it, but to another one.
    Unanswered(Unanswered),
}

impl Surroundings {
    /// The device that has this address, and the network it is in there.
    pub(crate) fn find(&self, address: IpAddr) -> Option<(&Interface, &InterfaceAddress)> {
        self.interfaces.iter().find_map(|interface| {
            let found = interface.addresses.iter().find(|known| known.network.addr() == address)?;
            Some((interface, found))
        })
    }

    /// An address with its network: that of the device that has it, else the recorded one, for a card may come back; alone
    /// where neither is known.
    pub(crate) fn with_network(&self, address: IpAddr) -> IpNet {
        let recorded = || self.recorded.filter(|recorded| recorded.addr() == address);
        let found = self.find(address).map(|(_, found)| found.network).or_else(recorded);
        found.unwrap_or_else(|| IpNet::from(address))
    }

    /// The network that most of the other nodes of this version are in, and how many.
    pub(crate) fn common_network(&self, version: IpVersion) -> Option<(IpNet, usize)> {
        let networks = self
            .others
            .iter()
            .map(|other| other.address.trunc())
            .filter(|network| IpVersion::of(network.addr()) == version && !is_single(network));
        let mut counts: BTreeMap<IpNet, usize> = BTreeMap::new();
        networks.for_each(|network| *counts.entry(network).or_default() += 1);
        // Of several, the smallest number: the same on every node.
        counts.into_iter().max_by_key(|(network, count)| (*count, std::cmp::Reverse(*network)))
    }
}

/// A network of one address says nothing about who is near.
pub(crate) fn is_single(network: &IpNet) -> bool {
    network.prefix_len() == network.max_prefix_len()
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Said => f.write_str("configured"),
            Why::Method(method) => write!(f, "found by {method}"),
            Why::Recorded => f.write_str("recorded, and the node still has it"),
            Why::KubernetesInternal => f.write_str("Kubernetes' InternalIP or the kubelet's --node-ip"),
            Why::DefaultRoute => f.write_str("source of the default route"),
            Why::Answered => f.write_str("other nodes answer to it"),
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::NotOnNode { address } => write!(f, "no device of this node has {address}"),
            Doubt::DeviceDown { address, interface } => {
                write!(f, "{interface}, which has {address}, is down")
            }
            Doubt::OtherNetwork { network, common, nodes } => {
                write!(f, "{network} is not in {common}, where {nodes} other nodes are")
            }
            Doubt::NotInternal { address, internal } => {
                write!(f, "Kubernetes knows this node as {internal}, not as {address}")
            }
            Doubt::Moved { from, to } => write!(f, "this node was at {from} before, and is at {to} now"),
            Doubt::Unanswered { address, unanswered } => write!(f, "{address}: {unanswered}"),
            Doubt::MethodUnused { method, address, found } => {
                write!(
                    f,
                    "the method {method} has no effect: the node is already registered with {address}, and keeps it; "
                )?;
                match found {
                    Some(found) => {
                        write!(f, "the method would choose {found}; set IP=autodetect to apply it")
                    }
                    None => f.write_str("the method finds no address on this node"),
                }
            }
            Doubt::SeveralCards { address, others } => {
                let others: Vec<String> = others.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "nothing confirms that other nodes reach this node at {address} and not at {}; set IP, \
                     IP_AUTODETECTION_METHOD, or the kubelet's --node-ip",
                    others.join(", ")
                )
            }
        }
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked: Vec<String> = self.asked.iter().map(ToString::to_string).collect();
        let verb = if asked.len() == 1 { "does" } else { "do" };
        write!(f, "{} {verb} not answer to it, but to {}", asked.join(", "), self.but_from)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        match &self.reason {
            RefusalReason::OtherNode { node } => write!(f, "{address} is the address of the node {node}"),
            RefusalReason::Virtual { interface } => {
                write!(f, "{address} on {interface} may move to another machine")
            }
            RefusalReason::NotGlobal => write!(f, "{address} cannot be reached from other nodes"),
            RefusalReason::OtherNetwork { common } => {
                write!(f, "{address} is not in {common}, where the other nodes are")
            }
            RefusalReason::Unanswered(unanswered) => write!(f, "{address}: {unanswered}"),
        }
    }
}
