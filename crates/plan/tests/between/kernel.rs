//! What a look at everything finds to do.

use plan::between::{
    BetweenObserved, Encapsulation, Extent, FoundRoute, Hop, Step, Via, between_differences,
};

use crate::cluster::cluster;

fn found(destination: &str, metric: u32, hop: Hop) -> FoundRoute {
    FoundRoute { destination: destination.parse().unwrap(), metric, hop }
}

fn via(gateway: &str) -> Hop {
    Hop::Device { index: 2, via: Some(Via::Uplink), gateway: gateway.parse().ok() }
}

#[test]
fn what_is_wrong_is_replaced_and_what_is_superfluous_goes_last() {
    let between = cluster(Encapsulation::None);
    let wrong = found("10.0.1.0/26", 0, via("192.0.2.9"));
    let stray = found("10.9.0.0/26", 0, via("192.0.2.9"));
    let twice = found("10.0.1.0/26", 7, via("192.0.2.2"));
    let observed = BetweenObserved {
        routes: vec![stray, wrong, twice, found("10.0.0.0/26", 1 << 20, Hop::Blackhole)],
        ..BetweenObserved::default()
    };
    let steps = between_differences(&between, &observed);
    let [put, drops @ ..] = &steps[..] else { panic!("{steps:?}") };
    let Step::PutRoute { route, instead_of } = put else { panic!("{put:?}") };
    assert_eq!((route.destination, *instead_of), (wrong.destination, Some(wrong)));
    assert_eq!(drops, [Step::DropRoute { route: twice }, Step::DropRoute { route: stray }]);
}

#[test]
fn the_ends_of_a_tunnel_come_before_the_routes_through_it() {
    let between = cluster(Encapsulation::Vxlan(Extent::Always));
    let steps = between_differences(&between, &BetweenObserved::default());
    let first_route = steps.iter().position(|step| matches!(step, Step::PutRoute { .. })).unwrap();
    assert_eq!(first_route, 4, "{steps:?}");
    assert_eq!(steps.len(), 7);
}

#[test]
fn a_route_by_another_device_is_not_the_right_one() {
    let between = cluster(Encapsulation::None);
    let elsewhere = Hop::Device { index: 9, via: None, gateway: "192.0.2.2".parse().ok() };
    let observed = BetweenObserved {
        routes: vec![found("10.0.1.0/26", 0, elsewhere), found("10.0.0.0/26", 1 << 20, Hop::Odd)],
        ..BetweenObserved::default()
    };
    assert_eq!(between_differences(&between, &observed).len(), 2);
}
