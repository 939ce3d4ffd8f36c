//! Records as policy needs them: parsed, checked, and with selectors that already say which namespace they mean.
//!
//! What cannot be understood is never guessed. A reader returns a [`Fault`] that names the field, and whoever asked decides which way is the
//! closed one.

mod calico;
mod cluster;
mod endpoint;
mod entity;
mod fields;
mod kubernetes;
mod kubernetes_ports;
mod service;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use model::{IpVersion, Selector};

use crate::ruleset::{Icmp, PortRange, Side};

pub(crate) use calico::{read_policy, read_profile, read_tier};
pub(crate) use cluster::{ClusterKind, read_cluster_policy};
pub(crate) use endpoint::{Endpoint, NamedPort, read_host, read_network_set, read_workload};
pub(crate) use kubernetes::{read_kubernetes_policy, read_staged_kubernetes};
pub(crate) use service::{Slice, read_slice};

/// From the namespace of a record to its endpoints.
pub(crate) const LABEL_NAMESPACE: &str = "projectcalico.org/namespace";
pub(crate) const LABEL_ORCHESTRATOR: &str = "projectcalico.org/orchestrator";
pub(crate) const LABEL_ACCOUNT: &str = "projectcalico.org/serviceaccount";
/// What stands before the labels of a namespace, or of a service account, where its pods inherit them.
pub(crate) const NAMESPACE_PREFIX: &str = "pcns.";
pub(crate) const ACCOUNT_PREFIX: &str = "pcsa.";

/// Which record a policy was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyKind {
    NetworkPolicy,
    GlobalNetworkPolicy,
    StagedNetworkPolicy,
    StagedGlobalNetworkPolicy,
    StagedKubernetesNetworkPolicy,
    KubernetesNetworkPolicy,
    ClusterNetworkPolicy,
    AdminNetworkPolicy,
    BaselineAdminNetworkPolicy,
}

impl PolicyKind {
    /// As in Calico's names of chains.
    pub fn short(self) -> &'static str {
        match self {
            PolicyKind::NetworkPolicy => "np",
            PolicyKind::GlobalNetworkPolicy => "gnp",
            PolicyKind::StagedNetworkPolicy => "snp",
            PolicyKind::StagedGlobalNetworkPolicy => "sgnp",
            PolicyKind::StagedKubernetesNetworkPolicy => "sknp",
            PolicyKind::KubernetesNetworkPolicy => "knp",
            PolicyKind::ClusterNetworkPolicy => "kcnp",
            PolicyKind::AdminNetworkPolicy => "kanp",
            PolicyKind::BaselineAdminNetworkPolicy => "kbanp",
        }
    }

    /// As in manifests, and where policies of equal order are compared.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::NetworkPolicy => "NetworkPolicy",
            PolicyKind::GlobalNetworkPolicy => "GlobalNetworkPolicy",
            PolicyKind::StagedNetworkPolicy => "StagedNetworkPolicy",
            PolicyKind::StagedGlobalNetworkPolicy => "StagedGlobalNetworkPolicy",
            PolicyKind::StagedKubernetesNetworkPolicy => "StagedKubernetesNetworkPolicy",
            PolicyKind::KubernetesNetworkPolicy => "KubernetesNetworkPolicy",
            PolicyKind::ClusterNetworkPolicy => "ClusterNetworkPolicy",
            PolicyKind::AdminNetworkPolicy => "AdminNetworkPolicy",
            PolicyKind::BaselineAdminNetworkPolicy => "BaselineAdminNetworkPolicy",
        }
    }

    pub fn is_staged(self) -> bool {
        matches!(
            self,
            PolicyKind::StagedNetworkPolicy
                | PolicyKind::StagedGlobalNetworkPolicy
                | PolicyKind::StagedKubernetesNetworkPolicy
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyId {
    pub kind: PolicyKind,
    pub namespace: Option<Arc<str>>,
    pub name: Arc<str>,
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.iter().map(|namespace| format!("{namespace}/")).collect::<String>();
        write!(f, "{}/{namespace}{}", self.kind.short(), self.name)
    }
}

/// Ascending; what has none comes last.
#[derive(Clone, Copy, Debug)]
pub struct Order(f64);

impl Order {
    pub const LAST: Order = Order(f64::INFINITY);

    pub fn new(order: f64) -> Order {
        // The two zeros are one order.
        Order(if order == 0.0 { 0.0 } else { order })
    }
}

impl PartialEq for Order {
    fn eq(&self, other: &Order) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Order {}

impl PartialOrd for Order {
    fn partial_cmp(&self, other: &Order) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Order {
    fn cmp(&self, other: &Order) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleAction {
    Allow,
    Deny,
    Pass,
    Log,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    pub const BOTH: [Direction; 2] = [Direction::Ingress, Direction::Egress];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        })
    }
}

/// When a policy is asked. All but `Normal` speak of host endpoints only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Workloads, and what local processes of a host send and receive.
    Normal,
    /// The same, and what a host forwards.
    NormalAndForward,
    /// Before services are translated.
    PreDnat,
    /// Before connections are tracked.
    Untracked,
}

/// A policy of any kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    pub(crate) id: PolicyId,
    pub(crate) tier: Arc<str>,
    pub(crate) order: Order,
    pub(crate) layer: Layer,
    pub(crate) subject: Selector,
    /// None if it does not speak of the direction.
    pub(crate) ingress: Option<Vec<Rule>>,
    pub(crate) egress: Option<Vec<Rule>>,
    /// Why it was set aside. It denies everything then, to those whom it selects or might select.
    pub(crate) set_aside: Option<Arc<str>>,
    /// What else is wrong with it, where the closed way is to leave out a rule.
    pub(crate) remarks: Vec<Arc<str>>,
}

impl Policy {
    pub(crate) fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }
}

/// All that is set must be true of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub action: RuleAction,
    pub version: Option<IpVersion>,
    pub protocol: Option<u8>,
    pub not_protocol: Option<u8>,
    pub icmp: Option<Icmp>,
    pub not_icmp: Option<Icmp>,
    pub source: Entity,
    pub destination: Entity,
    /// What its author calls it.
    pub name: Option<Arc<str>>,
}

impl Rule {
    pub(crate) fn new(action: RuleAction) -> Rule {
        Rule {
            action,
            version: None,
            protocol: None,
            not_protocol: None,
            icmp: None,
            not_icmp: None,
            source: Entity::default(),
            destination: Entity::default(),
            name: None,
        }
    }

    pub(crate) fn entity(&self, side: Side) -> &Entity {
        match side {
            Side::Source => &self.source,
            Side::Destination => &self.destination,
        }
    }

    /// The sets that it refers to.
    pub(crate) fn sets(&self) -> impl Iterator<Item = &Arc<SetSource>> {
        [&self.source, &self.destination].into_iter().flat_map(|entity| {
            [&entity.members, &entity.not_members, &entity.named_ports, &entity.not_named_ports]
                .into_iter()
                .flatten()
        })
    }
}

/// One side of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entity {
    /// In one of them, unless there are none.
    pub nets: Vec<IpNet>,
    /// In none of them.
    pub not_nets: Vec<IpNet>,
    pub members: Option<Arc<SetSource>>,
    pub not_members: Option<Arc<SetSource>>,
    /// One of these ports or named ports, unless there are neither.
    pub ports: Vec<PortRange>,
    pub named_ports: Option<Arc<SetSource>>,
    pub not_ports: Vec<PortRange>,
    pub not_named_ports: Option<Arc<SetSource>>,
}

/// What the members of a set are made from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetSource {
    /// Addresses of what a selector matches; its canonical text.
    Selector(Arc<str>),
    /// Addresses with the ports of these names, of what a selector matches.
    NamedPorts { selector: Arc<str>, protocol: Option<u8>, names: BTreeSet<Arc<str>> },
    /// Addresses of a service's endpoints.
    Service { namespace: Arc<str>, name: Arc<str> },
    /// The same with the service's ports.
    ServicePorts { namespace: Arc<str>, name: Arc<str> },
}

impl SetSource {
    /// Whether its members are addresses with ports.
    pub fn has_ports(&self) -> bool {
        matches!(self, SetSource::NamedPorts { .. } | SetSource::ServicePorts { .. })
    }
}

impl fmt::Display for SetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetSource::Selector(text) => write!(f, "selector {text}"),
            SetSource::NamedPorts { selector, protocol, names } => {
                let names: Vec<&str> = names.iter().map(|name| &**name).collect();
                let protocol = protocol.map_or("any".to_owned(), |protocol| protocol.to_string());
                write!(f, "ports {} of protocol {protocol} of selector {selector}", names.join(","))
            }
            SetSource::Service { namespace, name } => write!(f, "service {namespace}/{name}"),
            SetSource::ServicePorts { namespace, name } => write!(f, "ports of service {namespace}/{name}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tier {
    pub(crate) order: Order,
    pub(crate) passes: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Profile {
    pub(crate) ingress: Vec<Rule>,
    pub(crate) egress: Vec<Rule>,
    pub(crate) labels: Vec<(Arc<str>, Arc<str>)>,
    pub(crate) set_aside: Option<Arc<str>>,
}

impl Profile {
    pub(crate) fn rules(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}
