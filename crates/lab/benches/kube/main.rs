//! What pods and agents cost on Kubernetes: requests to the API server by the server's own count, times of ADDs beside those on etcd and
//! SQLite, and what an agent holds and hears in a large cluster.
//!
//! `cargo xtask bench kube`, or `cargo bench -p lab --bench kube [-- -o json] [-- --quick] [-- --calls]` (calls only: not the large
//! cluster). `--quick` is for a trial: few of everything, and a plugin that need not be released. `PLUMB_BENCH_NODES` alone makes the
//! cluster smaller. The agents, the stores and the API server are real, and the agents have the shipped role's rights and no others.

mod churn;
mod large;
#[path = "../cni/plugin.rs"]
#[expect(dead_code, reason = "another bench uses the rest")]
mod plugin;
mod requests;
mod side;
mod small;

use std::path::PathBuf;

use anyhow::Result;
use testkit::figures;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// In turns.
    runs: usize,
    /// Pods per run that come and go one at a time.
    singles: usize,
    /// Pods that come at once, and go at once.
    bursts: [usize; 2],
    /// Of the large cluster.
    nodes: usize,
    /// Of what is not measured here, the plugin, any build is good enough.
    is_trial: bool,
}

const FULL: Extent = Extent { runs: 5, singles: 30, bursts: [30, 110], nodes: 5_000, is_trial: false };
/// To see whether it works.
const QUICK: Extent = Extent { runs: 1, singles: 5, bursts: [5, 10], nodes: 50, is_trial: true };

impl Extent {
    fn plugin(self, lab: &lab::Lab) -> Result<PathBuf> {
        if self.is_trial { Ok(lab.programs().cni()) } else { plugin::released() }
    }
}

fn main() -> Result<()> {
    let is_asked = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    if !is_asked("--bench") {
        eprintln!("this measures; run it with `cargo bench`");
        return Ok(());
    }
    if let Some(reason) = lab::missing().or_else(testkit::kube::missing) {
        anyhow::bail!("this cannot be measured here: {reason}");
    }
    let extent = if is_asked("--quick") { QUICK } else { FULL };
    let extent = Extent { nodes: figures::nodes(extent.nodes)?, ..extent };
    let lab = lab::Lab::new(lab::Programs::of_test()?)?;
    let mut figures = small::measure(&lab, extent)?;
    if !is_asked("--calls") {
        figures.extend(large::measure(&lab, extent)?);
    }
    figures::print("kube", &figures);
    Ok(())
}
