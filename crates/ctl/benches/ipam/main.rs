//! What `plumb ipam check` of a large cluster costs: time, memory, and the analysis alone.
//!
//! `cargo bench -p ctl --bench ipam [-- -o json]`, or with everything else of the address book by
//! `cargo xtask bench ipam`.

mod check;

use anyhow::Result;
use sim::cluster::Cluster;
use testkit::figures;

/// 150,000 addresses, each with its handle and its endpoint.
const LARGE: Cluster = Cluster { nodes: 500, blocks: 10_000, addresses_per_block: 15, has_endpoints: true };
const RUNS: usize = 5;

fn main() -> Result<()> {
    let figures = match testkit::etcd::missing() {
        Some(reason) => {
            eprintln!("not measured: {reason}");
            Vec::new()
        }
        None => check::figures(LARGE, RUNS)?,
    };
    figures::print("ipam", &figures);
    Ok(())
}
