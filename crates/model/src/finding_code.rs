//! The codes of findings: what operators silence, search and explain by. They are a promise and never change.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::suggest;

macro_rules! finding_codes {
    ($($code:ident = $text:literal,)+) => {
        /// The code of a finding. The doctor has a check for each, the repair a remedy or the reason why there is none.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FindingCode {
            $($code,)+
        }

        impl FindingCode {
            /// In the order of their texts.
            pub const ALL: &[FindingCode] = &[$(FindingCode::$code,)+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(FindingCode::$code => $text,)+
                }
            }
        }
    };
}

finding_codes! {
    AddFailing = "add-failing",
    AddressAllocatedTwice = "address-allocated-twice",
    AddressConflict = "address-conflict",
    AddressLeaked = "address-leaked",
    AddressOutsidePools = "address-outside-pools",
    AddressShared = "address-shared",
    AddressUsedButFree = "address-used-but-free",
    AddressesExhausted = "addresses-exhausted",
    AffinityContradicted = "affinity-contradicted",
    AffinityMissing = "affinity-missing",
    AffinityOfGoneNode = "affinity-of-gone-node",
    AffinityUnfinished = "affinity-unfinished",
    AffinityUnlabelled = "affinity-unlabelled",
    AllocationWithoutHandle = "allocation-without-handle",
    ApiExtensionUnavailable = "api-extension-unavailable",
    ApiServerUnreachable = "api-server-unreachable",
    BgpAsWrong = "bgp-as-wrong",
    BgpIdentifierShared = "bgp-identifier-shared",
    BgpMeshOff = "bgp-mesh-off",
    BgpNotRunning = "bgp-not-running",
    BgpPasswordWrong = "bgp-password-wrong",
    BgpPeerSelectsNobody = "bgp-peer-selects-nobody",
    BgpPortClosed = "bgp-port-closed",
    BgpRecordUnfit = "bgp-record-unfit",
    BgpSessionDown = "bgp-session-down",
    BlockContradictsItself = "block-contradicts-itself",
    BlockHidesAddress = "block-hides-address",
    BlockLimitReached = "block-limit-reached",
    BlockMissing = "block-missing",
    BlockOutsidePools = "block-outside-pools",
    BlockOverlap = "block-overlap",
    BlockRouteMissing = "block-route-missing",
    BlockRouteWrong = "block-route-wrong",
    BpfProgramRefused = "bpf-program-refused",
    BridgeAddressDiffers = "bridge-address-differs",
    CalicoNodeNotReady = "calico-node-not-ready",
    CgroupDriverDiffers = "cgroup-driver-differs",
    ClockSkew = "clock-skew",
    CloudDropsTunnel = "cloud-drops-tunnel",
    CloudRightsMissing = "cloud-rights-missing",
    ClusterAuthorityChanged = "cluster-authority-changed",
    ClusterRangeMissesPool = "cluster-range-misses-pool",
    ClusterRoutesContradictory = "cluster-routes-contradictory",
    CniConfigShadowed = "cni-config-shadowed",
    CniPluginKilled = "cni-plugin-killed",
    CniPluginMissing = "cni-plugin-missing",
    CniPluginNotExecutable = "cni-plugin-not-executable",
    ConnectionsNotInserted = "connections-not-inserted",
    ConntrackFull = "conntrack-full",
    CredentialsExpired = "credentials-expired",
    CredentialsRefused = "credentials-refused",
    DelRetried = "del-retried",
    DelUnfinished = "del-unfinished",
    DeviceDown = "device-down",
    DeviceSettingWrong = "device-setting-wrong",
    DeviceShared = "device-shared",
    DeviceWithoutEndpoint = "device-without-endpoint",
    DevicesManagedByOthers = "devices-managed-by-others",
    DiskFull = "disk-full",
    DnsFailing = "dns-failing",
    DnsLoop = "dns-loop",
    EndpointAddressDiffers = "endpoint-address-differs",
    EndpointMisplaced = "endpoint-misplaced",
    EndpointOfOldSandbox = "endpoint-of-old-sandbox",
    EndpointOnTwoNodes = "endpoint-on-two-nodes",
    EndpointWithoutContainerId = "endpoint-without-container-id",
    EndpointWithoutDevice = "endpoint-without-device",
    EndpointWithoutPod = "endpoint-without-pod",
    EndpointWithoutSandbox = "endpoint-without-sandbox",
    EtcdEvenMembers = "etcd-even-members",
    FirewallLogBlocks = "firewall-log-blocks",
    ForwardingDropped = "forwarding-dropped",
    ForwardingOff = "forwarding-off",
    HandleByName = "handle-by-name",
    HandleCountWrong = "handle-count-wrong",
    HandleMissing = "handle-missing",
    HandleUnused = "handle-unused",
    HostEndpointClosed = "host-endpoint-closed",
    HostRouteHeld = "host-route-held",
    IpamConfigIgnored = "ipam-config-ignored",
    KernelDeviceStuck = "kernel-device-stuck",
    KernelHangs = "kernel-hangs",
    KernelModuleMissing = "kernel-module-missing",
    KernelSettingDenied = "kernel-setting-denied",
    KubeProxyNotReady = "kube-proxy-not-ready",
    KubeletFailing = "kubelet-failing",
    KubeletNameRefused = "kubelet-name-refused",
    KubeletRefusesSwap = "kubelet-refuses-swap",
    LargePacketsLost = "large-packets-lost",
    LeakCollectionOff = "leak-collection-off",
    LinkFlaps = "link-flaps",
    LocalhostUnresolved = "localhost-unresolved",
    MartianPackets = "martian-packets",
    MemoryShort = "memory-short",
    MetaPluginWaits = "meta-plugin-waits",
    ModeUnsupported = "mode-unsupported",
    MtuDiffers = "mtu-differs",
    MtuTooLarge = "mtu-too-large",
    NatMissing = "nat-missing",
    NeighbourMissing = "neighbour-missing",
    NeighbourTableFull = "neighbour-table-full",
    NeighbourWithoutEndpoint = "neighbour-without-endpoint",
    NeighbourWrong = "neighbour-wrong",
    NetlinkOverrun = "netlink-overrun",
    NetworkComponentNotReady = "network-component-not-ready",
    NetworkImageMissing = "network-image-missing",
    NetworkProgramKilled = "network-program-killed",
    NicFailing = "nic-failing",
    NodeAddressDoubtful = "node-address-doubtful",
    NodeAddressMissing = "node-address-missing",
    NodeAddressShared = "node-address-shared",
    NodeAddressUndetected = "node-address-undetected",
    NodeAddressUnfit = "node-address-unfit",
    NodeAddressWrong = "node-address-wrong",
    NodeLeftBehind = "node-left-behind",
    NodeNameTaken = "node-name-taken",
    NodeNeighbourLost = "node-neighbour-lost",
    NodeNetworkUnavailable = "node-network-unavailable",
    NodeNotReady = "node-not-ready",
    NodeUninitialized = "node-uninitialized",
    NodeUnrecorded = "node-unrecorded",
    NodenameDiffers = "nodename-differs",
    OperatorRefusesPool = "operator-refuses-pool",
    OtherNetworkLeft = "other-network-left",
    PacketsLost = "packets-lost",
    PeerPacketsDropped = "peer-packets-dropped",
    PodAddressMissing = "pod-address-missing",
    PodDefaultRouteMissing = "pod-default-route-missing",
    PodGatewayUnresolved = "pod-gateway-unresolved",
    PodInterfaceMissing = "pod-interface-missing",
    PodNamespaceGone = "pod-namespace-gone",
    PodNetworkCrowded = "pod-network-crowded",
    PodReplacedWithoutDel = "pod-replaced-without-del",
    PodSpoofingPossible = "pod-spoofing-possible",
    PodSubnetMissing = "pod-subnet-missing",
    PodWithoutEndpoint = "pod-without-endpoint",
    PolicyNotEnforced = "policy-not-enforced",
    PolicyRouteDiverts = "policy-route-diverts",
    PoolContainsNodes = "pool-contains-nodes",
    PoolFull = "pool-full",
    PoolNotForNode = "pool-not-for-node",
    PoolOverlap = "pool-overlap",
    PortTaken = "port-taken",
    ProcessLimitReached = "process-limit-reached",
    RecordUnreadable = "record-unreadable",
    ReportedByCalicoctl = "reported-by-calicoctl",
    RequestedPoolMissing = "requested-pool-missing",
    RightsMissing = "rights-missing",
    RouteDiverted = "route-diverted",
    RouteGatewayUnreachable = "route-gateway-unreachable",
    RouteMissing = "route-missing",
    RouteShadowed = "route-shadowed",
    RouteToWrongDevice = "route-to-wrong-device",
    RouteViaWrongNode = "route-via-wrong-node",
    RouteWithoutEndpoint = "route-without-endpoint",
    RpFilterLoose = "rp-filter-loose",
    RulesNotLoaded = "rules-not-loaded",
    RulesNotWritten = "rules-not-written",
    RuntimeNotAnswering = "runtime-not-answering",
    RuntimeWithoutCri = "runtime-without-cri",
    SandboxImageMissing = "sandbox-image-missing",
    SecurityModuleDenies = "security-module-denies",
    ServiceAddressUnreachable = "service-address-unreachable",
    ServiceBlockEmpty = "service-block-empty",
    ServiceRangeOverlaps = "service-range-overlaps",
    SourceCheckOn = "source-check-on",
    StaleDel = "stale-del",
    StateFolderUnusable = "state-folder-unusable",
    StoreFull = "store-full",
    StoreLocked = "store-locked",
    StoreUnreachable = "store-unreachable",
    StoreUnstable = "store-unstable",
    StrictArpOff = "strict-arp-off",
    SysctlHarmful = "sysctl-harmful",
    Tombstone = "tombstone",
    TunnelAddressShared = "tunnel-address-shared",
    TunnelDeviceWrong = "tunnel-device-wrong",
    TunnelDisabled = "tunnel-disabled",
    TunnelDropped = "tunnel-dropped",
    TunnelEndUnknown = "tunnel-end-unknown",
    TunnelMacShared = "tunnel-mac-shared",
    TunnelNotMade = "tunnel-not-made",
    TyphaCertificateRefused = "typha-certificate-refused",
    TyphaUnreachable = "typha-unreachable",
    VxlanChecksumBroken = "vxlan-checksum-broken",
    WatchesExhausted = "watches-exhausted",
    WebhookUnreachable = "webhook-unreachable",
}

/// A text that is no code of a finding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no finding has the code '{code}'")]
pub struct UnknownCode {
    pub code: String,
    /// What was probably meant.
    pub nearest: Option<FindingCode>,
}

impl fmt::Display for FindingCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// In upper or lower case: people type them.
impl FromStr for FindingCode {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<FindingCode, UnknownCode> {
        let find = |text: &str| {
            FindingCode::ALL.iter().copied().find(|code| code.as_str().eq_ignore_ascii_case(text))
        };
        let nearest = || suggest::nearest(text, FindingCode::ALL.iter().map(|code| code.as_str()));
        find(text).ok_or_else(|| UnknownCode { code: text.to_owned(), nearest: nearest().and_then(find) })
    }
}

impl Serialize for FindingCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for FindingCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FindingCode, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_words_joined_by_dashes_in_order() {
        assert!(FindingCode::ALL.is_sorted_by(|a, b| a < b && a.as_str() < b.as_str()));
        for code in FindingCode::ALL {
            let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
            assert!(code.as_str().split('-').all(is_word), "{code}");
            let name: String = format!("{code:?}").to_lowercase();
            assert_eq!(name, code.as_str().replace('-', ""), "named as it is written");
        }
    }

    #[test]
    fn codes_print_and_parse() {
        for code in FindingCode::ALL {
            assert_eq!(code.to_string().parse(), Ok(*code));
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("\"{code}\""));
            assert_eq!(serde_json::from_str::<FindingCode>(&json).unwrap(), *code);
        }
        assert_eq!("Pool-Overlap".parse(), Ok(FindingCode::PoolOverlap));
    }

    #[test]
    fn an_unknown_code_is_named_with_the_nearest() {
        let error = "pool-overlaps".parse::<FindingCode>().unwrap_err();
        assert_eq!(error.to_string(), "no finding has the code 'pool-overlaps'");
        assert_eq!(error.nearest, Some(FindingCode::PoolOverlap));
        assert_eq!("no-such-thing-at-all".parse::<FindingCode>().unwrap_err().nearest, None);
        let error = serde_json::from_str::<FindingCode>("\"gone\"").unwrap_err();
        assert!(error.to_string().starts_with("no finding has the code 'gone'"), "{error}");
    }
}
