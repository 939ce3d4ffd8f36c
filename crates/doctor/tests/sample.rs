//! The made-up cluster of [`evidence::sample`] is in full health.

use doctor::diagnose;
use evidence::sample::{Sample, small};

#[test]
fn a_healthy_cluster_has_no_findings() {
    let report = diagnose(&small());
    assert_eq!(report.findings, []);
}

#[test]
fn its_size_is_what_was_asked_for() {
    let sample = Sample { nodes: 5, blocks_per_node: 2, pods_per_node: 70, has_kernels: false };
    let evidence = sample.evidence();
    assert_eq!(evidence.endpoints.as_ref().unwrap().len(), 350);
    assert_eq!(evidence.ipam.as_ref().unwrap().books.blocks.len(), 10);
    assert_eq!(diagnose(&evidence).findings, []);
}
