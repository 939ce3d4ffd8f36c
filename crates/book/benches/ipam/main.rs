//! What the address book costs: addresses per second, alone and in bursts, and what is written and asked for each; in
//! small and large clusters, on SQLite and on etcd.
//!
//! `cargo xtask bench ipam`, or `cargo bench -p book --bench ipam [-- -o json]`. Beside each figure stands the floor: the
//! same records in plain commits, decided by nobody. All take turns, several runs each; a figure is the median of
//! its runs.

mod assigns;
mod floor;
mod measure;
mod places;

use measure::Scale;
use testkit::figures;

const SCALE: Scale =
    Scale { blocks: &[1, 1_000, 10_000], bursts: &[1, 30, 110, 1_000], runs: 15, addresses_min: 1_000 };

fn main() -> anyhow::Result<()> {
    if !std::env::args().any(|argument| argument == "--bench") {
        eprintln!("this measures; run it with `cargo bench`");
        return Ok(());
    }
    figures::print("ipam", &measure::figures(&SCALE)?);
    Ok(())
}
