//! What `plumb doctor` on the store of a large cluster costs, and on texts that were written to keep it busy: time and memory. (The analysis alone, and how it grows, is measured
//! where it is made: `crates/doctor/benches/`.)
//!
//! `cargo xtask bench doctor`, or `cargo bench -p ctl --bench doctor [-- --quick] [-- -o json]`; `--quick` takes a tenth of
//! everything.

mod program;
mod texts;

use anyhow::Result;
use testkit::figures;

/// How large a cluster is: two blocks per node, fifteen pods per block, one in a hundred of them with a fault.
#[derive(Clone, Copy, Debug)]
struct Size {
    nodes: usize,
}

impl Size {
    const BLOCKS_PER_NODE: usize = 2;
    const PODS_PER_BLOCK: usize = 15;
    /// One fault for this many pods.
    const PODS_PER_FAULT: usize = 100;

    fn blocks(self) -> usize {
        self.nodes * Size::BLOCKS_PER_NODE
    }

    fn pods(self) -> usize {
        self.blocks() * Size::PODS_PER_BLOCK
    }

    fn faults(self) -> usize {
        self.pods() / Size::PODS_PER_FAULT
    }

    fn words(self) -> String {
        format!("{} nodes, {} pods", self.nodes, self.pods())
    }
}

const RUNS: usize = 5;

fn main() -> Result<()> {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let size = Size { nodes: if is_quick { 500 } else { 5_000 } };
    let mut measured = program::figures(size, RUNS)?;
    measured.extend(texts::figures(if is_quick { 10 } else { 100 })?);
    figures::print("doctor", &measured);
    Ok(())
}
