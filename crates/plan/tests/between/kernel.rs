//! What a look at everything finds to do.

use plan::between::{BetweenDevices, BetweenObserved, Encapsulation, Extent, Step, between_differences};
use plan::{Route, RouteKind};

use crate::cluster::cluster;

const UPLINK: u32 = 2;

fn via(destination: &str, metric: u32, gateway: &str) -> Route {
    let (gateway, device) = (gateway.parse().ok(), Some(UPLINK));
    Route { metric, gateway, device, ..Route::to(destination.parse().unwrap()) }
}

fn observed(routes: Vec<Route>) -> BetweenObserved {
    let devices = BetweenDevices { uplinks: [Some(UPLINK), None], ..BetweenDevices::default() };
    BetweenObserved { devices, routes, ..BetweenObserved::default() }
}

#[test]
fn what_is_wrong_is_replaced_and_what_is_superfluous_goes_last() {
    let between = cluster(Encapsulation::None);
    let wrong = via("10.0.1.0/26", 0, "192.0.2.9");
    let stray = via("10.9.0.0/26", 0, "192.0.2.9");
    let twice = via("10.0.1.0/26", 7, "192.0.2.2");
    let hole = Route { kind: RouteKind::Blackhole, device: None, ..via("10.0.0.0/26", 1 << 20, "") };
    let steps = between_differences(&between, &observed(vec![stray, wrong, twice, hole]));
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
    let right = via("10.0.1.0/26", 0, "192.0.2.2");
    let elsewhere = Route { device: Some(9), ..right };
    let odd = Route { kind: RouteKind::Unreachable, device: None, ..via("10.0.0.0/26", 1 << 20, "") };
    assert_eq!(between_differences(&between, &observed(vec![right, odd])).len(), 1);
    assert_eq!(between_differences(&between, &observed(vec![elsewhere, odd])).len(), 2);
}
