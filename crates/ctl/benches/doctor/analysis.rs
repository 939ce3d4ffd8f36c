//! The analysis alone: pods, nodes, endpoints and books of a cluster, all in memory.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use doctor::sample::Sample;
use doctor::{Evidence, diagnose};
use testkit::figures::{Figure, Goal, Peer, median};

use crate::Size;

pub(crate) fn figures(small: Size, large: Size, runs: usize) -> Result<Vec<Figure>> {
    let (few, many) = (evidence(small), evidence(large));
    let (mut fast, mut slow, mut growth) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=runs {
        let (small_seconds, large_seconds) = (once(&few, small)?, once(&many, large)?);
        eprintln!("analysis, run {run}: {small_seconds:.3} s, {large_seconds:.3} s");
        fast.push(small_seconds);
        slow.push(large_seconds);
        growth.push(large_seconds / small_seconds);
    }
    let (fast, slow) = (median(fast), median(slow));
    let name = format!("doctor of {}, 1 % faults, analysis", large.words());
    let time = Figure::new(name, slow, "s").wanted(Goal::ValueAtMost(1.0));
    let peer = Peer { name: "a tenth of it", value: fast, ratio: Some(median(growth)) };
    let name = format!("doctor of {}, growth of the analysis", large.words());
    let growth = Figure::new(name, slow, "s").with_peer(peer).wanted(Goal::RatioAtMost(12.0));
    Ok(vec![time, growth])
}

/// Every hundredth pod is gone without its address having been released.
fn evidence(size: Size) -> Evidence {
    let sample = Sample {
        nodes: size.nodes,
        blocks_per_node: Size::BLOCKS_PER_NODE,
        pods_per_node: Size::BLOCKS_PER_NODE * Size::PODS_PER_BLOCK,
        has_kernels: false,
    };
    let mut evidence = sample.evidence();
    let mut number = 0;
    let mut gone = std::collections::BTreeSet::new();
    for endpoint in evidence.endpoints.iter().flatten() {
        number += 1;
        if number % Size::PODS_PER_FAULT == 0 {
            gone.insert((endpoint.seen.namespace.clone(), endpoint.seen.pod.clone()));
        }
    }
    if let Some(endpoints) = &mut evidence.endpoints {
        endpoints
            .retain(|endpoint| !gone.contains(&(endpoint.seen.namespace.clone(), endpoint.seen.pod.clone())));
    }
    if let Some(pods) = &mut evidence.pods {
        pods.retain(|pod| {
            !gone.contains(&(pod.seen.name.namespace.clone(), Some(pod.seen.name.name.clone())))
        });
    }
    evidence
}

fn once(evidence: &Evidence, size: Size) -> Result<f64> {
    let started = Instant::now();
    let report = black_box(diagnose(evidence));
    let seconds = started.elapsed().as_secs_f64();
    // A fast analysis that misses something would be worth nothing.
    ensure!(
        report.findings.len() == size.faults(),
        "{} findings, not {}",
        report.findings.len(),
        size.faults()
    );
    Ok(seconds)
}
