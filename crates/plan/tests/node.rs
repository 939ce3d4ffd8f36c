//! The node's side of all pods: putting differences right reaches the target, and nothing of a stranger is touched.

#[expect(dead_code, reason = "other tests look at single pods")]
mod common;

use model::{DeviceName, Mac, Sandbox};
use plan::{
    DeviceSetting, DeviceSettings, Difference, DifferenceKind, Link, NODE_FORWARDING, Neighbour, NodeDesired,
    NodeDifference, NodeObserved, PodWiring, ROUTE_PROTOCOL, Route, Sysctl, node_differences,
};
use proptest::prelude::*;

const FIRST_INDEX: u32 = 10;
const STRANGER: u32 = 3;

fn wiring(number: u32) -> PodWiring {
    let addresses = match number % 3 {
        0 => vec![format!("10.244.0.{number}")],
        1 => vec![format!("fd00::{number:x}")],
        _ => vec![format!("10.244.0.{number}"), format!("fd00::{number:x}")],
    };
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    common::wiring_of(&format!("c{number}"), &format!("web-{number}"), &addresses)
}

fn desired(pods: u32) -> NodeDesired {
    (1..=pods).map(wiring).collect()
}

fn route(text: &str, protocol: u8) -> Route {
    Route { protocol, ..Route::to(text.parse().unwrap()) }
}

fn bare_link(index: u32, name: &str, alias: Option<String>) -> Link {
    Link {
        index,
        name: name.to_owned(),
        peer_index: Some(2),
        alias,
        mac: Some(Mac::HOST_END),
        mtu: 1450,
        up: true,
        running: true,
        ..Link::default()
    }
}

/// Everything in its place, and a stranger's device and routes beside it.
fn perfect(desired: &NodeDesired) -> NodeObserved {
    let sysctls = NODE_FORWARDING.iter().map(|(_, path)| Sysctl::new(*path, 1)).collect();
    let mut node = NodeObserved { sysctls, ..NodeObserved::default() };
    node.links.push(bare_link(STRANGER, "stranger0", None));
    node.routes.push(Route { device: Some(STRANGER), ..route("192.0.2.0/24", 2) });
    for (wiring, index) in desired.wirings().zip(FIRST_INDEX..) {
        wire(&mut node, wiring, index);
    }
    node
}

fn set(settings: &mut DeviceSettings, sysctl: &Sysctl) {
    let (setting, _) = DeviceSetting::at(&sysctl.path).unwrap();
    settings.set(setting, Some(sysctl.value.parse().unwrap()));
}

fn wire(node: &mut NodeObserved, wiring: &PodWiring, index: u32) {
    let end = &wiring.host;
    let mut settings = DeviceSettings::default();
    end.sysctls.iter().for_each(|sysctl| set(&mut settings, sysctl));
    node.links.push(Link { settings, ..bare_link(index, end.device.as_str(), Some(wiring.sandbox.alias())) });
    node.routes.extend(end.routes.iter().map(|route| Route { device: Some(index), ..*route }));
    node.addresses.extend(end.addresses.iter().map(|address| (index, *address)));
    node.neighbours.extend(end.neighbours.iter().map(|neighbour| (index, neighbour.clone())));
}

#[test]
fn neighbours_that_nothing_asks_for_are_strays_unless_a_route_leads_there() {
    let desired = desired(3);
    let mut node = perfect(&desired);
    assert_eq!(node.stray_neighbours(&desired), []);
    let add = |node: &mut NodeObserved, index: u32, address: &str| {
        node.neighbours.push((index, Neighbour { address: address.parse().unwrap(), mac: Mac([2; 6]) }));
    };
    add(&mut node, FIRST_INDEX, "10.9.0.1");
    // Not at a pod's device, and not for nobody: somebody leads packets there.
    add(&mut node, STRANGER, "10.9.0.2");
    add(&mut node, FIRST_INDEX + 1, "10.9.0.3");
    node.routes.push(Route { device: Some(FIRST_INDEX + 1), ..route("10.9.0.0/24", 4) });
    // A pod's own address at another hardware address is wrong, not superfluous.
    let own = desired.wirings().next().unwrap().host.neighbours[0].address;
    add(&mut node, FIRST_INDEX, &own.to_string());
    let strays: Vec<String> =
        node.stray_neighbours(&desired).iter().map(|stray| stray.neighbour.address.to_string()).collect();
    assert_eq!(strays, ["10.9.0.1"]);
}

/// A kernel and an agent that do as they are told.
fn put_right(node: &mut NodeObserved, desired: &NodeDesired, difference: &NodeDifference) {
    match difference {
        NodeDifference::Setting { wanted, .. } => {
            let sysctl = node.sysctls.iter_mut().find(|sysctl| sysctl.path == wanted.path).unwrap();
            sysctl.value.clone_from(&wanted.value);
        }
        NodeDifference::Renamed { index, wanted, .. } => rename(node, *index, wanted),
        NodeDifference::RouteStray { route } => node.routes.retain(|found| found != route),
        NodeDifference::Unexpected { index, .. } | NodeDifference::Detached { index, .. } => {
            node.links.retain(|link| link.index != *index);
            node.routes.retain(|found| found.device != Some(*index));
            node.addresses.retain(|(of, _)| of != index);
            node.neighbours.retain(|(of, _)| of != index);
        }
        NodeDifference::OfPod { difference, .. } if !difference.can_be_mended() => {}
        NodeDifference::OfPod { sandbox, index: None, difference }
            if difference.kind == DifferenceKind::Missing =>
        {
            let index = node.links.iter().map(|link| link.index).max().unwrap_or_default() + 1;
            wire(node, desired.get(sandbox).unwrap(), index);
        }
        NodeDifference::OfPod { index, difference, .. } => put_end_right(node, index.unwrap(), difference),
    }
}

/// In two looks: what is in the way of a link that has to be made is seen when it is there.
fn put_all_right(node: &mut NodeObserved, desired: &NodeDesired) {
    for _ in 0..2 {
        for difference in node_differences(desired, node) {
            put_right(node, desired, &difference);
        }
    }
}

fn rename(node: &mut NodeObserved, index: u32, wanted: &DeviceName) {
    assert!(node.links.iter().all(|link| link.name != wanted.as_str()), "{wanted} is taken");
    let link = node.links.iter_mut().find(|link| link.index == index).unwrap();
    link.name = wanted.to_string();
}

fn put_end_right(node: &mut NodeObserved, index: u32, difference: &Difference) {
    let link = node.links.iter_mut().find(|link| link.index == index).unwrap();
    match &difference.kind {
        DifferenceKind::Down => (link.up, link.running) = (true, true),
        DifferenceKind::NotRunning => link.running = true,
        DifferenceKind::Mac { wanted, .. } => link.mac = Some(*wanted),
        DifferenceKind::Mtu { wanted, .. } => link.mtu = *wanted,
        DifferenceKind::Sysctl { wanted, .. } => {
            let name = &link.name;
            assert!(wanted.path.contains(&format!("/{name}/")), "{} is not of {name}", wanted.path);
            set(&mut link.settings, wanted);
        }
        DifferenceKind::AddressMissing { address } => node.addresses.push((index, *address)),
        DifferenceKind::RouteTaken { route, metric, .. } => {
            // One in front of all others: the kernel keeps them in this order.
            let ahead = route.ahead_of(*metric).unwrap();
            let is_own = |found: &Route| found.device == Some(index) && found.is_ours();
            node.routes.retain(|found| !(is_own(found) && found.destination == ahead.destination));
            node.routes.insert(0, Route { device: Some(index), ..ahead });
        }
        DifferenceKind::RouteMissing { route } => {
            let place = |route: &Route| (route.destination, route.metric);
            assert!(node.routes.iter().all(|found| place(found) != place(route)), "{route} is taken");
            node.routes.push(Route { device: Some(index), ..*route });
        }
        DifferenceKind::RouteStray { route } => node.routes.retain(|found| found != route),
        DifferenceKind::NeighbourMissing { neighbour, .. } => {
            node.neighbours.retain(|(of, found)| (*of, found.address) != (index, neighbour.address));
            node.neighbours.push((index, neighbour.clone()));
        }
        DifferenceKind::Missing
        | DifferenceKind::Foreign { .. }
        | DifferenceKind::NeighbourUnresolved { .. } => {
            unreachable!("handled before")
        }
    }
}

fn texts(desired: &NodeDesired, observed: &NodeObserved) -> Vec<String> {
    node_differences(desired, observed).iter().map(ToString::to_string).collect()
}

#[test]
fn a_perfect_node_has_no_difference() {
    let desired = desired(6);
    assert_eq!(node_differences(&desired, &perfect(&desired)), []);
}

#[test]
fn each_fault_is_named() {
    fn check(break_it: fn(&mut NodeObserved), expected: &[&str]) {
        let desired = desired(1);
        let mut observed = perfect(&desired);
        break_it(&mut observed);
        assert_eq!(texts(&desired, &observed), expected);
    }
    check(
        |node| rename(node, FIRST_INDEX, &DeviceName::new("other").unwrap()),
        &["node: device cali0761ccbeace is called other"],
    );
    check(|node| node.links[1].up = false, &["node: device cali0761ccbeace is down"]);
    check(
        |node| node.links[0].name = std::mem::replace(&mut node.links[1].name, "other".to_owned()),
        &["node: device cali0761ccbeace is there already and is not this sandbox's"],
    );
    check(
        |node| node.routes[1].device = Some(STRANGER),
        &[
            "node: route fd00::1/128 leads nowhere that was asked for",
            "node: route fd00::1/128 is missing on cali0761ccbeace",
        ],
    );
    check(
        |node| (node.routes[1].device, node.routes[1].protocol) = (Some(STRANGER), 4),
        &["node: a route to fd00::1/128 leads elsewhere than to cali0761ccbeace (protocol 4)"],
    );
    check(
        |node| node.sysctls[1].value = "0".to_owned(),
        &["node: net/ipv6/conf/all/forwarding is 0 instead of 1"],
    );
    // No pod has an IPv4 address, so that is nobody's business.
    check(|node| node.sysctls[0].value = "0".to_owned(), &[]);
    check(|node| node.sysctls.clear(), &[]);
    // It leads to the pod, whoever made it.
    check(|node| node.routes[1].protocol = 4, &[]);
    check(
        |node| node.links.push(bare_link(77, "cali77", Some("plumb/net/gone/eth0".to_owned()))),
        &[
            "node: device cali77 belongs to sandbox gone (eth0 on network net), which should have none of that name",
        ],
    );
    check(
        |node| node.links.push(bare_link(77, "plgone4d", Some("plumb-net/gone/eth0".to_owned()))),
        &["node: device plgone4d, formerly of sandbox gone (eth0 on network net), waits for its removal"],
    );
    check(|node| node.links.push(bare_link(77, "cali77", None)), &[]);
}

/// A stranger's route to pod 2's addresses, each at its place and with its metric.
fn with_rivals(metrics: [u32; 2], is_first: bool) -> (NodeDesired, NodeObserved) {
    let desired: NodeDesired = [wiring(2)].into_iter().collect();
    let mut node = perfect(&desired);
    for (wanted, metric) in desired.wirings().next().unwrap().host.routes.iter().zip(metrics) {
        let route = Route { protocol: 4, metric, device: Some(STRANGER), ..*wanted };
        let at = if is_first { 0 } else { node.routes.len() };
        node.routes.insert(at, route);
    }
    (desired, node)
}

#[test]
fn a_strangers_route_matters_only_if_packets_take_it() {
    let elsewhere = |destination: &str| {
        format!("node: a route to {destination} leads elsewhere than to cali9fb0db7f13e (protocol 4)")
    };
    let (v4, v6) = (elsewhere("10.244.0.2/32"), elsewhere("fd00::2/128"));
    for (metrics, is_first, expected) in [
        ([0, 1024], false, vec![]),
        ([0, 1024], true, vec![v4.clone(), v6.clone()]),
        ([7, 2048], true, vec![]),
        ([7, 100], false, vec![v6.clone()]),
    ] {
        let (desired, mut node) = with_rivals(metrics, is_first);
        assert_eq!(texts(&desired, &node), expected, "{metrics:?} {is_first}");
        assert_eq!(node.rival_routes(&desired).len(), 2, "they are there all the same");
        for difference in node_differences(&desired, &node) {
            put_right(&mut node, &desired, &difference);
        }
        assert_eq!(texts(&desired, &node), [] as [&str; 0]);
        assert_eq!(node.rival_routes(&desired).len(), 2, "and stay");
    }
}

#[test]
fn there_is_no_place_before_the_first() {
    let (desired, node) = with_rivals([7, 1], false);
    let found = node_differences(&desired, &node);
    assert!(found.len() == 1 && found[0].to_string().contains("fd00::2/128"), "{found:?}");
    let NodeDifference::OfPod { difference, .. } = &found[0] else { panic!("{found:?}") };
    assert!(!difference.can_be_mended());
}

#[test]
fn a_second_link_of_one_sandbox_is_superfluous() {
    let desired = desired(1);
    let mut observed = perfect(&desired);
    let alias = observed.links[1].alias.clone();
    observed.links.insert(0, bare_link(5, "calileftover", alias));
    let found = node_differences(&desired, &observed);
    assert!(matches!(&found[..], [NodeDifference::Unexpected { index: 5, .. }]), "{found:?}");
}

/// What strangers, crashes and time do to a node.
fn fault() -> impl Strategy<Value = (u8, usize, u8)> {
    (0u8..18, any::<usize>(), any::<u8>())
}

fn damage(node: &mut NodeObserved, (kind, which, value): (u8, usize, u8)) {
    let next = node.links.iter().map(|link| link.index).max().unwrap_or_default() + 1;
    let ours: Vec<usize> = (0..node.links.len()).filter(|at| node.links[*at].owner().is_some()).collect();
    let pick = |length: usize| (length > 0).then(|| which % length);
    let link = pick(ours.len()).map(|at| ours[at]);
    let (some_route, neighbour) = (pick(node.routes.len()), pick(node.neighbours.len()));
    let link = link.map(|at| &mut node.links[at]);
    match (kind, link, some_route, neighbour) {
        (0, Some(link), ..) => (link.up, link.running) = (false, false),
        (1, Some(link), ..) => link.running = false,
        (2, Some(link), ..) => link.mtu = value.into(),
        (3, Some(link), ..) => link.mac = Some(Mac([value; 6])),
        (4, Some(link), ..) => {
            let there = link.settings.all(&link.name);
            if let Some(at) = pick(there.len()) {
                set(&mut link.settings, &Sysctl::new(&there[at].path, value));
            }
        }
        (5, Some(link), ..) => {
            link.name = format!("other{next}");
        }
        (6, Some(link), ..) => {
            let index = link.index;
            node.links.retain(|link| link.index != index);
            node.routes.retain(|found| found.device != Some(index));
            node.addresses.retain(|(of, _)| *of != index);
            node.neighbours.retain(|(of, _)| *of != index);
        }
        (7, _, Some(at), _) if node.routes[at].is_ours() => {
            node.routes.remove(at);
        }
        (8, _, Some(at), _) if node.routes[at].is_ours() => node.routes[at].device = Some(STRANGER),
        (9, .., Some(at)) => {
            node.neighbours.remove(at);
        }
        (10, .., Some(at)) => node.neighbours[at].1.mac = Mac([value; 6]),
        (11, Some(_), ..) => {
            node.addresses.pop();
        }
        (12, ..) => {
            let stray = route(&format!("10.99.{value}.0/24"), ROUTE_PROTOCOL);
            let device = if value % 2 == 0 { Some(STRANGER) } else { None };
            node.routes.retain(|found| found.destination != stray.destination);
            node.routes.push(Route { device, ..stray });
        }
        (13, ..) => {
            let sandbox = Sandbox::new("net", &format!("old{next}"), "eth0").unwrap();
            let alias = if value % 2 == 0 { sandbox.alias() } else { sandbox.detached_alias() };
            node.links.push(bare_link(next, &format!("cali{next}"), Some(alias)));
            node.neighbours
                .push((next, Neighbour { address: [10, 0, 0, value].into(), mac: Mac([value; 6]) }));
        }
        (14, Some(link), ..) => {
            let strange = route(&format!("10.98.{value}.0/24"), 4);
            node.routes.push(Route { device: Some(link.index), ..strange });
        }
        (15, ..) => {
            node.links.push(bare_link(next, &format!("cali{next}"), (value % 2 == 0).then(String::new)))
        }
        (16, ..) => node.sysctls[which % NODE_FORWARDING.len()].value = (value % 2).to_string(),
        (17, _, Some(at), _) => {
            let route = Route { protocol: 4, device: Some(STRANGER), ..node.routes[at] };
            node.routes.insert(0, route);
        }
        _ => {}
    }
}

/// What is not ours, and must stay as it is.
fn strangers(node: &NodeObserved) -> (Vec<Link>, Vec<Route>) {
    let is_ours = |link: &Link| link.owner().is_some() || link.former_owner().is_some();
    let links = node.links.iter().filter(|link| !is_ours(link)).cloned().collect();
    let indices: Vec<u32> = node.links.iter().filter(|link| is_ours(link)).map(|link| link.index).collect();
    let on_ours = |found: &Route| found.device.is_some_and(|device| indices.contains(&device));
    let routes = node.routes.iter().filter(|found| !found.is_ours() && !on_ours(found));
    (links, routes.cloned().collect())
}

proptest! {
    #[test]
    fn putting_differences_right_reaches_the_target(
        pods in 0u32..7,
        faults in proptest::collection::vec(fault(), 0..20),
    ) {
        let desired = desired(pods);
        let mut node = perfect(&desired);
        for fault in faults {
            damage(&mut node, fault);
        }
        let before = strangers(&node);
        put_all_right(&mut node, &desired);
        prop_assert_eq!(node_differences(&desired, &node), []);
        prop_assert_eq!(strangers(&node), before);
    }

    #[test]
    fn what_is_in_the_way_stays_and_everything_else_is_put_right(
        pods in 1u32..7,
        held in any::<prop::sample::Index>(),
        taken in any::<prop::sample::Index>(),
        faults in proptest::collection::vec(fault(), 0..20),
    ) {
        let desired = desired(pods);
        let mut node = perfect(&desired);
        for fault in faults {
            damage(&mut node, fault);
        }
        // A stranger takes one pod's name and, with a metric that nothing can beat, another's address.
        let (held, taken) = (held.index(pods as usize), taken.index(pods as usize));
        let all: Vec<&PodWiring> = desired.wirings().collect();
        let name = all[held].host.device.as_str();
        node.links.retain(|link| link.name != name);
        node.links.push(bare_link(900, name, None));
        let strange = Route { protocol: 4, metric: 1, device: Some(900), ..all[taken].host.routes[0] };
        node.routes.retain(|found| found.destination != strange.destination);
        node.routes.push(strange);
        let before = strangers(&node);
        put_all_right(&mut node, &desired);
        let left = node_differences(&desired, &node);
        let is_in_the_way = |found: &NodeDifference| {
            matches!(found, NodeDifference::OfPod { difference, .. } if !difference.can_be_mended())
        };
        prop_assert!(!left.is_empty() && left.iter().all(is_in_the_way), "{:?}", left);
        prop_assert_eq!(strangers(&node), before);
    }
}
