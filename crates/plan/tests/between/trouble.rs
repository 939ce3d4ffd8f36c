//! What is said when something cannot be reached.

use model::IpVersion;
use plan::between::{Encapsulation, Extent, NodeView, Trouble, Uplinks};

use crate::cluster::{cidr, cluster, lent, node, routes, troubles, uplinks};

#[test]
fn a_node_without_address_or_record_is_named() {
    let mut between = cluster(Encapsulation::None);
    between.set_node("b", Some(NodeView::default()));
    between.settle();
    assert!(troubles(&between).contains(&"10.0.1.0/26 b node-without-address".to_owned()));
    between.set_node("b", None);
    between.settle();
    assert!(troubles(&between).contains(&"10.0.1.0/26 b node-without-address".to_owned()));
    between.set_node("b", Some(node("192.0.2.2/24", "")));
    assert_eq!(between.settle().routes.len(), 1);
    assert!(!troubles(&between).iter().any(|trouble| trouble.contains("10.0.1.0/26")));
}

#[test]
fn two_nodes_with_one_address_are_named() {
    let mut between = cluster(Encapsulation::None);
    assert_eq!(between.shared_addresses().count(), 0);
    between.set_node("d", Some(node("192.0.2.2/24", "")));
    between.settle();
    let (address, names) = between.shared_addresses().next().unwrap();
    assert_eq!(address.to_string(), "192.0.2.2");
    assert_eq!(names.iter().collect::<Vec<_>>(), ["b", "d"]);
    // Whoever really has it is still reached.
    assert!(routes(&between).contains(&"10.0.1.0/26 uplink 192.0.2.2".to_owned()));
    between.set_node("d", None);
    assert_eq!(between.shared_addresses().count(), 0);
}

#[test]
fn a_node_with_our_own_address_is_not_routed_to_ourselves() {
    let mut between = cluster(Encapsulation::Vxlan(Extent::Always));
    between.set_node("b", Some(node("192.0.2.1/24", "10.0.1.0")));
    between.settle();
    assert_eq!(troubles(&between), ["10.0.1.0/26 b node-with-our-address"]);
    assert_eq!(between.neighbour(&"10.0.1.0".parse().unwrap()), None);
    assert_eq!(between.shared_addresses().count(), 1);
}

#[test]
fn tunnels_need_both_ends_and_who_is_near_is_reached_without_meanwhile() {
    let mut between = cluster(Encapsulation::Vxlan(Extent::Always));
    for (name, address) in [("b", "192.0.2.2/24"), ("c", "198.51.100.3/24")] {
        between.set_node(name, Some(node(address, "")));
    }
    between.settle();
    assert_eq!(routes(&between), ["10.0.0.0/26 blackhole", "10.0.1.0/26 uplink 192.0.2.2"]);
    assert_eq!(
        troubles(&between),
        ["10.0.1.0/26 b node-without-tunnel", "10.0.2.0/26 c node-without-tunnel"]
    );
    for (name, address, tunnel) in
        [("b", "192.0.2.2/24", "10.0.1.0"), ("c", "198.51.100.3/24", "10.0.2.0"), ("a", "192.0.2.1/24", "")]
    {
        between.set_node(name, Some(node(address, tunnel)));
    }
    between.settle();
    assert_eq!(routes(&between), ["10.0.0.0/26 blackhole", "10.0.1.0/26 uplink 192.0.2.2"]);
    assert_eq!(troubles(&between), ["10.0.1.0/26 b no-own-tunnel", "10.0.2.0/26 c no-own-tunnel"]);
    // The device is there before its address is: others read that in the record, and send.
    assert_eq!(between.vxlan(IpVersion::V4).unwrap().address, None);
    assert!(between.troubles().all(|(_, _, trouble)| trouble.is_own()));
}

#[test]
fn this_node_needs_an_address_and_a_device_that_has_it() {
    let mut between = cluster(Encapsulation::None);
    between.set_uplinks(Uplinks { v4: None, ..uplinks() });
    between.settle();
    assert!(
        between.troubles().all(|(_, _, trouble)| trouble == Trouble::NoUplink { version: IpVersion::V4 })
    );
    between.set_node("a", None);
    between.settle();
    assert!(
        between.troubles().all(|(_, _, trouble)| trouble == Trouble::NoOwnAddress { version: IpVersion::V4 })
    );
    assert_eq!(routes(&between), ["10.0.0.0/26 blackhole"]);
}

#[test]
fn where_a_borrowed_address_is_matters_too() {
    let mut between = cluster(Encapsulation::None);
    between.set_block(cidr("10.0.1.0/26"), Some(lent("b", &[("10.0.1.5", "lost")])));
    between.settle();
    assert!(troubles(&between).contains(&"10.0.1.0/26 lost node-without-address".to_owned()));
    // Its record arrives later.
    between.set_node("lost", Some(node("192.0.2.77/24", "")));
    between.settle();
    assert!(routes(&between).contains(&"10.0.1.5/32 uplink 192.0.2.77".to_owned()));
}
