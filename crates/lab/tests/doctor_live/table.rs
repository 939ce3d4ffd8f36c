//! No code is forgotten: each has a fault here, or a reason why there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use lab::Programs;
use model::FindingCode;

use crate::faults;

const NAMED: &str = "a log, an event or a condition names it, and no program of a lab says it: crates/doctor/tests/clusters has texts";
const TEXTS: &str = "it is a setting or a state of Kubernetes that a lab does not have: its own tests and crates/doctor/tests/clusters do";

/// Codes that no fault can be made for in a lab.
const NOT_HERE: &[(FindingCode, &str)] = &[
    (FindingCode::ConntrackFull, NAMED),
    (FindingCode::NeighbourTableFull, NAMED),
    (FindingCode::CredentialsRefused, NAMED),
    (FindingCode::RightsMissing, NAMED),
    (FindingCode::CniPluginMissing, NAMED),
    (FindingCode::StoreFull, NAMED),
    (FindingCode::TyphaUnreachable, NAMED),
    (FindingCode::NodeAddressUndetected, NAMED),
    (FindingCode::AddressesExhausted, NAMED),
    (FindingCode::TunnelNotMade, NAMED),
    (FindingCode::RulesNotWritten, NAMED),
    (FindingCode::NetworkProgramKilled, NAMED),
    (FindingCode::MartianPackets, NAMED),
    (FindingCode::NicFailing, NAMED),
    (FindingCode::DevicesManagedByOthers, NAMED),
    (FindingCode::WatchesExhausted, NAMED),
    (FindingCode::TyphaCertificateRefused, NAMED),
    (FindingCode::ClusterAuthorityChanged, NAMED),
    (FindingCode::SandboxImageMissing, NAMED),
    (FindingCode::RuntimeWithoutCri, NAMED),
    (FindingCode::RuntimeNotAnswering, NAMED),
    (FindingCode::CniPluginNotExecutable, NAMED),
    (FindingCode::CniPluginKilled, NAMED),
    (FindingCode::OperatorRefusesPool, NAMED),
    (FindingCode::ApiExtensionUnavailable, NAMED),
    (FindingCode::WebhookUnreachable, NAMED),
    (FindingCode::ServiceAddressUnreachable, NAMED),
    (FindingCode::NetworkImageMissing, NAMED),
    (FindingCode::DnsLoop, NAMED),
    (FindingCode::DnsFailing, NAMED),
    (FindingCode::PortTaken, NAMED),
    (FindingCode::KernelModuleMissing, NAMED),
    (FindingCode::KernelSettingDenied, NAMED),
    (FindingCode::SecurityModuleDenies, NAMED),
    (FindingCode::BridgeAddressDiffers, NAMED),
    (FindingCode::PodSubnetMissing, NAMED),
    (FindingCode::DiskFull, NAMED),
    (FindingCode::MemoryShort, NAMED),
    (FindingCode::ProcessLimitReached, NAMED),
    (FindingCode::CgroupDriverDiffers, NAMED),
    (FindingCode::KubeletNameRefused, NAMED),
    (FindingCode::KernelDeviceStuck, NAMED),
    (FindingCode::KernelHangs, NAMED),
    (FindingCode::AddressConflict, NAMED),
    (FindingCode::HostRouteHeld, NAMED),
    (FindingCode::RequestedPoolMissing, NAMED),
    (FindingCode::MetaPluginWaits, NAMED),
    (FindingCode::FirewallLogBlocks, NAMED),
    (FindingCode::VxlanChecksumBroken, NAMED),
    (FindingCode::ConnectionsNotInserted, NAMED),
    (FindingCode::BpfProgramRefused, NAMED),
    (FindingCode::BgpIdentifierShared, NAMED),
    (FindingCode::BgpPeerSelectsNobody, TEXTS),
    (FindingCode::CloudDropsTunnel, TEXTS),
    (FindingCode::HostEndpointClosed, TEXTS),
    (FindingCode::PolicyRouteDiverts, TEXTS),
    (FindingCode::ServiceRangeOverlaps, TEXTS),
    (FindingCode::SourceCheckOn, TEXTS),
    (FindingCode::StrictArpOff, TEXTS),
    (FindingCode::ApiServerUnreachable, NAMED),
    (FindingCode::LocalhostUnresolved, NAMED),
    (FindingCode::NodeNameTaken, NAMED),
    (FindingCode::CloudRightsMissing, NAMED),
    (FindingCode::LinkFlaps, NAMED),
    (FindingCode::OtherNetworkLeft, NAMED),
    (FindingCode::LargePacketsLost, NAMED),
    (FindingCode::NetlinkOverrun, NAMED),
    (FindingCode::ClusterRangeMissesPool, TEXTS),
    (FindingCode::NetworkComponentNotReady, TEXTS),
    (FindingCode::NodeNeighbourLost, TEXTS),
    (FindingCode::NodeUninitialized, TEXTS),
    (FindingCode::PeerPacketsDropped, TEXTS),
    (FindingCode::SysctlHarmful, TEXTS),
    (FindingCode::StoreLocked, TEXTS),
    (FindingCode::BgpMeshOff, TEXTS),
    (FindingCode::TunnelDisabled, TEXTS),
    (FindingCode::PoolContainsNodes, TEXTS),
    (FindingCode::TunnelMacShared, TEXTS),
    (FindingCode::KubeProxyNotReady, TEXTS),
    (FindingCode::NodeNetworkUnavailable, TEXTS),
    (
        FindingCode::TunnelDeviceWrong,
        "nodes of this cluster reach each other without a tunnel: tunnels.rs has clusters with tunnels",
    ),
    (
        FindingCode::TunnelDropped,
        "nodes of this cluster reach each other without a tunnel: tunnels.rs has clusters with tunnels",
    ),
    (
        FindingCode::TunnelEndUnknown,
        "nodes of this cluster reach each other without a tunnel: tunnels.rs has clusters with tunnels",
    ),
    (
        FindingCode::PodNamespaceGone,
        "what was in a namespace does not come back for the next fault: loops.rs has a cluster for it",
    ),
    (
        FindingCode::AffinityUnlabelled,
        "affinities have labels only where they are objects of Kubernetes, and the stores here are not",
    ),
    (
        FindingCode::BgpPasswordWrong,
        "the kernel drops what is signed wrongly and tells BIRD nothing: a session that is down is all there is to see",
    ),
    (
        FindingCode::NodeAddressDoubtful,
        "nodes of this lab have one card each; `a_method_without_effect_is_logged_and_found` has two",
    ),
    (
        FindingCode::ReportedByCalicoctl,
        "it passes on what calicoctl says only where the books themselves were not collected, and here they are",
    ),
    (
        FindingCode::RulesNotLoaded,
        "agents that only observe, as they do here, load no rules; tests/guard/rules.rs has those that do",
    ),
    (
        FindingCode::StateFolderUnusable,
        "agents that only observe, as they do here, keep no state; tests/agent/state_folder.rs has those that do",
    ),
    (
        FindingCode::StoreUnreachable,
        "all nodes of a lab and the doctor share one store; tests/agent/store_down.rs takes it from a single node",
    ),
];

#[test]
fn every_code_has_a_fault_or_a_reason() {
    let plumb = Programs::of_test().unwrap().folder().join("plumb");
    let output = Command::new(plumb).args(["doctor", "explain"]).output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    let listed: BTreeSet<&str> = list.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert!(FindingCode::ALL.iter().all(|code| listed.contains(code.as_str())), "{list}");
    let codes: BTreeSet<FindingCode> = FindingCode::ALL.iter().copied().collect();
    let injected: BTreeSet<FindingCode> = faults::all().map(|fault| fault.code).collect();
    let excused: BTreeMap<FindingCode, &str> = NOT_HERE.iter().copied().collect();
    let told: BTreeSet<FindingCode> = injected.iter().chain(excused.keys()).copied().collect();
    let differ: Vec<_> = told.symmetric_difference(&codes).collect();
    assert!(differ.is_empty(), "in neither list: {differ:?}");
    let both: Vec<_> = injected.iter().filter(|code| excused.contains_key(*code)).collect();
    assert!(both.is_empty(), "{both:?}");
    eprintln!("{} codes have faults, {} have a reason why not", injected.len(), excused.len());
}
