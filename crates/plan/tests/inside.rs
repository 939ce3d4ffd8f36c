//! Inside a pod only what is lost is put back; what the pod changed is its own.

mod common;

use common::{perfect, wiring};
use model::Mac;
use plan::{
    Difference, DifferenceKind, InsidePod, Neighbour, ObservedEnd, ObservedWiring, Route, Sysctl, inside_pod,
};

const ADDRESSES: [&str; 2] = ["10.244.0.5", "fd00::5"];

fn check(change: impl FnOnce(&mut ObservedEnd), restored: &[&str], reported: &[&str]) {
    let wiring = wiring(&ADDRESSES);
    let mut observed = perfect(&wiring);
    change(observed.pod.as_mut().unwrap());
    let InsidePod { restore, report } = inside_pod(&wiring, &observed);
    let texts = |all: &[Difference]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&restore), restored);
    assert_eq!(texts(&report), reported);
}

fn strange(destination: &str) -> Route {
    let destination = destination.parse().unwrap();
    Route { protocol: 4, metric: 5, ..Route::to(destination) }
}

#[test]
fn what_is_lost_is_put_back() {
    check(
        |pod| {
            pod.routes.remove(1);
        },
        &["pod: route 0.0.0.0/0 via 169.254.1.1 is missing on eth0"],
        &[],
    );
    check(
        |pod| {
            let lost = pod.routes.remove(1);
            pod.rivals.push(Route { metric: 101, ..lost });
        },
        &["pod: route 0.0.0.0/0 via 169.254.1.1 is missing on eth0"],
        &[],
    );
    check(
        |pod| pod.addresses.retain(|address| address.addr().is_ipv6()),
        &["pod: address 10.244.0.5/32 is missing on eth0"],
        &[],
    );
    check(
        |pod| pod.neighbours.truncate(1),
        &["pod: permanent neighbour fe80::ecee:eeff:feee:eeee at ee:ee:ee:ee:ee:ee is missing on eth0"],
        &[],
    );
    check(
        |pod| pod.addresses[1] = "fe80::1/64".parse().unwrap(),
        &["pod: address fd00::5/128 is missing on eth0"],
        &[],
    );
}

#[test]
fn what_was_replaced_is_the_pods_own() {
    let missing = "pod: route 0.0.0.0/0 via 169.254.1.1 is missing on eth0";
    check(|pod| pod.routes[1] = strange("0.0.0.0/0"), &[], &[missing]);
    check(
        |pod| {
            pod.routes.remove(1);
            pod.rivals.push(strange("0.0.0.0/0"));
        },
        &[],
        &[missing],
    );
    check(
        |pod| pod.addresses[0] = "10.9.9.9/24".parse().unwrap(),
        &[],
        &["pod: address 10.244.0.5/32 is missing on eth0"],
    );
    check(
        |pod| pod.neighbours[0] = Neighbour { mac: Mac([2; 6]), ..pod.neighbours[0].clone() },
        &[],
        &["pod: eth0 has permanent neighbour 169.254.1.1 at 02:02:02:02:02:02 instead of ee:ee:ee:ee:ee:ee"],
    );
}

#[test]
fn what_was_changed_is_the_pods_own() {
    check(
        |pod| pod.sysctls[0] = Sysctl::new("net/ipv4/ip_forward", 1),
        &[],
        &["pod: net/ipv4/ip_forward is 1 instead of 0"],
    );
    check(|pod| pod.mtu = Some(1300), &[], &["pod: device eth0 has MTU 1300 instead of 1450"]);
    let down = |pod: &mut ObservedEnd| {
        (pod.up, pod.running) = (Some(false), Some(false));
        pod.routes.remove(2);
    };
    check(
        down,
        &[],
        &["pod: device eth0 is down", "pod: route ::/0 via fe80::ecee:eeff:feee:eeee is missing on eth0"],
    );
}

#[test]
fn a_device_that_was_moved_away_is_only_reported() {
    let wiring = wiring(&ADDRESSES);
    let inside = inside_pod(&wiring, &ObservedWiring { pod: None, ..perfect(&wiring) });
    assert_eq!(inside.restore, []);
    assert!(inside.report[0].kind == DifferenceKind::Missing);
}
