//! What each mode of a pool leads to.

use model::{IpVersion, Mac};
use plan::between::{Encapsulation, Extent, NodeView, Uplinks, Writer};

use crate::cluster::{block, cidr, cluster, lent, node, pool, routes, troubles, uplinks};

const OWN_BLOCK: &str = "10.0.0.0/26 blackhole";

#[test]
fn without_encapsulation_nodes_in_one_network_are_reached_directly() {
    let between = cluster(Encapsulation::None);
    assert_eq!(routes(&between), [OWN_BLOCK, "10.0.1.0/26 uplink 192.0.2.2"]);
    assert_eq!(troubles(&between), ["10.0.2.0/26 c no-common-network"]);
    assert_eq!(between.vxlan(IpVersion::V4), None);
    assert_eq!(between.neighbours().count() + between.forwards().count(), 0);
}

#[test]
fn vxlan_always_goes_through_the_tunnel() {
    let between = cluster(Encapsulation::Vxlan(Extent::Always));
    assert_eq!(routes(&between), [OWN_BLOCK, "10.0.1.0/26 vxlan 10.0.1.0", "10.0.2.0/26 vxlan 10.0.2.0"]);
    let device = between.vxlan(IpVersion::V4).unwrap();
    assert_eq!((device.name(), device.vni, device.port, device.mtu), ("vxlan.calico", 4096, 4789, 1450));
    assert_eq!(device.local.to_string(), "192.0.2.1");
    assert_eq!(device.address, "10.0.0.0".parse().ok());
    assert_eq!(device.mac, Mac::of_vxlan("a", IpVersion::V4));
    let mac = Mac::of_vxlan("b", IpVersion::V4);
    assert_eq!(between.neighbour(&"10.0.1.0".parse().unwrap()), Some(mac));
    assert_eq!(between.forward(IpVersion::V4, mac), "192.0.2.2".parse().ok());
    assert_eq!(between.forwards().count(), 2, "this node is not its own neighbour");
}

#[test]
fn vxlan_across_subnets_is_direct_within_one() {
    let between = cluster(Encapsulation::Vxlan(Extent::CrossSubnet));
    assert_eq!(routes(&between), [OWN_BLOCK, "10.0.1.0/26 uplink 192.0.2.2", "10.0.2.0/26 vxlan 10.0.2.0"]);
}

#[test]
fn seen_from_the_other_side_of_the_router_it_is_the_other_way_round() {
    let mut between = cluster(Encapsulation::Vxlan(Extent::CrossSubnet));
    between.set_node("a", Some(node("198.51.100.1/24", "10.0.0.0")));
    between.settle();
    assert_eq!(
        routes(&between),
        [OWN_BLOCK, "10.0.1.0/26 vxlan 10.0.1.0", "10.0.2.0/26 uplink 198.51.100.3"]
    );
    assert_eq!(between.vxlan(IpVersion::V4).unwrap().local.to_string(), "198.51.100.1");
}

#[test]
fn ipip_is_planned_and_said_where_the_kernel_lacks_it() {
    let mut between = cluster(Encapsulation::Ipip(Extent::Always));
    assert_eq!(routes(&between), [OWN_BLOCK, "10.0.1.0/26 uplink 192.0.2.2"], "rather so than not at all");
    assert_eq!(troubles(&between), ["10.0.1.0/26 b ipip-not-in-kernel", "10.0.2.0/26 c ipip-not-in-kernel"]);
    assert_eq!(
        between.ipip(between.uplinks()).map(|device| (device.address, device.mtu)),
        Some((None, 1480))
    );
    between.set_uplinks(Uplinks { has_ipip: true, ..uplinks() });
    between.settle();
    assert_eq!(routes(&between), [OWN_BLOCK, "10.0.1.0/26 ipip 192.0.2.2", "10.0.2.0/26 ipip 198.51.100.3"]);
    assert_eq!(troubles(&between).len(), 0);

    let between = cluster(Encapsulation::Ipip(Extent::CrossSubnet));
    assert_eq!(routes(&between), [OWN_BLOCK, "10.0.1.0/26 uplink 192.0.2.2"], "no tunnel is needed for that");
}

#[test]
fn both_ip_versions_stand_by_themselves() {
    let mut between = cluster(Encapsulation::None);
    between.set_pool("pods6", Some(pool("fd00::/48", Encapsulation::Vxlan(Extent::Always))));
    let dual = |v4: NodeView, v6: NodeView| NodeView { v6: v6.v6, ..v4 };
    between.set_node("a", Some(dual(node("192.0.2.1/24", ""), node("fd99::1/64", "fd00::"))));
    between.set_node("b", Some(dual(node("192.0.2.2/24", ""), node("fd99::2/64", "fd00::40"))));
    between.set_block(cidr("fd00::/122"), Some(block("a")));
    between.set_block(cidr("fd00::40/122"), Some(block("b")));
    between.settle();
    assert_eq!(
        routes(&between),
        [
            OWN_BLOCK,
            "10.0.1.0/26 uplink 192.0.2.2",
            "fd00::/122 blackhole",
            "fd00::40/122 vxlan fd00::40",
            "fd00::40/128 vxlan fd00::40"
        ]
    );
    let device = between.vxlan(IpVersion::V6).unwrap();
    assert_eq!((device.name(), device.mtu), ("vxlan-v6.calico", 1430));
    assert_eq!(device.mac, Mac::of_vxlan("a", IpVersion::V6));
    assert_eq!(between.vxlan(IpVersion::V4), None);
}

#[test]
fn an_address_at_another_node_than_its_block_has_its_own_route() {
    let mut between = cluster(Encapsulation::Vxlan(Extent::CrossSubnet));
    // Out of our block, out of somebody else's, and one that we have borrowed ourselves.
    between.set_block(cidr("10.0.0.0/26"), Some(lent("a", &[("10.0.0.7", "c")])));
    between.set_block(cidr("10.0.1.0/26"), Some(lent("b", &[("10.0.1.8", "a"), ("10.0.1.9", "c")])));
    between.settle();
    assert_eq!(
        routes(&between),
        [
            OWN_BLOCK,
            "10.0.0.7/32 vxlan 10.0.2.0",
            "10.0.1.0/26 uplink 192.0.2.2",
            "10.0.1.9/32 vxlan 10.0.2.0",
            "10.0.2.0/26 vxlan 10.0.2.0"
        ]
    );
    let borrowed = between.route_to(&"10.0.0.7/32".parse().unwrap()).unwrap();
    assert!(borrowed.metric() > 0, "a pod that has just come is preferred to a record that is late");
    // It is given back.
    between.set_block(cidr("10.0.0.0/26"), Some(block("a")));
    let changed = between.settle();
    assert_eq!(changed.routes.len(), 1);
    assert_eq!(between.route_to(&"10.0.0.7/32".parse().unwrap()), None);
}

#[test]
fn a_tunnel_address_that_is_borrowed_is_its_own_gateway() {
    let mut between = cluster(Encapsulation::Vxlan(Extent::Always));
    between.set_node("c", Some(node("198.51.100.3/24", "10.0.1.60")));
    between.set_block(cidr("10.0.1.0/26"), Some(lent("b", &[("10.0.1.60", "c")])));
    between.settle();
    let route = between.route_to(&"10.0.1.60/32".parse().unwrap()).unwrap();
    assert_eq!(route.gateway(), None);
    assert_eq!(
        between.route_to(&"10.0.2.0/26".parse().unwrap()).unwrap().gateway(),
        "10.0.1.60".parse().ok()
    );
}

#[test]
fn blocks_of_one_address_are_no_black_holes() {
    let mut between = cluster(Encapsulation::None);
    between.set_block(cidr("10.0.9.1/32"), Some(block("a")));
    between.set_block(cidr("10.0.9.2/32"), Some(block("b")));
    between.settle();
    assert_eq!(between.route_to(&"10.0.9.1/32".parse().unwrap()), None);
    assert!(routes(&between).contains(&"10.0.9.2/32 uplink 192.0.2.2".to_owned()));
}

#[test]
fn routes_without_tunnel_are_left_to_bird_if_the_settings_say_so() {
    let mut settings = plan::between::BetweenSettings { felix_programs: Some(false), ..Default::default() };
    assert_eq!(settings.writer(), Writer::Bird);
    let mut between = cluster(Encapsulation::None);
    between.set_settings(settings.clone());
    between.settle();
    assert_eq!(routes(&between), [OWN_BLOCK]);
    assert_eq!(troubles(&between).len(), 0, "whether it is near is not for us to say");

    let mut between = cluster(Encapsulation::Vxlan(Extent::CrossSubnet));
    between.set_settings(settings.clone());
    between.settle();
    assert_eq!(routes(&between).len(), 3, "those of a pool with a tunnel are always ours");

    settings.vxlan_enabled = false;
    between.set_settings(settings);
    between.settle();
    assert_eq!(between.vxlan(IpVersion::V4), None);
    assert_eq!(troubles(&between), ["10.0.2.0/26 c no-own-tunnel"]);
}
