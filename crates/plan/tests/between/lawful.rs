//! Records that would take something from others: no route follows from them, and they are named.

use std::net::IpAddr;

use ipnet::IpNet;
use model::IpVersion;
use plan::Route;
use plan::between::{
    Between, BetweenDevices, BetweenObserved, BetweenSettings, Encapsulation, Extent, Via,
    between_differences,
};
use proptest::prelude::*;

use crate::cluster::{block, cidr, cluster, lent, node, pool, routes, troubles, uplinks};

const MODES: [Encapsulation; 3] =
    [Encapsulation::None, Encapsulation::Vxlan(Extent::Always), Encapsulation::Vxlan(Extent::CrossSubnet)];

fn with_services(mut between: Between) -> Between {
    let services = vec!["10.96.0.0/12".parse().unwrap(), "fd96::/108".parse().unwrap()];
    between.set_settings(BetweenSettings { services, ..BetweenSettings::default() });
    between.set_node(
        "b",
        Some(plan::between::NodeView { v6: node("fd99::2/64", "").v6, ..node("192.0.2.2/24", "10.0.1.0") }),
    );
    between.settle();
    between
}

#[test]
fn a_block_outside_of_pools_is_not_routed_to_anybody() {
    for mode in MODES {
        for (network, code) in [
            ("0.0.0.0/0", "block-hides-node"),
            ("192.0.2.0/24", "block-hides-node"),
            ("192.0.2.2/32", "block-hides-node"),
            ("198.51.100.0/26", "block-hides-node"),
            ("10.96.0.10/32", "block-hides-service"),
            ("203.0.113.0/26", "block-without-pool"),
            ("::/0", "block-hides-node"),
            ("fd99::/64", "block-hides-node"),
            ("fd96::a/128", "block-hides-service"),
            ("fd77::/122", "block-without-pool"),
        ] {
            for owner in ["a", "b", "c", "nobody"] {
                let mut between = with_services(cluster(mode));
                let before = routes(&between);
                between.set_block(cidr(network), Some(block(owner)));
                assert!(between.settle().is_empty(), "{network} of {owner}");
                assert_eq!(routes(&between), before, "{network} of {owner}");
                let said = troubles(&between);
                assert!(said.contains(&format!("{network} {owner} {code}")), "{said:?}");
            }
        }
    }
}

#[test]
fn single_addresses_of_such_a_block_are_not_routed_either() {
    let mut between = with_services(cluster(Encapsulation::None));
    let before = routes(&between);
    // The address of node c, that of a service, and one that is nobody's, all said to be at node b.
    for (network, address) in [
        ("198.51.100.0/26", "198.51.100.3"),
        ("10.96.0.0/26", "10.96.0.10"),
        ("203.0.113.0/26", "203.0.113.5"),
    ] {
        between.set_block(cidr(network), Some(lent("c", &[(address, "b")])));
        assert!(between.settle().is_empty(), "{address}");
    }
    assert_eq!(routes(&between), before);
}

#[test]
fn not_even_a_pool_makes_a_route_that_hides_a_node() {
    let mut between = cluster(Encapsulation::None);
    between.set_pool("everything", Some(pool("0.0.0.0/0", Encapsulation::None)));
    between.settle();
    let before = routes(&between);
    between.set_block(cidr("192.0.2.0/26"), Some(block("c")));
    between.settle();
    assert_eq!(routes(&between), before);
    assert!(troubles(&between).contains(&"192.0.2.0/26 c block-hides-node".to_owned()));
    // Our own block would be a black hole for the node.
    between.set_block(cidr("198.51.100.0/26"), Some(block("a")));
    between.settle();
    assert_eq!(routes(&between), before);
    // Once the node is elsewhere, nothing is hidden.
    between.set_node("c", Some(node("192.0.2.200/24", "10.0.2.0")));
    between.settle();
    assert!(routes(&between).contains(&"198.51.100.0/26 blackhole".to_owned()), "{:?}", routes(&between));
}

/// Whoever can write one Node record, or one range of services, must not cut off the pods of others.
#[test]
fn a_record_that_comes_later_cuts_off_no_block_that_is_routed() {
    for mode in MODES {
        let mut between = cluster(mode);
        between.settle();
        let before = routes(&between);
        between.set_node("evil", Some(node("10.0.1.7/24", "")));
        between.settle();
        assert_eq!(routes(&between), before, "a node's address");
        assert!(troubles(&between).iter().any(|said| said.contains("10.0.1.0/26 b block-hides-node")));
        let services = vec!["10.0.2.0/24".parse().unwrap()];
        between.set_settings(BetweenSettings { services, ..BetweenSettings::default() });
        between.settle();
        assert_eq!(routes(&between), before, "a range of services");
        assert!(troubles(&between).iter().any(|said| said.contains("10.0.2.0/26 c block-hides-service")));
        // What comes later than these is not routed.
        between.set_block(cidr("10.0.2.64/26"), Some(block("c")));
        between.settle();
        assert_eq!(routes(&between), before);
    }
}

#[test]
fn a_range_of_services_around_the_whole_pool_hides_nothing() {
    let mut between = cluster(Encapsulation::None);
    let before = routes(&between);
    let services = vec!["10.0.0.0/8".parse().unwrap()];
    between.set_settings(BetweenSettings { services, ..BetweenSettings::default() });
    assert!(between.settle().routes.is_empty());
    assert_eq!(routes(&between), before);
}

#[test]
fn no_pod_may_have_the_address_of_a_node_or_of_a_service() {
    let between = with_services(cluster(Encapsulation::None));
    let hidden =
        |address: &str| between.protected().hidden_by(address.parse().unwrap()).map(|trouble| trouble.code());
    for address in ["192.0.2.1", "192.0.2.2", "fd99::2"] {
        assert_eq!(hidden(address), Some("block-hides-node"), "{address}");
    }
    assert_eq!(hidden("10.96.0.10"), Some("block-hides-service"));
    for address in ["10.0.0.5", "192.0.2.99", "fd00::5"] {
        assert_eq!(hidden(address), None, "{address}");
    }
}

#[test]
fn a_disabled_pool_counts() {
    let mut between = cluster(Encapsulation::None);
    let before = routes(&between);
    let disabled = plan::between::PoolView { is_enabled: false, ..pool("10.0.0.0/16", Encapsulation::None) };
    between.set_pool("pods", Some(disabled));
    between.settle();
    assert_eq!(
        (routes(&between), troubles(&between)),
        (before, vec!["10.0.2.0/26 c no-common-network".to_owned()])
    );
}

#[test]
fn a_block_inside_another_nodes_takes_nothing_from_it() {
    for mode in MODES {
        let mut between = cluster(mode);
        between.set_node("d", Some(node("192.0.2.4/24", "10.0.3.0")));
        between.settle();
        let before = routes(&between);
        for network in ["10.0.1.0/28", "10.0.1.7/32", "10.0.0.0/27"] {
            between.set_block(cidr(network), Some(block("d")));
            between.settle();
            assert_eq!(routes(&between), before, "{network}");
            assert!(troubles(&between).contains(&format!("{network} d block-inside-another")));
        }
        // A wide one wins over nobody, but the single addresses in it would.
        between.set_block(cidr("10.0.0.0/17"), Some(lent("d", &[("10.0.1.7", "d"), ("10.0.1.8", "c")])));
        between.settle();
        let wide = routes(&between);
        assert!(
            !wide.iter().any(|route| route.starts_with("10.0.1.7/32") || route.starts_with("10.0.1.8/32")),
            "{wide:?}"
        );
        assert!(before.iter().all(|route| wide.contains(route)), "{wide:?}");
    }
}

#[test]
fn who_was_there_first_stays_when_a_block_comes_around_it() {
    let mut between = cluster(Encapsulation::None);
    // The pool's blocks are larger than they were when this one was made.
    between.set_block(cidr("10.0.9.0/28"), Some(block("b")));
    between.settle();
    let own = "10.0.9.0/28 uplink 192.0.2.2".to_owned();
    assert!(routes(&between).contains(&own));
    between.set_node("d", Some(node("192.0.2.4/24", "")));
    between.set_block(cidr("10.0.9.0/26"), Some(block("d")));
    between.settle();
    assert!(routes(&between).contains(&own), "{:?}", routes(&between));
    assert!(troubles(&between).contains(&"10.0.9.0/28 b block-inside-another".to_owned()));
    // With another owner it is a new one.
    between.set_block(cidr("10.0.9.0/28"), Some(block("c")));
    between.settle();
    assert!(!routes(&between).iter().any(|route| route.starts_with("10.0.9.0/28")), "{:?}", routes(&between));
}

fn devices() -> BetweenDevices {
    BetweenDevices { uplinks: [Some(2); 2], vxlan: [Some(3); 2], ipip: Some(4) }
}

fn kernel(between: &Between) -> Vec<(Route, Option<Via>)> {
    let found = |route: plan::between::NodeRoute| {
        let found = devices().kernel_route(&route).unwrap();
        (found, found.device.and_then(|index| devices().via(route.version(), index)))
    };
    between.routes().map(found).collect()
}

/// What an agent knows that starts now.
fn without_pool(cluster: &Between) -> Between {
    let mut fresh = Between::new("a");
    fresh.set_uplinks(uplinks());
    cluster.nodes().for_each(|(name, view)| fresh.set_node(name, Some(view.clone())));
    for (network, owner) in
        [("10.0.0.0/26", "a"), ("10.0.1.0/26", "b"), ("10.0.2.0/26", "c"), ("10.0.5.0/26", "b")]
    {
        fresh.set_block(cidr(network), Some(block(owner)));
    }
    fresh
}

#[test]
fn a_pool_that_is_deleted_leaves_routes_and_tunnels_as_they_are() {
    for mode in MODES {
        let mut between = cluster(mode);
        let (before, devices) = (routes(&between), between.vxlan(IpVersion::V4).cloned());
        between.set_pool("pods", None);
        assert!(between.settle().is_empty(), "{mode:?}");
        assert_eq!(
            (routes(&between), between.vxlan(IpVersion::V4).cloned()),
            (before.clone(), devices.clone())
        );
        assert!(troubles(&between).contains(&"10.0.1.0/26 b pool-gone".to_owned()));
        assert_eq!(between.held().count(), 3);
        // What comes now is not routed, not even to where an old one leads.
        between.set_block(cidr("10.0.5.0/26"), Some(block("b")));
        assert!(between.settle().is_empty());
        // Another agent finds it so, and leaves it so.
        let mut next = without_pool(&between);
        assert!(next.has_outlaws());
        next.adopt(&kernel(&between), [mode != Encapsulation::None, false]);
        next.settle();
        assert_eq!(routes(&next), before, "{mode:?}");
        assert_eq!(next.vxlan(IpVersion::V4).cloned(), devices);
        let observed = BetweenObserved {
            devices: self::devices(),
            routes: kernel(&between).into_iter().map(|(route, _)| route).collect(),
            neighbours: between.neighbours().collect(),
            forwards: between.forwards().map(|((version, mac), node)| (version, mac, node)).collect(),
        };
        assert_eq!(between_differences(&next, &observed), []);
        // The pool comes back: everything is as usual.
        between.set_pool("pods", Some(pool("10.0.0.0/16", mode)));
        between.settle();
        assert_eq!(between.held().count(), 0);
        assert!(
            !troubles(&between).iter().any(|trouble| trouble.contains("pool")),
            "{:?}",
            troubles(&between)
        );
        assert!(routes(&between).iter().any(|route| route.starts_with("10.0.5.0/26")));
    }
}

/// As `plumb delete ippool` does it: the nodes give up their blocks, which then hold addresses of theirs, and the pool goes.
#[test]
fn addresses_that_are_left_of_a_pool_stay_routed_to_where_they_are() {
    for settles in [false, true] {
        let mut between = cluster(Encapsulation::Vxlan(Extent::Always));
        let left = |at: &str| plan::between::BlockView { owner: None, ..lent("", &[("10.0.1.5", at)]) };
        between.set_block(cidr("10.0.1.0/26"), Some(left("b")));
        if settles {
            between.settle();
        }
        between.set_pool("pods", None);
        between.settle();
        assert!(
            routes(&between).contains(&"10.0.1.5/32 vxlan 10.0.1.0".to_owned()),
            "{:?}",
            routes(&between)
        );
        // Nobody else can have it said that they are there.
        between.set_block(cidr("10.0.1.0/26"), Some(left("c")));
        between.settle();
        assert!(
            !routes(&between).iter().any(|route| route.starts_with("10.0.1.5")),
            "{:?}",
            routes(&between)
        );
        between.set_block(cidr("10.0.1.0/26"), Some(left("b")));
        between.settle();
        assert!(routes(&between).contains(&"10.0.1.5/32 vxlan 10.0.1.0".to_owned()));
    }
    // Nor while the pool goes.
    let mut between = cluster(Encapsulation::None);
    between.set_block(cidr("10.0.1.0/26"), Some(block("c")));
    between.set_block(cidr("10.0.7.0/26"), Some(block("b")));
    between.set_pool("pods", None);
    between.settle();
    assert_eq!(routes(&between), ["10.0.0.0/26 blackhole"]);
}

#[test]
fn what_a_stranger_routed_is_not_taken_over() {
    let mut between = Between::new("a");
    between.set_uplinks(uplinks());
    between.set_node("a", Some(node("192.0.2.1/24", "")));
    between.set_node("b", Some(node("192.0.2.2/24", "")));
    between.set_block(cidr("10.0.1.0/26"), Some(block("b")));
    between.set_block(cidr("0.0.0.0/0"), Some(block("b")));
    let route = |destination: &str, gateway: &str| {
        let gateway = gateway.parse().ok();
        (Route { gateway, device: Some(2), ..Route::to(destination.parse().unwrap()) }, Some(Via::Uplink))
    };
    // One leads to somebody else; the other to its owner, but over everybody's head.
    between.adopt(&[route("10.0.1.0/26", "192.0.2.9"), route("0.0.0.0/0", "192.0.2.2")], [false; 2]);
    between.settle();
    assert_eq!(routes(&between), [] as [&str; 0]);
}

/// A record about the whole pool takes no address from where its own block has it.
#[test]
fn a_wide_block_neither_takes_nor_returns_addresses_of_others() {
    for (holder, others) in [("b", ["a", "c"]), ("c", ["a", "b"])] {
        let mut between = cluster(Encapsulation::Vxlan(Extent::Always));
        if holder != "b" {
            between.set_block(cidr("10.0.1.0/26"), Some(lent("b", &[("10.0.1.5", holder)])));
        }
        between.settle();
        let there = |between: &Between| {
            routes(between).into_iter().filter(|route| route.starts_with("10.0.1.")).collect::<Vec<_>>()
        };
        let before = there(&between);
        assert_eq!(before.len(), if holder == "b" { 1 } else { 2 }, "{before:?}");
        for other in others {
            between.set_block(cidr("10.0.0.0/16"), Some(lent("a", &[("10.0.1.5", other)])));
            between.settle();
            assert_eq!(there(&between), before, "{other} instead of {holder}");
        }
    }
}

/// Whatever blocks there are, over whatever networks.
fn any_block() -> impl Strategy<Value = (String, usize, Vec<(u8, usize)>)> {
    let networks = prop_oneof![
        (any::<u32>(), 0..=32u8).prop_map(|(bits, length)| {
            IpNet::new(IpAddr::from(bits.to_be_bytes()), length).unwrap().trunc().to_string()
        }),
        (0..=255u8, 0..=255u8, 8..=32u8).prop_map(|(third, last, length)| {
            IpNet::new(IpAddr::from([10, 0, third, last]), length).unwrap().trunc().to_string()
        }),
        (0..=255u8, 20..=32u8).prop_map(|(last, length)| {
            IpNet::new(IpAddr::from([192, 0, 2, last]), length).unwrap().trunc().to_string()
        }),
    ];
    (networks, 0..4usize, proptest::collection::vec((any::<u8>(), 0..4usize), 0..3))
}

proptest! {
    #[test]
    fn no_route_leaves_the_pools_or_hides_anybody(
        blocks in proptest::collection::vec((any_block(), any::<bool>()), 0..20),
        mode in 0..3usize,
        has_wide_pool in any::<bool>(),
    ) {
        let mut between = cluster(MODES[mode]);
        if has_wide_pool {
            between.set_pool("wide", Some(pool("0.0.0.0/0", MODES[mode])));
        }
        between.set_settings(BetweenSettings {
            services: vec!["10.96.0.0/12".parse().unwrap()],
            ..BetweenSettings::default()
        });
        between.settle();
        let lawful: Vec<String> = routes(&between);
        for ((network, owner, at_others), settles) in blocks {
            let network: IpNet = network.parse().unwrap();
            let name = |index: usize| ["a", "b", "c", "evil"][index];
            let lent_addresses: Vec<(String, &str)> = at_others
                .into_iter()
                .filter_map(|(host, node)| Some((network.hosts().nth(usize::from(host))?.to_string(), name(node))))
                .collect();
            let of_others: Vec<(&str, &str)> = lent_addresses.iter().map(|(address, node)| (address.as_str(), *node)).collect();
            let key = cidr(&network.to_string());
            if between.block_cidrs().any(|known| *known == key) {
                continue;
            }
            between.set_block(key, Some(lent(name(owner), &of_others)));
            if settles {
                between.settle();
            }
        }
        between.settle();
        for route in between.routes() {
            let net = route.destination;
            for address in ["192.0.2.1", "192.0.2.2", "198.51.100.3"] {
                prop_assert!(!net.contains(&address.parse::<IpAddr>().unwrap()), "{} hides a node", route);
            }
            let services: IpNet = "10.96.0.0/12".parse().unwrap();
            prop_assert!(!net.contains(&services) && !services.contains(&net), "{} hides services", route);
            let pods: IpNet = "10.0.0.0/16".parse().unwrap();
            prop_assert!(has_wide_pool || pods.contains(&net), "{} is in no pool", route);
            // Whoever has a block of the pool's size keeps all of it.
            for rightful in between.routes().filter(|rightful| lawful.contains(&rightful.to_string())) {
                let is_part = rightful.destination.contains(&net);
                prop_assert!(!is_part || rightful.way == route.way, "{} takes from {}", route, rightful);
            }
        }
        let now = routes(&between);
        prop_assert!(lawful.iter().all(|route| now.contains(route)), "{:?} of {:?}", now, lawful);
    }
}
