//! Nodes and how they are set up.

pub(super) mod calico_node_not_ready;
pub(super) mod clock_skew;
pub(super) mod cni_config_shadowed;
pub(super) mod credentials_expired;
pub(super) mod del_unfinished;
pub(super) mod etcd_even_members;
pub(super) mod forwarding_off;
pub(super) mod kubelet_failing;
pub(super) mod kubelet_refuses_swap;
pub(super) mod node_address_doubtful;
pub(super) mod node_address_missing;
pub(super) mod node_address_shared;
pub(super) mod node_address_unfit;
pub(super) mod node_address_wrong;
pub(super) mod node_left_behind;
pub(super) mod node_not_ready;
pub(super) mod node_unrecorded;
pub(super) mod nodename_differs;
pub(super) mod rp_filter_loose;
pub(super) mod state_folder_unusable;
pub(super) mod store_unreachable;
pub(super) mod store_unstable;

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::NodeName;

use crate::Case;
use evidence::Pod;

/// Whether a pod is the one that brings its node the network: Calico's, or ours.
fn is_network_pod(pod: &Pod) -> bool {
    let name = &pod.name.name;
    (name.starts_with("calico-node-") || name.starts_with("plumbd-"))
        && pod.name.namespace.as_deref().is_none_or(|space| {
            matches!(space, "kube-system" | "calico-system" | "plumb-system" | "plumbline")
        })
}

/// Addresses that a node is known by apart from what its network records say: Kubernetes', its kernel's, and those of pods that
/// always use their node's network.
fn cluster_addresses(case: &Case<'_>, node: &NodeName) -> BTreeSet<IpAddr> {
    let mut addresses: BTreeSet<IpAddr> =
        case.node_view(node).into_iter().flat_map(|view| view.internal_ips().collect::<Vec<_>>()).collect();
    let on_host = case
        .pods_on(node)
        .filter(|pod| is_network_pod(&pod.seen) || pod.seen.name.name.starts_with("kube-proxy-"));
    addresses.extend(on_host.flat_map(|pod| pod.seen.addresses.iter().copied()));
    addresses
}

/// Every node that anything names, each as it is spelled where it was seen first.
fn node_names(case: &Case<'_>) -> BTreeSet<NodeName> {
    let mut names: BTreeSet<NodeName> = case.node_views().keys().cloned().collect();
    names.extend(case.evidence.nodes.keys().cloned());
    names
}

/// As it is spelled where it was seen first.
fn spelled(case: &Case<'_>, node: &NodeName) -> NodeName {
    let view = case.node_view(node).map(|view| &view.name);
    view.or_else(|| case.node(node).map(|node| &node.name)).unwrap_or(node).clone()
}
