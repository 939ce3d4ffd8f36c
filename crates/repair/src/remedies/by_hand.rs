//! What is left to people, and why.

use super::{Area, Remedy};
use model::FindingCode;

const fn by_hand(code: FindingCode, why: &'static str) -> Remedy {
    Remedy { code, area: Area::ByHand, does: why, undo: "", act: None }
}

const LOG: &str =
    "a log shows only what happened; run plumb doctor against the live cluster to see what is still wrong";
const BGP: &str = "the other end of the session is not under plumb's control; correct the peer, its password \
                   or its firewall as the finding describes";
const PEOPLE: &str = "this is a decision for the operator; the finding describes how to carry it out";
const MACHINE: &str = "the fault is on the host itself (kubelet, files or clock) and must be fixed there; \
                       the finding describes how";

pub(super) const ALL: &[Remedy] = &[
    by_hand(FindingCode::AddFailing, LOG),
    by_hand(FindingCode::DelRetried, LOG),
    by_hand(
        FindingCode::StaleDel,
        "a log shows only what happened; the lost endpoint and address are reported and repaired as \
         pod-without-endpoint and address-used-but-free when the live cluster is checked",
    ),
    by_hand(FindingCode::PodReplacedWithoutDel, LOG),
    by_hand(
        FindingCode::ReportedByCalicoctl,
        "another tool reported this at another time; run plumb doctor against the live cluster",
    ),
    by_hand(FindingCode::ConntrackFull, MACHINE),
    by_hand(FindingCode::NeighbourTableFull, MACHINE),
    by_hand(FindingCode::CredentialsRefused, MACHINE),
    by_hand(FindingCode::RightsMissing, PEOPLE),
    by_hand(FindingCode::CniPluginMissing, MACHINE),
    by_hand(FindingCode::StoreFull, MACHINE),
    by_hand(FindingCode::TyphaUnreachable, MACHINE),
    by_hand(FindingCode::NodeAddressUndetected, MACHINE),
    by_hand(FindingCode::AddressesExhausted, PEOPLE),
    by_hand(FindingCode::TunnelNotMade, MACHINE),
    by_hand(FindingCode::RulesNotWritten, MACHINE),
    by_hand(FindingCode::NetworkProgramKilled, MACHINE),
    by_hand(FindingCode::MartianPackets, MACHINE),
    by_hand(FindingCode::NicFailing, MACHINE),
    by_hand(FindingCode::DevicesManagedByOthers, MACHINE),
    by_hand(FindingCode::WatchesExhausted, MACHINE),
    by_hand(FindingCode::TyphaCertificateRefused, MACHINE),
    by_hand(FindingCode::ClusterAuthorityChanged, MACHINE),
    by_hand(FindingCode::SandboxImageMissing, MACHINE),
    by_hand(FindingCode::RuntimeWithoutCri, MACHINE),
    by_hand(FindingCode::RuntimeNotAnswering, MACHINE),
    by_hand(FindingCode::CniPluginNotExecutable, MACHINE),
    by_hand(FindingCode::CniPluginKilled, MACHINE),
    by_hand(FindingCode::OperatorRefusesPool, PEOPLE),
    by_hand(FindingCode::ApiExtensionUnavailable, MACHINE),
    by_hand(FindingCode::WebhookUnreachable, MACHINE),
    by_hand(FindingCode::ServiceAddressUnreachable, MACHINE),
    by_hand(FindingCode::NetworkImageMissing, MACHINE),
    by_hand(FindingCode::DnsLoop, PEOPLE),
    by_hand(FindingCode::DnsFailing, MACHINE),
    by_hand(FindingCode::PortTaken, MACHINE),
    by_hand(FindingCode::KernelModuleMissing, MACHINE),
    by_hand(FindingCode::KernelSettingDenied, MACHINE),
    by_hand(FindingCode::SecurityModuleDenies, MACHINE),
    by_hand(FindingCode::BridgeAddressDiffers, MACHINE),
    by_hand(FindingCode::PodSubnetMissing, MACHINE),
    by_hand(FindingCode::DiskFull, MACHINE),
    by_hand(FindingCode::MemoryShort, MACHINE),
    by_hand(FindingCode::ProcessLimitReached, MACHINE),
    by_hand(FindingCode::CgroupDriverDiffers, MACHINE),
    by_hand(FindingCode::KubeletNameRefused, MACHINE),
    by_hand(FindingCode::KernelDeviceStuck, MACHINE),
    by_hand(FindingCode::KernelHangs, MACHINE),
    by_hand(FindingCode::AddressConflict, MACHINE),
    by_hand(FindingCode::HostRouteHeld, MACHINE),
    by_hand(FindingCode::RequestedPoolMissing, PEOPLE),
    by_hand(FindingCode::MetaPluginWaits, MACHINE),
    by_hand(FindingCode::FirewallLogBlocks, MACHINE),
    by_hand(FindingCode::VxlanChecksumBroken, MACHINE),
    by_hand(FindingCode::ConnectionsNotInserted, MACHINE),
    by_hand(FindingCode::BpfProgramRefused, MACHINE),
    by_hand(FindingCode::BgpIdentifierShared, MACHINE),
    by_hand(FindingCode::BgpPeerSelectsNobody, PEOPLE),
    by_hand(FindingCode::CloudDropsTunnel, PEOPLE),
    by_hand(FindingCode::HostEndpointClosed, PEOPLE),
    by_hand(FindingCode::PolicyRouteDiverts, PEOPLE),
    by_hand(FindingCode::ServiceRangeOverlaps, PEOPLE),
    by_hand(FindingCode::SourceCheckOn, PEOPLE),
    by_hand(FindingCode::StrictArpOff, PEOPLE),
    by_hand(FindingCode::ApiServerUnreachable, MACHINE),
    by_hand(FindingCode::LocalhostUnresolved, MACHINE),
    by_hand(FindingCode::NodeNameTaken, MACHINE),
    by_hand(FindingCode::CloudRightsMissing, MACHINE),
    by_hand(FindingCode::LinkFlaps, MACHINE),
    by_hand(FindingCode::OtherNetworkLeft, MACHINE),
    by_hand(FindingCode::LargePacketsLost, MACHINE),
    by_hand(FindingCode::NetlinkOverrun, MACHINE),
    by_hand(FindingCode::ClusterRangeMissesPool, MACHINE),
    by_hand(FindingCode::NetworkComponentNotReady, MACHINE),
    by_hand(FindingCode::NodeNeighbourLost, MACHINE),
    by_hand(FindingCode::NodeUninitialized, MACHINE),
    by_hand(FindingCode::PeerPacketsDropped, MACHINE),
    by_hand(FindingCode::SysctlHarmful, MACHINE),
    by_hand(FindingCode::StoreLocked, PEOPLE),
    by_hand(FindingCode::BgpMeshOff, PEOPLE),
    by_hand(FindingCode::TunnelDisabled, PEOPLE),
    by_hand(FindingCode::PoolContainsNodes, PEOPLE),
    by_hand(FindingCode::TunnelMacShared, MACHINE),
    by_hand(FindingCode::KubeProxyNotReady, MACHINE),
    by_hand(FindingCode::NodeNetworkUnavailable, MACHINE),
    by_hand(FindingCode::BgpAsWrong, BGP),
    by_hand(
        FindingCode::BgpNotRunning,
        "BIRD is started by the node's agent or by calico-node; fix that on the node",
    ),
    by_hand(FindingCode::BgpPasswordWrong, BGP),
    by_hand(
        FindingCode::BgpPortClosed,
        "plumb repair does not start or configure BIRD; fix it on the node as the finding describes",
    ),
    by_hand(FindingCode::BgpSessionDown, BGP),
    by_hand(FindingCode::BgpRecordUnfit, PEOPLE),
    by_hand(
        FindingCode::AddressOutsidePools,
        "the pod works; create a pool for its address, or recreate the pod so that it gets an address from a \
         pool",
    ),
    by_hand(
        FindingCode::AffinityUnlabelled,
        "calico-node and plumbd node label their own node's affinities when they start; restart it on that node",
    ),
    by_hand(FindingCode::BlockLimitReached, PEOPLE),
    by_hand(
        FindingCode::BlockHidesAddress,
        "only the operator can tell which of the two networks is wrong; create a pool that overlaps neither \
         nodes nor services",
    ),
    by_hand(
        FindingCode::IpamConfigIgnored,
        "only the operator can tell which of the two values is intended; set it with plumb ipam configure",
    ),
    by_hand(
        FindingCode::PoolNotForNode,
        "the pods work; if it matters, recreate them so that they get addresses from a pool that selects \
         their node",
    ),
    by_hand(FindingCode::PoolFull, PEOPLE),
    by_hand(FindingCode::PoolOverlap, PEOPLE),
    by_hand(FindingCode::LeakCollectionOff, PEOPLE),
    by_hand(FindingCode::ClusterRoutesContradictory, PEOPLE),
    by_hand(FindingCode::EtcdEvenMembers, PEOPLE),
    by_hand(FindingCode::PolicyNotEnforced, PEOPLE),
    by_hand(FindingCode::ModeUnsupported, PEOPLE),
    by_hand(
        FindingCode::NodeAddressShared,
        "two machines use the same address, and the records do not show which one is wrong; correct \
         IP_AUTODETECTION_METHOD or the machine",
    ),
    by_hand(
        FindingCode::ForwardingDropped,
        "the rules belong to another program, and plumb never changes those; if the drop is not intended, \
         add rules that accept pod traffic, as the finding describes",
    ),
    by_hand(
        FindingCode::TunnelDropped,
        "the rules belong to another program, and plumb never changes those; if the drop is not intended, \
         accept the tunnel's packets as the finding describes",
    ),
    by_hand(
        FindingCode::PodNamespaceGone,
        "only the runtime can create a sandbox's network namespace; delete the pod so that it creates a new \
         sandbox (for a static pod: crictl stopp, then crictl rmp)",
    ),
    by_hand(
        FindingCode::PacketsLost,
        "plumb cannot see where packets between nodes are lost; follow them as the \
                             finding describes",
    ),
    by_hand(
        FindingCode::NatMissing,
        "the node's agent loads its rules again automatically within a minute; check that nft is installed, \
         and find out what removes the rules",
    ),
    by_hand(
        FindingCode::PodSpoofingPossible,
        "the node's agent loads the rules automatically; check that it runs and that nft is installed, and \
         find out what removes the rules",
    ),
    by_hand(
        FindingCode::RouteShadowed,
        "another program installed the preferred route, and it may be intended; if it is not, remove it with \
         ip route del",
    ),
    by_hand(
        FindingCode::RouteGatewayUnreachable,
        "the next hop does not answer; the machine, its NIC or the network in between must be fixed",
    ),
    by_hand(
        FindingCode::CalicoNodeNotReady,
        "plumb repair does not change this pod; fix the cause that its readiness events name",
    ),
    by_hand(FindingCode::ClockSkew, MACHINE),
    by_hand(FindingCode::CniConfigShadowed, MACHINE),
    by_hand(FindingCode::CredentialsExpired, MACHINE),
    by_hand(
        FindingCode::DelUnfinished,
        "the node's agent retries queued DELs automatically; check those that were set aside, and remove \
         their files",
    ),
    by_hand(
        FindingCode::NodeAddressDoubtful,
        "only the operator knows which address the other nodes should use; set it for the node's agent",
    ),
    by_hand(FindingCode::KubeletFailing, MACHINE),
    by_hand(FindingCode::KubeletRefusesSwap, MACHINE),
    by_hand(FindingCode::NodeNotReady, MACHINE),
    by_hand(
        FindingCode::NodeUnrecorded,
        "an agent writes the Node record automatically when it starts; only the operator knows whether the \
         machine should be a node",
    ),
    by_hand(FindingCode::NodenameDiffers, MACHINE),
    by_hand(
        FindingCode::PodNetworkCrowded,
        "a process in the pod created them; check there whether that is intended, and remove CAP_NET_ADMIN \
         from the pod if it is not",
    ),
    by_hand(
        FindingCode::RulesNotLoaded,
        "nft or the kernel must be fixed on the host; the node's agent loads the rules automatically once nft works",
    ),
    by_hand(
        FindingCode::StateFolderUnusable,
        "the disk or its mount must be fixed on the host; the node's agent resumes automatically once it can \
         write",
    ),
    by_hand(
        FindingCode::StoreUnreachable,
        "the store and its disk are not under plumb's control; the node's agent resumes automatically once \
         it can use the store",
    ),
    by_hand(
        FindingCode::StoreUnstable,
        "the store is not under plumb's control; fix etcd as the finding describes",
    ),
];
