//! Nodes and how they are set up.

pub(super) mod calico_node_not_ready;
pub(super) mod clock_skew;
pub(super) mod cni_config_shadowed;
pub(super) mod cni_plugin_missing;
pub(super) mod conntrack_full;
pub(super) mod credentials_expired;
pub(super) mod credentials_refused;
pub(super) mod del_unfinished;
pub(super) mod devices_managed_by_others;
pub(super) mod etcd_even_members;
pub(super) mod forwarding_off;
pub(super) mod kube_proxy_not_ready;
pub(super) mod kubelet_failing;
pub(super) mod kubelet_refuses_swap;
pub(super) mod martian_packets;
pub(super) mod neighbour_table_full;
pub(super) mod network_component_not_ready;
pub(super) mod network_program_killed;
pub(super) mod nic_failing;
pub(super) mod node_address_doubtful;
pub(super) mod node_address_missing;
pub(super) mod node_address_shared;
pub(super) mod node_address_undetected;
pub(super) mod node_address_unfit;
pub(super) mod node_address_wrong;
pub(super) mod node_left_behind;
pub(super) mod node_network_unavailable;
pub(super) mod node_not_ready;
pub(super) mod node_uninitialized;
pub(super) mod node_unrecorded;
pub(super) mod nodename_differs;
pub(super) mod rights_missing;
pub(super) mod rp_filter_loose;
pub(super) mod state_folder_unusable;
pub(super) mod store_full;
pub(super) mod store_locked;
pub(super) mod store_unreachable;
pub(super) mod store_unstable;
pub(super) mod strict_arp_off;
pub(super) mod sysctl_harmful;
pub(super) mod tunnel_not_made;
pub(super) mod typha_unreachable;
pub(super) mod watches_exhausted;

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::SignedDuration;
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

/// A pod in these states was tried and does not run.
const FAILED: [&str; 8] = [
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "CreateContainerError",
    "CreateContainerConfigError",
    "RunContainerError",
    "Error",
    "OOMKilled",
];
/// A pod that is still starting after this is not starting any more.
const STARTS: SignedDuration = SignedDuration::from_mins(10);

/// Whether a pod that is to run all the time does not: it runs and is not ready, it fails, or it starts for ever.
fn is_broken(case: &Case<'_>, pod: &Pod) -> bool {
    let status = pod.status.strip_prefix("Init:").unwrap_or(&pod.status);
    let is_old = || pod.age(case.taken_at).is_some_and(|age| age > STARTS);
    let is_down = match status {
        "Running" => pod.ready.is_some_and(|(ready, all)| ready < all),
        status if FAILED.contains(&status) => true,
        "Completed" | "Succeeded" | "Evicted" | "Failed" | "Terminating" | "" | "Unknown" | "NodeLost" => {
            false
        }
        _ => is_old(),
    };
    is_down && !case.is_in_flux(pod)
}

/// `CrashLoopBackOff 0/1`
fn shown(pod: &Pod) -> String {
    let ready = pod.ready.map_or_else(String::new, |(ready, all)| format!(" {ready}/{all}"));
    format!("{}{ready}", pod.status)
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
pub(super) fn spelled(case: &Case<'_>, node: &NodeName) -> NodeName {
    let view = case.node_view(node).map(|view| &view.name);
    view.or_else(|| case.node(node).map(|node| &node.name)).unwrap_or(node).clone()
}
