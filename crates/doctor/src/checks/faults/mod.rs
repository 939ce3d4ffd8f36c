//! One fault for each check, to be injected into a healthy cluster.
//!
//! Each fault happens on a node of its own, so that several do not hide each other.

mod books;
mod kernel;
mod named;
mod nodes;
mod records;
mod settings;
#[cfg(test)]
mod tests;
mod told;
mod tunnels;

use crate::FindingCode;
use evidence::Evidence;
use evidence::sample::{Sample, through};

const PODS: usize = 4;
/// The last two nodes are nobody's: faults that need another node take the one, the fault that shares a node's
/// address the other.
const NODES: usize = 8;
const OTHER: usize = NODES - 2;
const TWIN: usize = NODES - 1;

const SAMPLE: Sample = Sample { nodes: NODES, blocks_per_node: 1, pods_per_node: PODS, has_kernels: true };

/// Breaks something on a node, and says what the one finding that is expected is about.
pub type Inject = fn(&mut Evidence, usize) -> String;

/// What is broken.
#[derive(Debug)]
pub struct Fault {
    pub code: FindingCode,
    pub inject: Inject,
    /// It happens where nodes are reached through VXLAN.
    pub is_of_tunnel: bool,
}

pub fn all() -> Vec<Fault> {
    let plain = [
        books::FAULTS,
        records::FAULTS,
        kernel::FAULTS,
        nodes::FAULTS,
        named::FAULTS,
        settings::FAULTS,
        told::FAULTS,
    ];
    let all = plain.into_iter().flatten().map(|fault| (fault, false));
    all.chain(tunnels::FAULTS.iter().map(|fault| (fault, true)))
        .map(|((code, inject), is_of_tunnel)| Fault { code: *code, inject: *inject, is_of_tunnel })
        .collect()
}

pub fn healthy() -> Evidence {
    SAMPLE.evidence()
}

/// Where these faults can happen.
pub fn healthy_for<'f>(faults: impl IntoIterator<Item = &'f Fault>) -> Evidence {
    match faults.into_iter().any(|fault| fault.is_of_tunnel) {
        true => through(SAMPLE, "vxlanMode", "Always"),
        false => healthy(),
    }
}
