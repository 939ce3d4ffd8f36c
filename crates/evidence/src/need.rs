//! Kinds of evidence, as checks ask for them.

use model::Kind;

use crate::{Evidence, NodeEvidence};

/// A kind of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    Pods,
    KubeNodes,
    Events,
    Endpoints,
    Record(Kind),
    /// Blocks, handles and affinities, or any of them.
    Ipam,
    Links,
    Addresses,
    Routes,
    Neighbours,
    Sysctls,
    Firewall,
    PodViews,
    Bgp,
    /// The runtime's list of sandboxes, or of containers.
    Runtime,
    Setup,
    /// Packets that were sent to see whether they arrive.
    Probes,
    Log,
    /// Options and configuration maps of other components.
    Settings,
}

impl Need {
    /// Whether it was collected.
    pub fn is_met(self, evidence: &Evidence) -> bool {
        let any_node =
            |has: fn(&NodeEvidence) -> bool| evidence.nodes.values().chain(&evidence.unplaced).any(has);
        match self {
            Need::Pods => evidence.pods.is_some(),
            Need::KubeNodes => evidence.kube_nodes.is_some(),
            Need::Events => evidence.events.is_some(),
            Need::Endpoints => evidence.endpoints.is_some(),
            Need::Record(kind) => evidence.records.of(kind).is_some(),
            Need::Ipam => evidence.ipam.is_some(),
            Need::Links => any_node(|node| node.kernel.links.is_some()),
            Need::Addresses => any_node(|node| node.kernel.addresses.is_some()),
            Need::Routes => any_node(|node| node.kernel.routes.is_some()),
            Need::Neighbours => any_node(|node| node.kernel.neighbours.is_some()),
            Need::Sysctls => any_node(|node| node.kernel.sysctls.is_some()),
            Need::Firewall => any_node(|node| node.firewall.is_some()),
            Need::PodViews => any_node(|node| node.pod_views.is_some()),
            Need::Bgp => any_node(|node| node.bgp.is_some()),
            Need::Runtime => any_node(|node| node.sandboxes.is_some() || node.containers.is_some()),
            Need::Setup => any_node(|node| node.setup != crate::node::Setup::default()),
            Need::Probes => any_node(|node| node.setup.probed.is_some()),
            Need::Log => evidence.log.is_some(),
            Need::Settings => evidence.settings.is_some(),
        }
    }

    /// What it is called in "… were not collected".
    pub fn words(self) -> String {
        match self {
            Need::Pods => "pods".to_owned(),
            Need::KubeNodes => "Kubernetes nodes".to_owned(),
            Need::Events => "events".to_owned(),
            Need::Endpoints => "WorkloadEndpoint records".to_owned(),
            Need::Record(kind) => format!("{} records", kind.name()),
            Need::Ipam => "IPAM records".to_owned(),
            Need::Links => "network links of nodes".to_owned(),
            Need::Addresses => "addresses of nodes".to_owned(),
            Need::Routes => "routes of nodes".to_owned(),
            Need::Neighbours => "neighbour entries of nodes".to_owned(),
            Need::Sysctls => "kernel settings (sysctls) of nodes".to_owned(),
            Need::Firewall => "nftables rules of nodes".to_owned(),
            Need::PodViews => "observations from inside pods".to_owned(),
            Need::Bgp => "BGP sessions".to_owned(),
            Need::Runtime => "sandboxes of the container runtime".to_owned(),
            Need::Setup => "node settings".to_owned(),
            Need::Probes => "probe results (--probe)".to_owned(),
            Need::Log => "logs".to_owned(),
            Need::Settings => "settings of kube-apiserver and kube-proxy".to_owned(),
        }
    }
}
