//! Every check there is. A new one is a new file and a new row here.

use crate::Check;

mod bgp;
mod endpoints;
#[cfg(test)]
pub(crate) mod faults;
mod firewall;
mod ipam;
mod kernel;
mod logs;
mod nodes;
mod pods;
mod policy;
mod reach;
#[cfg(test)]
mod testing;
mod words;

pub(crate) use ipam::handle_by_name::is_by_name as is_handle_by_name;

/// In the order of their codes.
pub const ALL: &[&Check] = &[
    &logs::add_failing::CHECK,
    &ipam::address_allocated_twice::CHECK,
    &ipam::address_leaked::CHECK,
    &ipam::address_outside_pools::CHECK,
    &endpoints::address_shared::CHECK,
    &ipam::address_used_but_free::CHECK,
    &ipam::affinity_contradicted::CHECK,
    &ipam::affinity_missing::CHECK,
    &ipam::affinity_of_gone_node::CHECK,
    &ipam::affinity_unfinished::CHECK,
    &ipam::affinity_unlabelled::CHECK,
    &ipam::allocation_without_handle::CHECK,
    &bgp::bgp_as_wrong::CHECK,
    &bgp::bgp_not_running::CHECK,
    &bgp::bgp_password_wrong::CHECK,
    &bgp::bgp_port_closed::CHECK,
    &bgp::bgp_record_unfit::CHECK,
    &bgp::bgp_session_down::CHECK,
    &ipam::block_contradicts_itself::CHECK,
    &ipam::block_hides_address::CHECK,
    &ipam::block_limit_reached::CHECK,
    &ipam::block_missing::CHECK,
    &ipam::block_outside_pools::CHECK,
    &ipam::block_overlap::CHECK,
    &reach::block_route_missing::CHECK,
    &reach::block_route_wrong::CHECK,
    &nodes::calico_node_not_ready::CHECK,
    &nodes::clock_skew::CHECK,
    &reach::cluster_routes_contradictory::CHECK,
    &nodes::cni_config_shadowed::CHECK,
    &nodes::credentials_expired::CHECK,
    &logs::del_retried::CHECK,
    &nodes::del_unfinished::CHECK,
    &kernel::device_down::CHECK,
    &kernel::device_setting_wrong::CHECK,
    &endpoints::device_shared::CHECK,
    &kernel::device_without_endpoint::CHECK,
    &endpoints::endpoint_address_differs::CHECK,
    &endpoints::endpoint_misplaced::CHECK,
    &endpoints::endpoint_of_old_sandbox::CHECK,
    &endpoints::endpoint_on_two_nodes::CHECK,
    &endpoints::endpoint_without_container_id::CHECK,
    &kernel::endpoint_without_device::CHECK,
    &endpoints::endpoint_without_pod::CHECK,
    &endpoints::endpoint_without_sandbox::CHECK,
    &nodes::etcd_even_members::CHECK,
    &firewall::forwarding_dropped::CHECK,
    &nodes::forwarding_off::CHECK,
    &ipam::handle_by_name::CHECK,
    &ipam::handle_count_wrong::CHECK,
    &ipam::handle_missing::CHECK,
    &ipam::handle_unused::CHECK,
    &ipam::ipam_config_ignored::CHECK,
    &nodes::kubelet_failing::CHECK,
    &nodes::kubelet_refuses_swap::CHECK,
    &ipam::leak_collection_off::CHECK,
    &policy::mode_unsupported::CHECK,
    &kernel::mtu_differs::CHECK,
    &kernel::mtu_too_large::CHECK,
    &firewall::nat_missing::CHECK,
    &kernel::neighbour_missing::CHECK,
    &kernel::neighbour_without_endpoint::CHECK,
    &kernel::neighbour_wrong::CHECK,
    &nodes::node_address_doubtful::CHECK,
    &nodes::node_address_missing::CHECK,
    &nodes::node_address_shared::CHECK,
    &nodes::node_address_unfit::CHECK,
    &nodes::node_address_wrong::CHECK,
    &nodes::node_left_behind::CHECK,
    &nodes::node_not_ready::CHECK,
    &nodes::node_unrecorded::CHECK,
    &nodes::nodename_differs::CHECK,
    &reach::packets_lost::CHECK,
    &pods::pod_address_missing::CHECK,
    &pods::pod_default_route_missing::CHECK,
    &pods::pod_gateway_unresolved::CHECK,
    &pods::pod_interface_missing::CHECK,
    &pods::pod_namespace_gone::CHECK,
    &pods::pod_network_crowded::CHECK,
    &logs::pod_replaced_without_del::CHECK,
    &firewall::pod_spoofing_possible::CHECK,
    &endpoints::pod_without_endpoint::CHECK,
    &policy::policy_not_enforced::CHECK,
    &ipam::pool_full::CHECK,
    &ipam::pool_not_for_node::CHECK,
    &ipam::pool_overlap::CHECK,
    &ipam::record_unreadable::CHECK,
    &ipam::reported_by_calicoctl::CHECK,
    &reach::route_diverted::CHECK,
    &reach::route_gateway_unreachable::CHECK,
    &kernel::route_missing::CHECK,
    &kernel::route_shadowed::CHECK,
    &kernel::route_to_wrong_device::CHECK,
    &reach::route_via_wrong_node::CHECK,
    &kernel::route_without_endpoint::CHECK,
    &nodes::rp_filter_loose::CHECK,
    &ipam::service_block_empty::CHECK,
    &logs::stale_del::CHECK,
    &nodes::state_folder_unusable::CHECK,
    &nodes::store_unreachable::CHECK,
    &nodes::store_unstable::CHECK,
    &ipam::tombstone::CHECK,
    &ipam::tunnel_address_shared::CHECK,
    &reach::tunnel_device_wrong::CHECK,
    &firewall::tunnel_dropped::CHECK,
    &reach::tunnel_end_unknown::CHECK,
];

/// The check with this code.
pub fn find(code: &str) -> Option<&'static Check> {
    ALL.iter().copied().find(|check| check.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_unique_and_explained() {
        assert!(ALL.is_sorted_by(|a, b| a.code < b.code), "sorted by code, each once");
        for check in ALL {
            let is_code = |code: &str| code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            assert!(is_code(check.code), "{}", check.code);
            assert!(check.explanation.len() > 40 && check.remedy.len() > 10, "{}", check.code);
            assert!(!check.title.is_empty() && !check.title.ends_with('.'), "{}", check.code);
            assert!(find(check.code).is_some_and(|found| found.code == check.code));
        }
        assert!(find("no-such-code").is_none());
    }
}
