//! Applying a difference reaches the target; a second look finds nothing.

mod common;

use common::{perfect, perfect_end};
use plan::{
    Difference, DifferenceKind, ObservedEnd, ObservedWiring, PartialEnd, PodWiring, ROUTE_PROTOCOL, Side,
    Sysctl, differences, end_differences,
};
use proptest::prelude::*;

fn wiring() -> PodWiring {
    common::wiring(&["10.244.0.5", "10.244.0.9"])
}

/// A kernel that does as it is told.
fn put_right(observed: &mut ObservedWiring, desired: &PodWiring, difference: &Difference) {
    if difference.kind == DifferenceKind::Missing {
        make_device(observed, desired, difference.side);
        return;
    }
    let end = match difference.side {
        Side::Host => observed.host.as_mut(),
        Side::Pod => observed.pod.as_mut(),
    }
    .expect("devices come first");
    match &difference.kind {
        DifferenceKind::Missing
        | DifferenceKind::Foreign { .. }
        | DifferenceKind::RouteTaken { .. }
        | DifferenceKind::NeighbourUnresolved { .. } => {
            unreachable!("handled above or never listed")
        }
        DifferenceKind::Down => (end.up, end.running) = (Some(true), Some(true)),
        DifferenceKind::NotRunning => end.running = Some(true),
        DifferenceKind::Mac { wanted, .. } => end.mac = Some(*wanted),
        DifferenceKind::Mtu { wanted, .. } => end.mtu = Some(*wanted),
        DifferenceKind::Sysctl { wanted, .. } => {
            end.sysctls.retain(|sysctl| sysctl.path != wanted.path);
            end.sysctls.push(wanted.clone());
        }
        DifferenceKind::AddressMissing { address } => end.addresses.push(*address),
        DifferenceKind::RouteMissing { route } => end.routes.push(*route),
        DifferenceKind::RouteStray { route } => end.routes.retain(|other| other != route),
        DifferenceKind::NeighbourMissing { neighbour, .. } => end.neighbours.push(neighbour.clone()),
    }
}

fn make_device(observed: &mut ObservedWiring, desired: &PodWiring, side: Side) {
    let end = desired.end(side);
    let bare = ObservedEnd {
        up: Some(false),
        running: Some(false),
        addresses: Vec::new(),
        routes: Vec::new(),
        neighbours: Vec::new(),
        sysctls: Vec::new(),
        ..perfect_end(end, (0, 0), None)
    };
    match side {
        Side::Host => {
            observed.host = Some(ObservedEnd {
                index: 7,
                peer_index: Some(2),
                alias: Some(desired.sandbox.alias()),
                ..bare
            });
        }
        Side::Pod => observed.pod = Some(ObservedEnd { index: 2, peer_index: Some(7), ..bare }),
    }
}

#[test]
fn a_perfect_wiring_has_no_difference() {
    let wiring = wiring();
    assert_eq!(differences(&wiring, &perfect(&wiring)), []);
}

#[test]
fn each_fault_is_named() {
    fn check(break_it: fn(&mut ObservedWiring), expected: &[&str]) {
        let wiring = wiring();
        let mut observed = perfect(&wiring);
        break_it(&mut observed);
        let found: Vec<String> = differences(&wiring, &observed).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }
    check(
        |observed| {
            observed
                .host
                .as_mut()
                .unwrap()
                .routes
                .retain(|route| route.destination.to_string() != "10.244.0.9/32")
        },
        &["node: route 10.244.0.9/32 is missing on cali0d7763386da"],
    );
    check(
        |observed| observed.pod.as_mut().unwrap().routes.clear(),
        &[
            "pod: route 169.254.1.1/32 is missing on eth0",
            "pod: route 0.0.0.0/0 via 169.254.1.1 is missing on eth0",
        ],
    );
    check(
        |observed| observed.pod.as_mut().unwrap().neighbours.clear(),
        &["pod: permanent neighbour 169.254.1.1 at ee:ee:ee:ee:ee:ee is missing on eth0"],
    );
    check(
        |observed| observed.host.as_mut().unwrap().sysctls[2].value = "0".to_owned(),
        &["node: net/ipv4/conf/cali0d7763386da/proxy_arp is 0 instead of 1"],
    );
    check(
        |observed| observed.host.as_mut().unwrap().up = Some(false),
        &["node: device cali0d7763386da is down"],
    );
    check(
        |observed| observed.host.as_mut().unwrap().alias = Some("plumb/net/c2/eth0".to_owned()),
        &["node: device cali0d7763386da belongs to sandbox c2 (eth0 on network net)"],
    );
    check(
        |observed| observed.pod.as_mut().unwrap().peer_index = Some(8),
        &["pod: device eth0 is there already and is not this sandbox's"],
    );
}

/// What was not observed is neither right nor wrong; what was is.
#[test]
fn what_was_not_observed_makes_no_difference() {
    let wiring = wiring();
    let mut end = perfect_end(&wiring.host, (7, 2), None);
    (end.mtu, end.up, end.running) = (None, None, None);
    end.routes.clear();
    end.neighbours.clear();
    end.addresses.clear();
    end.partial = PartialEnd { addresses: true, routes: true, neighbours: true };
    let found = |end: &ObservedEnd| {
        let mut found = Vec::new();
        end_differences(Side::Host, &wiring.host, Some(end), &mut found);
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(found(&end), [] as [&str; 0]);
    end.neighbours = vec![wiring.host.neighbours[1].clone()];
    end.neighbours[0].mac = wiring.host.mac;
    end.unresolved = vec![wiring.host.neighbours[0].address, [10, 244, 9, 9].into()];
    let pods = wiring.pod.mac;
    assert_eq!(
        found(&end),
        [
            "node: cali0d7763386da got no answer from 10.244.0.5".to_owned(),
            format!(
                "node: cali0d7763386da has permanent neighbour 10.244.0.9 at ee:ee:ee:ee:ee:ee instead of {pods}"
            ),
        ]
    );
}

#[test]
fn a_strangers_route_is_left_alone_and_our_stray_is_not() {
    let wiring = wiring();
    let mut observed = perfect(&wiring);
    let mut stray = wiring.host.routes[0];
    stray.destination = "10.99.0.0/24".parse().unwrap();
    let strangers = plan::Route { protocol: 4, ..stray };
    assert_ne!(stray.protocol, strangers.protocol);
    observed.host.as_mut().unwrap().routes.extend([stray, strangers]);
    let found = differences(&wiring, &observed);
    assert!(
        matches!(&found[..], [Difference { kind: DifferenceKind::RouteStray { route }, .. }] if *route == stray)
    );
    assert_eq!(stray.protocol, ROUTE_PROTOCOL);
}

#[test]
fn a_foreign_device_hides_everything_else() {
    let wiring = wiring();
    let mut observed = perfect(&wiring);
    observed.host = None;
    let found = differences(&wiring, &observed);
    assert!(matches!(&found[..], [Difference { kind: DifferenceKind::Foreign { .. }, .. }]), "{found:?}");
}

proptest! {
    #[test]
    fn putting_differences_right_reaches_the_target(
        no_host: bool,
        no_pod: bool,
        up: [bool; 2],
        keep in proptest::collection::vec(any::<bool>(), 16),
        mtu in 1200u32..1500,
    ) {
        let wiring = wiring();
        let mut observed = perfect(&wiring);
        let mut keep = keep.into_iter().cycle();
        for (end, up) in [&mut observed.host, &mut observed.pod].into_iter().zip(up) {
            let end = end.as_mut().unwrap();
            (end.up, end.running, end.mtu) = (Some(up), Some(up), Some(mtu));
            end.addresses.retain(|_| keep.next().unwrap());
            end.routes.retain(|_| keep.next().unwrap());
            end.neighbours.retain(|_| keep.next().unwrap());
            end.sysctls.retain(|_| keep.next().unwrap());
            end.sysctls.push(Sysctl { path: "net/ipv4/other".to_owned(), value: "1".to_owned() });
        }
        // A veth dies as a whole, so one missing end means two.
        if no_host || no_pod {
            observed = ObservedWiring::default();
        }
        for difference in differences(&wiring, &observed) {
            put_right(&mut observed, &wiring, &difference);
        }
        prop_assert_eq!(differences(&wiring, &observed), []);
    }
}
