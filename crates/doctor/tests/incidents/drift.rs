//! The drift of which the incident's file shows a part: attributes of pods that are gone, addresses that are in use and free, counts,
//! pools, affinities. Complete books are made, broken in every way that the incident tells of, and every break is found.

use std::collections::BTreeSet;
use std::net::IpAddr;

use doctor::{Report, diagnose};
use evidence::Evidence;
use evidence::sample::Sample;
use ipam::{Books, Owner, Reservations, Stored};
use model::ipam::{Affinity, Block, Handle};
use model::{AffinityOwner, Cidr, FindingCode, HandleId};

fn healthy() -> Evidence {
    Sample { nodes: 8, blocks_per_node: 1, pods_per_node: 6, has_kernels: false }.evidence()
}

fn books(evidence: &mut Evidence) -> &mut Books {
    &mut evidence.ipam.as_mut().unwrap().books
}

fn cidr(number: usize) -> Cidr {
    Cidr::containing(IpAddr::from([10, 0, (number / 4) as u8, (number % 4 * 64) as u8]), 26).unwrap()
}

fn block(evidence: &mut Evidence, number: usize) -> &mut Block {
    &mut books(evidence).blocks.get_mut(&cidr(number)).unwrap().value
}

fn handle_of(evidence: &mut Evidence, number: usize, ordinal: usize) -> HandleId {
    block(evidence, number).attribute(ordinal).unwrap().handle().cloned().unwrap()
}

/// Each node's block is broken in another way.
fn drifted() -> Evidence {
    let mut evidence = healthy();
    // 0: an attribute of a pod that no longer exists, under a handle by name.
    let owner =
        Owner { handle: "kube-system.prometheus-3355405412-iyww3".into(), attributes: Default::default() };
    ipam::take(block(&mut evidence, 0), &owner, 1, &Reservations::default());
    let handle = Handle { block: [(cidr(0).to_string(), 1)].into(), ..Handle::default() };
    books(&mut evidence).handles.insert(owner.handle, Stored::new(handle, "1"));
    // 1: an address in use that is marked free.
    let freed = handle_of(&mut evidence, 1, 2);
    ipam::give_back(block(&mut evidence, 1), &[2], None);
    books(&mut evidence).handles.remove(&freed);
    // 2: a handle that counts too much.
    let counted = handle_of(&mut evidence, 2, 0);
    let record = &mut books(&mut evidence).handles.get_mut(&counted).unwrap().value;
    record.block.insert(cidr(2).to_string(), 3);
    // 3: lists that disagree.
    block(&mut evidence, 3).unallocated.retain(|ordinal| *ordinal != 40);
    // 4: a handle that is gone while it holds an address.
    let gone = handle_of(&mut evidence, 4, 1);
    books(&mut evidence).handles.remove(&gone);
    // 5: an allocation outside any pool.
    let outside: Cidr = "192.168.106.64/26".parse().unwrap();
    let owner = AffinityOwner::Host("worker-0005".to_owned());
    books(&mut evidence).blocks.insert(outside, Stored::new(Block::new(outside, Some(&owner), 1), "1"));
    books(&mut evidence).affinities.insert((owner, outside), Stored::new(Affinity::default(), "1"));
    // 6: an affinity of a node that is gone.
    let lost: Cidr = "10.1.0.0/26".parse().unwrap();
    let owner = AffinityOwner::Host("dev-slave-108".to_owned());
    books(&mut evidence).blocks.insert(lost, Stored::new(Block::new(lost, Some(&owner), 1), "1"));
    books(&mut evidence).affinities.insert((owner, lost), Stored::new(Affinity::default(), "1"));
    evidence
}

fn told(report: &Report) -> BTreeSet<(FindingCode, String)> {
    report.findings.iter().map(|finding| (finding.code, finding.subject.to_string())).collect()
}

#[test]
fn the_whole_drift_is_found_and_nothing_else() {
    assert_eq!(told(&diagnose(&healthy())), BTreeSet::new());
    let mut evidence = drifted();
    let (counted, gone) = (handle_of(&mut evidence, 2, 0), handle_of(&mut evidence, 4, 1));
    let expected = [
        (FindingCode::AddressLeaked, "10.0.0.6".to_owned()),
        (FindingCode::HandleByName, "block 10.0.0.0/26".to_owned()),
        (FindingCode::AddressUsedButFree, "10.0.0.66".to_owned()),
        (FindingCode::HandleCountWrong, format!("handle {counted}")),
        (FindingCode::BlockContradictsItself, "block 10.0.0.192/26".to_owned()),
        (FindingCode::HandleMissing, format!("handle {gone}")),
        (FindingCode::BlockOutsidePools, "block 192.168.106.64/26".to_owned()),
        (FindingCode::AffinityOfGoneNode, "node dev-slave-108".to_owned()),
    ];
    let expected: BTreeSet<(FindingCode, String)> = expected.into_iter().collect();
    assert_eq!(told(&diagnose(&evidence)), expected);
}
