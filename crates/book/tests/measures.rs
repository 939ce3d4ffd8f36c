//! What `cargo xtask bench ipam` measures, in small. Times are for the bench; how often the store is asked, and how
//! much is written, is promised on every machine.

#[path = "../benches/ipam/assigns.rs"]
mod assigns;
#[path = "../benches/ipam/floor.rs"]
mod floor;
#[path = "../benches/ipam/measure.rs"]
mod measure;
#[path = "../benches/ipam/places.rs"]
mod places;

use measure::Scale;

#[test]
fn the_store_is_asked_as_seldom_as_promised() {
    let scale = Scale { blocks: &[1, 40], bursts: &[1, 5, 110], runs: 1, addresses_min: 20 };
    let figures = measure::figures(&scale).unwrap();
    let counts: Vec<_> =
        figures.iter().filter(|figure| ["per address", "at most"].contains(&figure.unit)).collect();
    let with_goal = counts.iter().filter(|figure| figure.goal.is_some());
    assert!(with_goal.clone().count() >= 2 * 3, "{figures:?}");
    for figure in with_goal {
        assert_eq!(figure.met(), Some(true), "{figure:?}");
    }
    if let Some(reason) = testkit::etcd::missing() {
        testkit::skip("the_store_is_asked_as_seldom_as_promised (on etcd)", &reason);
    }
}
