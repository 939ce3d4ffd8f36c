//! What a diagnosis of a large cluster costs, evidence at hand: time, growth with the cluster, memory.
//!
//! `cargo bench -p doctor --bench analysis [-- -o json]`, or by `cargo xtask bench doctor`.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench measures time")]

use std::time::Instant;

use doctor::{Report, diagnose};
use evidence::Evidence;
use evidence::sample::Sample;
use ipam::check::{EndpointFacts, NodeFacts};
use testkit::figures::{self, Figure, Goal, Peer, Run};

/// 150,000 pods, each with endpoint, address and handle.
const LARGE: Sample = Sample { nodes: 5_000, blocks_per_node: 2, pods_per_node: 30, has_kernels: false };
const SMALL: Sample = Sample { nodes: 500, ..LARGE };
const RUNS: usize = 5;
/// One of so many is broken, in one of four ways.
const FAULTY: usize = 100;

fn main() {
    let (large, small) = (broken(LARGE), broken(SMALL));
    let faults = large.pods.as_ref().map_or(0, Vec::len) / FAULTY;
    let (mut large_runs, mut small_runs, mut check_runs) = (Vec::new(), Vec::new(), Vec::new());
    let mut found = 0;
    for _ in 0..RUNS {
        let (time, report) = timed(|| diagnose(&large));
        found = findings(&report);
        large_runs.push(time);
        small_runs.push(timed(|| diagnose(&small)).0);
        check_runs.push(timed(|| check(&large)).0);
    }
    let memory = testkit::effort::resident_bytes(std::process::id()).unwrap_or_default();
    let seconds = |runs: &[Run]| figures::median(runs.iter().map(|run| run.at(0.5) / 1_000.0).collect());
    let growth = figures::median(
        large_runs.iter().zip(&small_runs).map(|(large, small)| large.at(0.5) / small.at(0.5)).collect(),
    );
    let analysis =
        Figure::new("analysis of 5,000 nodes, 150,000 pods, 10,000 blocks", seconds(&large_runs), "s");
    let ratio = seconds(&large_runs) / seconds(&check_runs);
    let peer = Peer { name: "ipam check alone", value: seconds(&check_runs), ratio: Some(ratio) };
    let mebibytes = memory as f64 / f64::from(1 << 20);
    figures::print(
        "doctor",
        &[
            analysis.with_peer(peer).wanted(Goal::ValueAtMost(1.0)),
            Figure::new("growth from 500 to 5,000 nodes", growth, "×").wanted(Goal::ValueAtMost(12.0)),
            Figure::new("memory with both clusters at hand", mebibytes, "MiB")
                .wanted(Goal::ValueAtMost(1024.0)),
            Figure::new("faults that were found", found as f64, "").wanted(Goal::ValueAtLeast(faults as f64)),
        ],
    );
}

fn findings(report: &Report) -> usize {
    report.findings.iter().map(|finding| 1 + finding.symptoms.len()).sum()
}

/// Endpoints without pods, pods without endpoints, addresses in use that are free, shared addresses.
fn broken(sample: Sample) -> Evidence {
    let mut evidence = sample.evidence();
    let count = sample.nodes * sample.pods_per_node;
    let (mut lost_pods, mut lost_endpoints) = (Vec::new(), Vec::new());
    for (kind, number) in (0..count).step_by(FAULTY).enumerate() {
        match kind % 4 {
            0 => lost_pods.push(number),
            1 => lost_endpoints.push(number),
            2 => set_free(&mut evidence, number),
            _ => share(&mut evidence, number),
        }
    }
    let remove = |number: usize, lost: &[usize]| lost.binary_search(&number).is_err();
    let mut number = 0;
    evidence.pods.as_mut().unwrap().retain(|_| {
        number += 1;
        remove(number - 1, &lost_pods)
    });
    number = 0;
    evidence.endpoints.as_mut().unwrap().retain(|_| {
        number += 1;
        remove(number - 1, &lost_endpoints)
    });
    evidence
}

fn set_free(evidence: &mut Evidence, number: usize) {
    let address = evidence.endpoints.as_ref().unwrap()[number].seen.addresses[0];
    let books = &mut evidence.ipam.as_mut().unwrap().books;
    let block = model::Cidr::containing(address, 26).and_then(|cidr| books.blocks.get_mut(&cidr)).unwrap();
    let ordinal = block.value.ordinal(address).unwrap();
    let handle = block.value.attribute(ordinal).and_then(|attribute| attribute.handle().cloned()).unwrap();
    ipam::give_back(&mut block.value, &[ordinal], None);
    books.handles.remove(&handle);
}

fn share(evidence: &mut Evidence, number: usize) {
    let endpoints = evidence.endpoints.as_mut().unwrap();
    let address = endpoints[number + 1].seen.addresses[0];
    endpoints[number].seen.addresses = vec![address];
}

/// The books alone, as `plumb ipam check` compares them.
fn check(evidence: &Evidence) -> usize {
    let records = evidence.records.all(model::Kind::IpPool);
    let pools: Vec<ipam::Pool> = records.iter().filter_map(|pool| ipam::Pool::new(&pool.seen).ok()).collect();
    let nodes = evidence.records.all(model::Kind::Node).iter();
    let nodes: Vec<NodeFacts> =
        nodes.map(|node| NodeFacts { name: node.seen.metadata.name.clone(), tunnels: Vec::new() }).collect();
    let endpoints = evidence.endpoints.iter().flatten().map(|endpoint| EndpointFacts {
        namespace: endpoint.seen.namespace.as_deref().unwrap_or_default().into(),
        name: endpoint.seen.name.as_str().into(),
        addresses: endpoint.seen.addresses.as_slice().into(),
    });
    let endpoints: Vec<EndpointFacts<'_>> = endpoints.collect();
    let books = &evidence.ipam.as_ref().unwrap().books;
    let now = evidence.taken_at.unwrap_or_default();
    let (pools, nodes, endpoints, services) = (&pools[..], &nodes[..], &endpoints[..], &[][..]);
    ipam::check::analyse(&ipam::check::Evidence { books, pools, nodes, endpoints, services, now })
        .problems
        .len()
}

fn timed<T>(work: impl FnOnce() -> T) -> (Run, T) {
    let start = Instant::now();
    let result = work();
    (Run::new([start.elapsed()]), result)
}
