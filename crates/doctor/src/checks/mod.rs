//! Every check there is. A new one is a new file and a new row here.

use crate::{Check, FindingCode};

mod bgp;
mod endpoints;
#[cfg(any(test, feature = "faults"))]
pub mod faults;
mod firewall;
mod ipam;
mod kernel;
mod logs;
mod named;
mod networks;
mod nodes;
mod pods;
mod policy;
mod reach;
#[cfg(test)]
mod testing;
mod told;
mod words;

/// The table of checks. A code without a row, a row without a code, and a row whose check has another code do not compile.
macro_rules! checks {
    ($($code:ident => $area:ident::$file:ident,)+) => {
        /// In the order of their codes.
        pub const ALL: &[&Check] = &[$(&$area::$file::CHECK,)+];

        /// The check with this code.
        pub fn find(code: FindingCode) -> &'static Check {
            match code {
                $(FindingCode::$code => const {
                    let check = &$area::$file::CHECK;
                    assert!(check.code as usize == FindingCode::$code as usize);
                    check
                },)+
            }
        }
    };
}

checks! {
    AddFailing => logs::add_failing,
    AddressAllocatedTwice => ipam::address_allocated_twice,
    AddressConflict => told::address_conflict,
    AddressLeaked => ipam::address_leaked,
    AddressOutsidePools => ipam::address_outside_pools,
    AddressShared => endpoints::address_shared,
    AddressUsedButFree => ipam::address_used_but_free,
    AddressesExhausted => ipam::addresses_exhausted,
    AffinityContradicted => ipam::affinity_contradicted,
    AffinityMissing => ipam::affinity_missing,
    AffinityOfGoneNode => ipam::affinity_of_gone_node,
    AffinityUnfinished => ipam::affinity_unfinished,
    AffinityUnlabelled => ipam::affinity_unlabelled,
    AllocationWithoutHandle => ipam::allocation_without_handle,
    ApiExtensionUnavailable => told::api_extension_unavailable,
    ApiServerUnreachable => told::api_server_unreachable,
    BgpAsWrong => bgp::bgp_as_wrong,
    BgpIdentifierShared => told::bgp_identifier_shared,
    BgpMeshOff => bgp::bgp_mesh_off,
    BgpNotRunning => bgp::bgp_not_running,
    BgpPasswordWrong => bgp::bgp_password_wrong,
    BgpPeerSelectsNobody => bgp::bgp_peer_selects_nobody,
    BgpPortClosed => bgp::bgp_port_closed,
    BgpRecordUnfit => bgp::bgp_record_unfit,
    BgpSessionDown => bgp::bgp_session_down,
    BlockContradictsItself => ipam::block_contradicts_itself,
    BlockHidesAddress => ipam::block_hides_address,
    BlockLimitReached => ipam::block_limit_reached,
    BlockMissing => ipam::block_missing,
    BlockOutsidePools => ipam::block_outside_pools,
    BlockOverlap => ipam::block_overlap,
    BlockRouteMissing => reach::block_route_missing,
    BlockRouteWrong => reach::block_route_wrong,
    BpfProgramRefused => told::bpf_program_refused,
    BridgeAddressDiffers => told::bridge_address_differs,
    CalicoNodeNotReady => nodes::calico_node_not_ready,
    CgroupDriverDiffers => told::cgroup_driver_differs,
    ClockSkew => nodes::clock_skew,
    CloudDropsTunnel => reach::cloud_drops_tunnel,
    CloudRightsMissing => told::cloud_rights_missing,
    ClusterAuthorityChanged => told::cluster_authority_changed,
    ClusterRangeMissesPool => ipam::cluster_range_misses_pool,
    ClusterRoutesContradictory => reach::cluster_routes_contradictory,
    CniConfigShadowed => nodes::cni_config_shadowed,
    CniPluginKilled => told::cni_plugin_killed,
    CniPluginMissing => nodes::cni_plugin_missing,
    CniPluginNotExecutable => told::cni_plugin_not_executable,
    ConnectionsNotInserted => told::connections_not_inserted,
    ConntrackFull => nodes::conntrack_full,
    CredentialsExpired => nodes::credentials_expired,
    CredentialsRefused => nodes::credentials_refused,
    DelRetried => logs::del_retried,
    DelUnfinished => nodes::del_unfinished,
    DeviceDown => kernel::device_down,
    DeviceSettingWrong => kernel::device_setting_wrong,
    DeviceShared => endpoints::device_shared,
    DeviceWithoutEndpoint => kernel::device_without_endpoint,
    DevicesManagedByOthers => nodes::devices_managed_by_others,
    DiskFull => told::disk_full,
    DnsFailing => told::dns_failing,
    DnsLoop => told::dns_loop,
    EndpointAddressDiffers => endpoints::endpoint_address_differs,
    EndpointMisplaced => endpoints::endpoint_misplaced,
    EndpointOfOldSandbox => endpoints::endpoint_of_old_sandbox,
    EndpointOnTwoNodes => endpoints::endpoint_on_two_nodes,
    EndpointWithoutContainerId => endpoints::endpoint_without_container_id,
    EndpointWithoutDevice => kernel::endpoint_without_device,
    EndpointWithoutPod => endpoints::endpoint_without_pod,
    EndpointWithoutSandbox => endpoints::endpoint_without_sandbox,
    EtcdEvenMembers => nodes::etcd_even_members,
    FirewallLogBlocks => told::firewall_log_blocks,
    ForwardingDropped => firewall::forwarding_dropped,
    ForwardingOff => nodes::forwarding_off,
    HandleByName => ipam::handle_by_name,
    HandleCountWrong => ipam::handle_count_wrong,
    HandleMissing => ipam::handle_missing,
    HandleUnused => ipam::handle_unused,
    HostEndpointClosed => policy::host_endpoint_closed,
    HostRouteHeld => told::host_route_held,
    IpamConfigIgnored => ipam::ipam_config_ignored,
    KernelDeviceStuck => told::kernel_device_stuck,
    KernelHangs => told::kernel_hangs,
    KernelModuleMissing => told::kernel_module_missing,
    KernelSettingDenied => told::kernel_setting_denied,
    KubeProxyNotReady => nodes::kube_proxy_not_ready,
    KubeletFailing => nodes::kubelet_failing,
    KubeletNameRefused => told::kubelet_name_refused,
    KubeletRefusesSwap => nodes::kubelet_refuses_swap,
    LargePacketsLost => told::large_packets_lost,
    LeakCollectionOff => ipam::leak_collection_off,
    LinkFlaps => told::link_flaps,
    LocalhostUnresolved => told::localhost_unresolved,
    MartianPackets => nodes::martian_packets,
    MemoryShort => told::memory_short,
    MetaPluginWaits => told::meta_plugin_waits,
    ModeUnsupported => policy::mode_unsupported,
    MtuDiffers => kernel::mtu_differs,
    MtuTooLarge => kernel::mtu_too_large,
    NatMissing => firewall::nat_missing,
    NeighbourMissing => kernel::neighbour_missing,
    NeighbourTableFull => nodes::neighbour_table_full,
    NeighbourWithoutEndpoint => kernel::neighbour_without_endpoint,
    NeighbourWrong => kernel::neighbour_wrong,
    NetlinkOverrun => told::netlink_overrun,
    NetworkComponentNotReady => nodes::network_component_not_ready,
    NetworkImageMissing => told::network_image_missing,
    NetworkProgramKilled => nodes::network_program_killed,
    NicFailing => nodes::nic_failing,
    NodeAddressDoubtful => nodes::node_address_doubtful,
    NodeAddressMissing => nodes::node_address_missing,
    NodeAddressShared => nodes::node_address_shared,
    NodeAddressUndetected => nodes::node_address_undetected,
    NodeAddressUnfit => nodes::node_address_unfit,
    NodeAddressWrong => nodes::node_address_wrong,
    NodeLeftBehind => nodes::node_left_behind,
    NodeNameTaken => told::node_name_taken,
    NodeNeighbourLost => reach::node_neighbour_lost,
    NodeNetworkUnavailable => nodes::node_network_unavailable,
    NodeNotReady => nodes::node_not_ready,
    NodeUninitialized => nodes::node_uninitialized,
    NodeUnrecorded => nodes::node_unrecorded,
    NodenameDiffers => nodes::nodename_differs,
    OperatorRefusesPool => told::operator_refuses_pool,
    OtherNetworkLeft => told::other_network_left,
    PacketsLost => reach::packets_lost,
    PeerPacketsDropped => firewall::peer_packets_dropped,
    PodAddressMissing => pods::pod_address_missing,
    PodDefaultRouteMissing => pods::pod_default_route_missing,
    PodGatewayUnresolved => pods::pod_gateway_unresolved,
    PodInterfaceMissing => pods::pod_interface_missing,
    PodNamespaceGone => pods::pod_namespace_gone,
    PodNetworkCrowded => pods::pod_network_crowded,
    PodReplacedWithoutDel => logs::pod_replaced_without_del,
    PodSpoofingPossible => firewall::pod_spoofing_possible,
    PodSubnetMissing => told::pod_subnet_missing,
    PodWithoutEndpoint => endpoints::pod_without_endpoint,
    PolicyNotEnforced => policy::policy_not_enforced,
    PolicyRouteDiverts => reach::policy_route_diverts,
    PoolContainsNodes => ipam::pool_contains_nodes,
    PoolFull => ipam::pool_full,
    PoolNotForNode => ipam::pool_not_for_node,
    PoolOverlap => ipam::pool_overlap,
    PortTaken => told::port_taken,
    ProcessLimitReached => told::process_limit_reached,
    RecordUnreadable => ipam::record_unreadable,
    ReportedByCalicoctl => ipam::reported_by_calicoctl,
    RequestedPoolMissing => told::requested_pool_missing,
    RightsMissing => nodes::rights_missing,
    RouteDiverted => reach::route_diverted,
    RouteGatewayUnreachable => reach::route_gateway_unreachable,
    RouteMissing => kernel::route_missing,
    RouteShadowed => kernel::route_shadowed,
    RouteToWrongDevice => kernel::route_to_wrong_device,
    RouteViaWrongNode => reach::route_via_wrong_node,
    RouteWithoutEndpoint => kernel::route_without_endpoint,
    RpFilterLoose => nodes::rp_filter_loose,
    RulesNotLoaded => firewall::rules_not_loaded,
    RulesNotWritten => firewall::rules_not_written,
    RuntimeNotAnswering => told::runtime_not_answering,
    RuntimeWithoutCri => told::runtime_without_cri,
    SandboxImageMissing => told::sandbox_image_missing,
    SecurityModuleDenies => told::security_module_denies,
    ServiceAddressUnreachable => told::service_address_unreachable,
    ServiceBlockEmpty => ipam::service_block_empty,
    ServiceRangeOverlaps => ipam::service_range_overlaps,
    SourceCheckOn => reach::source_check_on,
    StaleDel => logs::stale_del,
    StateFolderUnusable => nodes::state_folder_unusable,
    StoreFull => nodes::store_full,
    StoreLocked => nodes::store_locked,
    StoreUnreachable => nodes::store_unreachable,
    StoreUnstable => nodes::store_unstable,
    StrictArpOff => nodes::strict_arp_off,
    SysctlHarmful => nodes::sysctl_harmful,
    Tombstone => ipam::tombstone,
    TunnelAddressShared => ipam::tunnel_address_shared,
    TunnelDeviceWrong => reach::tunnel_device_wrong,
    TunnelDisabled => reach::tunnel_disabled,
    TunnelDropped => firewall::tunnel_dropped,
    TunnelEndUnknown => reach::tunnel_end_unknown,
    TunnelMacShared => reach::tunnel_mac_shared,
    TunnelNotMade => nodes::tunnel_not_made,
    TyphaCertificateRefused => told::typha_certificate_refused,
    TyphaUnreachable => nodes::typha_unreachable,
    VxlanChecksumBroken => told::vxlan_checksum_broken,
    WatchesExhausted => nodes::watches_exhausted,
    WebhookUnreachable => told::webhook_unreachable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_explained() {
        assert_eq!(ALL.iter().map(|check| check.code).collect::<Vec<_>>(), FindingCode::ALL);
        for check in ALL {
            assert!(check.explanation.len() > 40 && check.remedy.len() > 10, "{}", check.code);
            assert!(!check.title.is_empty() && !check.title.ends_with('.'), "{}", check.code);
            assert!(!check.needs.is_empty(), "{}", check.code);
        }
    }
}
