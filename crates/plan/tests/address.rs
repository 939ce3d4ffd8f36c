//! Which address a node is known by: Calico's methods with Calico's answers, and our own default that a second card
//! does not confuse.

use std::net::IpAddr;

use ipnet::IpNet;
use model::IpVersion;
use plan::address::{
    Choice, Doubt, Interface, InterfaceAddress, Method, OtherNode, Patience, RefusalReason, Steady,
    Surroundings, Verdict, Why, Wish, choose_address,
};
use proptest::prelude::*;

fn interface(name: &str, networks: &[&str]) -> Interface {
    let address = |text: &&str| InterfaceAddress {
        network: text.trim_end_matches('*').parse().unwrap(),
        is_secondary: text.ends_with('*'),
        is_unfit: false,
    };
    Interface { name: name.to_owned(), is_up: true, addresses: networks.iter().map(address).collect() }
}

fn other(name: &str, network: &str) -> OtherNode {
    OtherNode { name: name.to_owned(), address: network.parse().unwrap() }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The node of the incident: the cluster's network on the first card, a second card beside it that came later.
fn two_cards() -> Surroundings {
    Surroundings {
        interfaces: vec![
            interface("lo", &["127.0.0.1/8"]),
            interface("eth0", &["172.17.73.66/22"]),
            interface("eth1", &["10.0.0.66/24"]),
            interface("docker0", &["172.18.0.1/16"]),
        ],
        default_sources: vec![ip("172.17.73.66")],
        others: vec![other("k8smaster2", "172.17.73.65/22"), other("k8smaster3", "172.17.73.67/22")],
        ..Surroundings::default()
    }
}

fn by(method: &str, surroundings: &Surroundings) -> Choice {
    choose_address(&Wish::Detect, &Method::read(Some(method)).unwrap(), IpVersion::V4, surroundings)
}

fn by_default(surroundings: &Surroundings) -> Choice {
    choose_address(&Wish::Unsaid, &Method::Ours, IpVersion::V4, surroundings)
}

fn address(choice: &Choice) -> String {
    choice.address.as_ref().map_or("none".to_owned(), |chosen| chosen.network.to_string())
}

#[test]
fn calicos_methods_choose_as_calico_does() {
    let mut node = two_cards();
    node.towards = Some(ip("10.0.0.66"));
    node.internal_addresses = vec![ip("172.17.73.66")];
    for (method, expected) in [
        ("first-found", "10.0.0.66/24"),
        ("interface=eth0", "172.17.73.66/22"),
        ("interface=docker", "172.18.0.1/16"),
        ("interface=eth.*", "10.0.0.66/24"),
        ("interface=wlan0", "none"),
        ("skip-interface=eth1", "172.17.73.66/22"),
        ("cidr=172.17.0.0/16", "172.17.73.66/22"),
        ("cidr=172.18.0.0/16", "172.18.0.1/16"),
        ("can-reach=10.0.0.1", "10.0.0.66/24"),
        ("kubernetes-internal-ip", "172.17.73.66/22"),
    ] {
        assert_eq!(address(&by(method, &node)), expected, "{method}");
    }
    node.internal_addresses = vec![ip("192.0.2.1")];
    assert_eq!(address(&by("kubernetes-internal-ip", &node)), "none", "its network cannot be told");
}

#[test]
fn the_wrong_card_is_flagged_where_it_is_forced() {
    let mut node = two_cards();
    node.internal_addresses = vec![ip("172.17.73.66")];
    node.recorded = Some("172.17.73.66/22".parse().unwrap());
    let choice = by("first-found", &node);
    let said: Vec<String> = choice.doubts.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "10.0.0.66/24 is not in 172.17.72.0/22, where 2 other nodes are",
            "Kubernetes knows this node as 172.17.73.66, not as 10.0.0.66",
            "this node was at 172.17.73.66 before, and is at 10.0.0.66 now",
        ]
    );
}

#[test]
fn a_second_card_does_not_move_a_node() {
    let mut node = two_cards();
    let choice = by_default(&node);
    assert_eq!(address(&choice), "172.17.73.66/22");
    assert_eq!((choice.doubts, choice.refused), (vec![], vec![]));
    // The second card takes the default route: still where the other nodes are.
    node.default_sources = vec![ip("10.0.0.66")];
    let choice = by_default(&node);
    assert_eq!(address(&choice), "172.17.73.66/22");
    assert_eq!(
        choice.refused[0].to_string(),
        "10.0.0.66 is not in 172.17.72.0/22, where the other nodes are"
    );
    // What is recorded stays, whatever the routes say.
    node.others.clear();
    node.recorded = Some("172.17.73.66/22".parse().unwrap());
    assert_eq!(by_default(&node).address.unwrap().why, Why::Recorded);
    node.interfaces.remove(1);
    let choice = by_default(&node);
    assert_eq!(address(&choice), "10.0.0.66/24", "it is gone");
    assert!(matches!(choice.doubts[..], [Doubt::Moved { .. }]));
}

#[test]
fn a_method_without_effect_on_a_recorded_address_says_so() {
    let mut node = two_cards();
    node.recorded = Some("172.17.73.66/22".parse().unwrap());
    let with = |wish: Wish, method: &str| {
        choose_address(&wish, &Method::read(Some(method)).unwrap(), IpVersion::V4, &node)
    };
    let choice = with(Wish::Unsaid, "interface=eth1");
    assert_eq!(address(&choice), "172.17.73.66/22");
    let said: Vec<String> = choice.doubts.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "the method interface=eth1 has no effect: the node is already registered with 172.17.73.66, and keeps it; \
          the method would choose 10.0.0.66; set IP=autodetect to apply it"
        ]
    );
    assert!(choice.doubts[0].is_for_operator());
    let choice = with(Wish::Unsaid, "interface=wlan0");
    assert!(choice.doubts[0].to_string().ends_with("the method finds no address on this node"));
    // It would choose the same, or is applied.
    assert_eq!(with(Wish::Unsaid, "interface=eth0").doubts, []);
    let is_unused = |doubt: &Doubt| matches!(doubt, Doubt::MethodUnused { .. });
    assert!(!with(Wish::Detect, "interface=eth1").doubts.iter().any(is_unused));
}

#[test]
fn with_several_cards_and_nothing_that_confirms_one_the_doubt_is_named() {
    let mut node = two_cards();
    node.others.clear();
    let expected = Doubt::SeveralCards { address: ip("172.17.73.66"), others: vec![ip("10.0.0.66")] };
    assert_eq!(by_default(&node).doubts, std::slice::from_ref(&expected));
    // To have written it down confirms nothing.
    node.recorded = Some("172.17.73.66/22".parse().unwrap());
    assert_eq!(by_default(&node).doubts, [expected]);
    for confirm in [
        (|node: &mut Surroundings| node.others = two_cards().others) as fn(&mut Surroundings),
        |node| node.internal_addresses = vec![ip("172.17.73.66")],
        |node| drop(node.interfaces.remove(2)),
        |node| {
            let (asked, from) = ([ip("192.0.2.1")].into(), ip("172.17.73.66"));
            node.probes = vec![plan::address::Probe { from, asked, answered: [ip("192.0.2.1")].into() }];
        },
    ] {
        let mut confirmed = node.clone();
        confirm(&mut confirmed);
        assert_eq!(by_default(&confirmed).doubts, []);
    }
    let said = choose_address(
        &Wish::Address("172.17.73.66/22".parse().unwrap()),
        &Method::Ours,
        IpVersion::V4,
        &node,
    );
    assert_eq!(said.doubts, []);
}

#[test]
fn kubernetes_comes_before_the_default_route() {
    let mut node = two_cards();
    node.internal_addresses = vec![ip("fd00::1"), ip("10.0.0.66")];
    node.others.clear();
    let chosen = by_default(&node).address.unwrap();
    assert_eq!((chosen.why, chosen.interface.as_deref()), (Why::KubernetesInternal, Some("eth1")));
}

#[test]
fn nobody_takes_what_is_not_the_nodes_own() {
    let mut node = two_cards();
    // An address that keepalived has put there, in both of its styles; the machine's own is beside it.
    for virtual_address in ["172.17.73.100/32", "172.17.73.100/22*"] {
        node.interfaces[1] = interface("eth0", &["172.17.73.66/22", virtual_address]);
        node.default_sources = vec![ip("172.17.73.100")];
        let choice = by_default(&node);
        assert_eq!(address(&choice), "172.17.73.66/22");
        assert!(matches!(choice.refused[0].reason, RefusalReason::Virtual { .. }));
    }
    // Clouds give single addresses without anything beside them.
    node.interfaces[1] = interface("eth0", &["172.17.73.100/32"]);
    assert_eq!(address(&by_default(&node)), "172.17.73.100/32");
    // Another node's.
    node.others.push(other("twin", "172.17.73.100/32"));
    for choice in [
        by_default(&node),
        by("interface=eth0", &node),
        choose_address(
            &Wish::read(Some("172.17.73.100"), IpVersion::V4).unwrap(),
            &Method::Ours,
            IpVersion::V4,
            &node,
        ),
    ] {
        assert_eq!(address(&choice), "none");
        assert_eq!(choice.refused[0].to_string(), "172.17.73.100 is the address of the node twin");
    }
}

#[test]
fn what_is_said_holds() {
    let node = two_cards();
    let say = |text| {
        choose_address(
            &Wish::read(Some(text), IpVersion::V4).unwrap(),
            &Method::FirstFound,
            IpVersion::V4,
            &node,
        )
    };
    assert_eq!(address(&say("172.17.73.66")), "172.17.73.66/22", "its network is filled in");
    assert_eq!(address(&say("172.17.73.66/24")), "172.17.73.66/24");
    let elsewhere = say("192.0.2.9");
    assert_eq!(address(&elsewhere), "192.0.2.9/32");
    assert_eq!(elsewhere.doubts[0], Doubt::NotOnNode { address: ip("192.0.2.9") });
    let none = say("none");
    assert_eq!((address(&none), none.doubts.len()), ("none".to_owned(), 0));
}

#[test]
fn a_device_that_is_down_is_a_doubt() {
    let mut node = two_cards();
    node.interfaces[1].is_up = false;
    let choice = by_default(&node);
    assert_eq!(choice.doubts[0].to_string(), "eth0, which has 172.17.73.66, is down");
}

#[test]
fn ipv6_is_chosen_by_itself() {
    let node = Surroundings {
        interfaces: vec![interface("eth0", &["172.17.73.66/22", "fe80::1/64", "fd00::66/64"])],
        default_sources: vec![ip("172.17.73.66"), ip("fd00::66")],
        ..Surroundings::default()
    };
    let choice = choose_address(&Wish::Detect, &Method::Ours, IpVersion::V6, &node);
    assert_eq!(address(&choice), "fd00::66/64");
    let found = choose_address(&Wish::Detect, &Method::FirstFound, IpVersion::V6, &node);
    assert_eq!(address(&found), "fd00::66/64", "not the link's own");
}

fn network(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn a_card_that_flaps_does_not_move_the_node() {
    let node = two_cards();
    let mut without = node.clone();
    without.interfaces.remove(1);
    without.default_sources = vec![ip("10.0.0.66")];
    without.others.clear();
    let (here, away) = (by_default(&node), by_default(&without));
    assert_ne!(here.address, away.address);
    let mut steady = Steady::new(Some(network("172.17.73.66/22")), Patience { looks: 3 });
    for _ in 0..5 {
        let other = Some(network("10.0.0.66/24"));
        assert_eq!(steady.look(&away), Verdict::Wait { other, looks_left: 2 });
        assert_eq!(steady.look(&away), Verdict::Wait { other, looks_left: 1 });
        assert_eq!(steady.look(&here), Verdict::Stay);
    }
    steady.look(&away);
    steady.look(&away);
    let moved = Verdict::Move { from: Some(network("172.17.73.66/22")), to: network("10.0.0.66/24") };
    assert_eq!(steady.look(&away), moved);
    assert_eq!(steady.look(&away), Verdict::Stay);
}

#[test]
fn looks_that_disagree_do_not_add_up() {
    let mut one = two_cards();
    one.interfaces.remove(1);
    one.others.clear();
    one.default_sources = vec![ip("10.0.0.66")];
    let mut two = one.clone();
    two.interfaces[1] = interface("eth1", &["10.0.0.67/24"]);
    two.default_sources = vec![ip("10.0.0.67")];
    let (one, two) = (by_default(&one), by_default(&two));
    let mut steady = Steady::new(Some(network("172.17.73.66/22")), Patience { looks: 2 });
    for _ in 0..3 {
        assert!(matches!(steady.look(&one), Verdict::Wait { looks_left: 1, .. }));
        assert!(matches!(steady.look(&two), Verdict::Wait { looks_left: 1, .. }));
    }
}

#[test]
fn a_first_address_and_one_that_is_said_hold_at_once() {
    let node = two_cards();
    let mut steady = Steady::new(None, Patience { looks: 3 });
    assert!(matches!(steady.look(&by_default(&node)), Verdict::Move { from: None, .. }));
    let said = choose_address(&Wish::Address(network("10.0.0.66/24")), &Method::Ours, IpVersion::V4, &node);
    assert!(matches!(steady.look(&said), Verdict::Move { .. }));
    // Losing everything is no reason to give up the address.
    let nothing = by_default(&Surroundings::default());
    assert!(matches!(steady.look(&nothing), Verdict::Wait { other: None, .. }));
    assert_eq!(steady.current(), Some(network("10.0.0.66/24")));
}

proptest! {
    /// Whatever the node looks like: nobody takes an address that another node has, and by default only one that a device
    /// of the node has.
    #[test]
    fn what_is_taken_is_the_nodes_own(
        addresses in prop::collection::vec((0u8..4, 0u8..6, 22u8..=32, any::<bool>()), 0..6),
        taken in prop::collection::vec((0u8..4, 0u8..6), 0..4),
        source in (0u8..4, 0u8..6),
        method in prop::sample::select(vec!["", "first-found", "interface=eth", "cidr=10.0.0.0/8", "kubernetes-internal-ip"]),
    ) {
        let text = |(net, host): (u8, u8)| format!("10.0.{net}.{}", host + 1);
        let interfaces = addresses.iter().enumerate().map(|(number, (net, host, length, is_secondary))| {
            let star = if *is_secondary { "*" } else { "" };
            interface(&format!("eth{number}"), &[&format!("{}/{length}{star}", text((*net, *host)))])
        });
        let node = Surroundings {
            interfaces: interfaces.collect(),
            default_sources: vec![ip(&text(source))],
            internal_addresses: vec![ip(&text(source))],
            others: taken.iter().map(|one| other("other", &format!("{}/24", text(*one)))).collect(),
            ..Surroundings::default()
        };
        let choice = choose_address(&Wish::Detect, &Method::read(Some(method)).unwrap(), IpVersion::V4, &node);
        if let Some(chosen) = choice.address {
            prop_assert!(node.others.iter().all(|other| other.address.addr() != chosen.network.addr()));
            prop_assert!(chosen.interface.is_some());
        }
    }
}
