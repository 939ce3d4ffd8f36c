//! What `cargo xtask bench ipam` measures of `plumb`, in small: that it can be measured.

#[path = "../benches/ipam/check.rs"]
mod check;

use sim::cluster::Cluster;

#[test]
fn a_check_can_be_measured() {
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip("a_check_can_be_measured", &reason);
    }
    let size = Cluster { nodes: 3, blocks: 20, addresses_per_block: 5, has_endpoints: true };
    let figures = check::figures(size, 1).unwrap();
    assert!(figures.len() >= 3 && figures.iter().all(|figure| figure.value > 0.0), "{figures:?}");
}
