//! What checks and repairs are told: by names of devices, with the rule of the agent.

use ipnet::IpNet;
use model::IpVersion;
use plan::between::{Encapsulation, Extent, RouteFault};
use plan::task::{KernelChange, NextHop, RepairTask};
use plan::{NamedRoute, RouteKind};

use crate::cluster::cluster;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn seen(device: &str, gateway: &str, is_onlink: bool) -> NamedRoute {
    let (device, via) = (Some(device.to_owned()), gateway.parse().ok());
    NamedRoute { device, via, is_onlink, ..NamedRoute::to(net("10.0.1.0/26")) }
}

#[test]
fn a_route_is_held_against_the_mode_of_its_pool() {
    let always = cluster(Encapsulation::Vxlan(Extent::Always));
    let near = always.route_to(&net("10.0.1.0/26")).unwrap();
    let fault = |route: NamedRoute| always.fault_of(&route, &near);
    assert_eq!(fault(seen("vxlan.calico", "10.0.1.0", true)), None);
    assert_eq!(fault(seen("vxlan.calico", "10.0.1.0", false)), Some(RouteFault::NotOnlink));
    assert_eq!(fault(seen("vxlan.calico", "10.0.2.0", true)), Some(RouteFault::Gateway));
    assert_eq!(fault(seen("eth0", "192.0.2.2", true)), Some(RouteFault::Device), "past the tunnel");
    let hole = NamedRoute { kind: RouteKind::Blackhole, ..NamedRoute::to(net("10.0.1.0/26")) };
    assert_eq!(fault(hole), Some(RouteFault::LeadsNowhere));
    let across = cluster(Encapsulation::Vxlan(Extent::CrossSubnet));
    let (near, far) =
        (across.route_to(&net("10.0.1.0/26")).unwrap(), across.route_to(&net("10.0.2.0/26")).unwrap());
    assert_eq!(
        across.fault_of(&seen("eth0", "192.0.2.2", false), &near),
        None,
        "a card's gateway needs no onlink"
    );
    assert_eq!(across.fault_of(&seen("vxlan.calico", "10.0.1.0", true), &near), Some(RouteFault::Device));
    assert_eq!(across.fault_of(&seen("eth0", "198.51.100.3", true), &far), Some(RouteFault::Device));
}

#[test]
fn repairs_add_what_the_agent_would_add() {
    let always = cluster(Encapsulation::Vxlan(Extent::Always));
    let route = always.route_to(&net("10.0.1.0/26")).unwrap();
    let expected = NextHop {
        device: Some("vxlan.calico".to_owned()),
        via: "10.0.1.0".parse().ok(),
        is_onlink: true,
        ..NextHop::default()
    };
    assert_eq!(always.way_of(&route), Some(expected));
    assert!(!always.is_makeshift(&route));
    let words: Vec<String> = always
        .tunnel_changes(IpVersion::V4)
        .into_iter()
        .map(|change| RepairTask::here(change).to_string())
        .collect();
    assert_eq!(words.len(), 6, "two entries and a route for each of two nodes: {words:#?}");
    assert!(words[0].starts_with("bridge fdb replace 66:"), "{words:#?}");
    assert!(words[2].starts_with("ip neigh replace 10.0.1.0 lladdr 66:"), "{words:#?}");
    assert_eq!(words[4], "ip route replace 10.0.1.0/26 via 10.0.1.0 dev vxlan.calico onlink");
    let device = always.vxlan(IpVersion::V4).unwrap();
    let tunnel = always.tunnel_of(device).unwrap();
    assert_eq!((tunnel.parent.as_str(), tunnel.address, tunnel.is_up), ("eth0", device.address, true));
    let make = KernelChange::Tunnel { device: device.name().to_owned(), from: None, to: Some(tunnel) };
    let commands = RepairTask::here(make).commands();
    let commands: Vec<String> = commands.iter().map(ToString::to_string).collect();
    assert!(
        commands[0].contains(" type vxlan id 4096 dstport 4789 local 192.0.2.1 dev eth0 nolearning"),
        "{commands:?}"
    );
    assert_eq!(commands[1..], ["ip address add 10.0.0.0/32 dev vxlan.calico", "ip link set vxlan.calico up"]);
}

/// Rather without a tunnel than not at all is what an agent does for the time being, and no rule.
#[test]
fn what_lacks_a_tunnel_is_makeshift() {
    let mut always = cluster(Encapsulation::Vxlan(Extent::Always));
    let mut bare = always.nodes().find(|(name, _)| *name == "b").unwrap().1.clone();
    bare.v4.tunnel = None;
    always.set_node("b", Some(bare));
    always.settle();
    let route = always.route_to(&net("10.0.1.0/26")).unwrap();
    assert!(always.is_makeshift(&route), "{route}");
    assert_eq!(always.encapsulation_of(&net("10.0.1.9/32")), Some(Encapsulation::Vxlan(Extent::Always)));
    assert_eq!(always.encapsulation_of(&net("10.9.0.0/16")), None);
}
