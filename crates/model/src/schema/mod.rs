//! What a resource of each kind may hold, as tables: names, types, ranges, formats.
//!
//! Two readers share them. [`crate::manifest`] types a text by them, so that a field that is text stays text
//! whatever YAML would make of it, and an unknown field is an error. [`crate::validate`] checks values by them,
//! then applies the rules that look at several fields, which live in `validate`.

mod table;

mod bgp;
mod cluster;
mod endpoint;
mod felix;
mod ipam;
mod metadata;
mod node;
mod policy;
mod pool;

pub use table::{Check, EitherCheck, Field, List, Object, Type, Zero};

use crate::Kind;

/// The whole document of a kind: `metadata`, `spec`, and `status` where the kind has one.
pub fn document(kind: Kind) -> &'static Object {
    match kind {
        Kind::BgpConfiguration => &bgp::CONFIGURATION,
        Kind::BgpFilter => &bgp::FILTER,
        Kind::BgpPeer => &bgp::PEER,
        Kind::BlockAffinity => &ipam::AFFINITY,
        Kind::CalicoNodeStatus => &cluster::NODE_STATUS,
        Kind::ClusterInformation => &cluster::INFORMATION,
        Kind::FelixConfiguration => &felix::CONFIGURATION,
        Kind::GlobalNetworkPolicy => &policy::GLOBAL_NETWORK_POLICY,
        Kind::GlobalNetworkSet | Kind::NetworkSet => &policy::NETWORK_SET,
        Kind::HostEndpoint => &endpoint::HOST,
        Kind::IpamBlock => &ipam::BLOCK,
        Kind::IpamConfiguration => &ipam::CONFIGURATION,
        Kind::IpamHandle => &ipam::HANDLE,
        Kind::IpPool => &pool::POOL,
        Kind::IpReservation => &pool::RESERVATION,
        Kind::KubeControllersConfiguration => &cluster::CONTROLLERS,
        Kind::NetworkPolicy => &policy::NETWORK_POLICY,
        Kind::Node => &node::NODE,
        Kind::Profile => &policy::PROFILE,
        Kind::StagedGlobalNetworkPolicy => &policy::STAGED_GLOBAL_NETWORK_POLICY,
        Kind::StagedKubernetesNetworkPolicy => &policy::STAGED_KUBERNETES_NETWORK_POLICY,
        Kind::StagedNetworkPolicy => &policy::STAGED_NETWORK_POLICY,
        Kind::Tier => &policy::TIER,
        Kind::WorkloadEndpoint => &endpoint::WORKLOAD,
    }
}
