//! Faults of the address book.

use ::ipam::{Books, Owner, Reservations, Stored, Tunnel};
use model::ipam::{Affinity, AffinityState, Block, Handle};
use model::{AffinityOwner, Cidr, FindingCode, HandleId, Key, Kind};
use serde_json::json;

use super::{Inject, OTHER, PODS};
use evidence::sample::{block_cidr, kernel_route, node_address, node_name, record};
use evidence::{Evidence, Origin, Sighted};

pub(super) const FAULTS: &[(FindingCode, Inject)] = &[
    (FindingCode::AddressLeaked, address_leaked),
    (FindingCode::AddressUsedButFree, address_used_but_free),
    (FindingCode::AffinityContradicted, affinity_contradicted),
    (FindingCode::AffinityMissing, affinity_missing),
    (FindingCode::AffinityOfGoneNode, affinity_of_gone_node),
    (FindingCode::AffinityUnfinished, affinity_unfinished),
    (FindingCode::AffinityUnlabelled, affinity_unlabelled),
    (FindingCode::AllocationWithoutHandle, allocation_without_handle),
    (FindingCode::BlockContradictsItself, block_contradicts_itself),
    (FindingCode::BlockHidesAddress, block_hides_address),
    (FindingCode::BlockLimitReached, block_limit_reached),
    (FindingCode::BlockMissing, block_missing),
    (FindingCode::BlockOutsidePools, block_outside_pools),
    (FindingCode::BlockOverlap, block_overlap),
    (FindingCode::HandleByName, handle_by_name),
    (FindingCode::HandleCountWrong, handle_count_wrong),
    (FindingCode::HandleMissing, handle_missing),
    (FindingCode::HandleUnused, handle_unused),
    (FindingCode::IpamConfigIgnored, ipam_config_ignored),
    (FindingCode::LeakCollectionOff, leak_collection_off),
    (FindingCode::PoolFull, pool_full),
    (FindingCode::PoolNotForNode, pool_not_for_node),
    (FindingCode::PoolOverlap, pool_overlap),
    (FindingCode::RecordUnreadable, record_unreadable),
    (FindingCode::ServiceBlockEmpty, service_block_empty),
    (FindingCode::Tombstone, tombstone),
    (FindingCode::TunnelAddressShared, tunnel_address_shared),
];

fn books(evidence: &mut Evidence) -> &mut Books {
    &mut evidence.ipam.as_mut().unwrap().books
}

pub(super) fn block(evidence: &mut Evidence, node: usize) -> &mut Block {
    &mut books(evidence).blocks.get_mut(&block_cidr(node)).unwrap().value
}

/// The handle of a node's first pod.
fn handle(evidence: &mut Evidence, node: usize) -> HandleId {
    block(evidence, node).attributes[0].handle().cloned().unwrap()
}

fn owner(node: usize) -> AffinityOwner {
    AffinityOwner::Host(node_name(node))
}

fn give(books: &mut Books, cidr: Cidr, handle: &str) -> String {
    let block = &mut books.blocks.get_mut(&cidr).unwrap().value;
    let node = block.owner().map(|owner| owner.name().to_owned()).unwrap_or_default();
    let made_at = "2026-08-22T05:00:00Z".parse().unwrap();
    let holder = Owner::on_node(handle, &node, made_at).of_pod("gone", &format!("of-{node}"), None);
    let taken = ::ipam::take(block, &holder, 1, &Reservations::default())[0];
    let record = Handle { block: [(cidr.to_string(), 1)].into(), ..Handle::default() };
    books.handles.insert(handle.into(), Stored::new(record, "1"));
    taken.to_string()
}

pub(super) fn claim(books: &mut Books, cidr: Cidr, owner: &AffinityOwner) {
    books.blocks.insert(cidr, Stored::new(Block::new(cidr, Some(owner), 1), "1"));
    books.affinities.insert((owner.clone(), cidr), Stored::new(Affinity::default(), "1"));
}

fn address_leaked(evidence: &mut Evidence, node: usize) -> String {
    give(books(evidence), block_cidr(node), &format!("k8s-pod-network.{}", "ab".repeat(32)))
}

fn address_used_but_free(evidence: &mut Evidence, node: usize) -> String {
    let handle = handle(evidence, node);
    books(evidence).handles.remove(&handle);
    ::ipam::give_back(block(evidence, node), &[0], None);
    block_cidr(node).network().to_string()
}

fn affinity_contradicted(evidence: &mut Evidence, node: usize) -> String {
    books(evidence)
        .affinities
        .insert((owner(OTHER), block_cidr(node)), Stored::new(Affinity::default(), "1"));
    format!("affinity of {} for {}", node_name(OTHER), block_cidr(node))
}

fn affinity_missing(evidence: &mut Evidence, node: usize) -> String {
    books(evidence).affinities.remove(&(owner(node), block_cidr(node)));
    format!("block {}", block_cidr(node))
}

fn affinity_of_gone_node(evidence: &mut Evidence, node: usize) -> String {
    let gone = AffinityOwner::Host(format!("gone-{node}"));
    let cidr = block_cidr(100 + node);
    claim(books(evidence), cidr, &gone);
    give(books(evidence), cidr, &format!("k8s-pod-network.{}", "cd".repeat(32)));
    format!("node gone-{node}")
}

fn affinity_unfinished(evidence: &mut Evidence, node: usize) -> String {
    let affinity = books(evidence).affinities.get_mut(&(owner(node), block_cidr(node))).unwrap();
    affinity.value.state = AffinityState::PendingDeletion;
    format!("affinity of {} for {}", node_name(node), block_cidr(node))
}

fn affinity_unlabelled(evidence: &mut Evidence, node: usize) -> String {
    let labels = &mut evidence.ipam.as_mut().unwrap().labels;
    labels.present = 1;
    labels.missing.push(Sighted::new((owner(node), block_cidr(node)), Origin::file("affinities.yaml")));
    format!("node {}", node_name(node))
}

fn allocation_without_handle(evidence: &mut Evidence, node: usize) -> String {
    let handle = handle(evidence, node);
    books(evidence).handles.remove(&handle);
    block(evidence, node).attributes[0].handle_id = None;
    block_cidr(node).network().to_string()
}

fn block_contradicts_itself(evidence: &mut Evidence, node: usize) -> String {
    block(evidence, node).unallocated.push(0);
    format!("block {}", block_cidr(node))
}

/// One block each, and of one nothing may be given out.
fn block_limit_reached(evidence: &mut Evidence, node: usize) -> String {
    let config = model::ipam::IpamConfig { max_blocks_per_host: 1, ..Default::default() };
    evidence.ipam.as_mut().unwrap().config = Some(Sighted::new(config, Origin::store(&Key::IpamConfig)));
    evidence.records.add(record(
        Kind::IpReservation,
        &format!("kept-{node}"),
        json!({"reservedCIDRs": [block_cidr(node)]}),
    ));
    format!("node {}", node_name(node))
}

/// Its affinity and its handles are left.
fn block_missing(evidence: &mut Evidence, node: usize) -> String {
    books(evidence).blocks.remove(&block_cidr(node)).unwrap();
    format!("block {}", block_cidr(node))
}

fn block_outside_pools(evidence: &mut Evidence, node: usize) -> String {
    let cidr: Cidr = format!("10.200.{node}.0/26").parse().unwrap();
    claim(books(evidence), cidr, &owner(node));
    let via = node_address(node);
    for (name, other) in &mut evidence.nodes {
        if !name.is(&node_name(node)) {
            let route = kernel_route(cidr.to_string().parse().unwrap(), Some(via), Some("eth0"), "bird");
            let route = Sighted::new(route, Origin::probe(name.as_str(), "routes"));
            other.kernel.routes.iter_mut().for_each(|routes| routes.push(route.clone()));
        }
    }
    format!("block {cidr}")
}

/// A pool, and a block of it, around the address of a node.
fn block_hides_address(evidence: &mut Evidence, node: usize) -> String {
    let cidr = Cidr::single(node_address(node));
    let spec = serde_json::json!({"cidr": cidr.to_string(), "blockSize": 32, "disabled": true});
    evidence.records.add(evidence::sample::record(model::Kind::IpPool, &format!("nodes-{node}"), spec));
    claim(books(evidence), cidr, &owner(node));
    format!("block {cidr}")
}

fn block_overlap(evidence: &mut Evidence, node: usize) -> String {
    let cidr = Cidr::containing(block_cidr(node).network(), 28).unwrap();
    claim(books(evidence), cidr, &owner(node));
    format!("block {cidr}")
}

fn handle_by_name(evidence: &mut Evidence, node: usize) -> String {
    let old = handle(evidence, node);
    let record = books(evidence).handles.remove(&old).unwrap();
    let name = HandleId::from(format!("default.web-{node}"));
    books(evidence).handles.insert(name.clone(), record);
    block(evidence, node).attributes[0].handle_id = Some(name.into());
    format!("block {}", block_cidr(node))
}

fn handle_count_wrong(evidence: &mut Evidence, node: usize) -> String {
    let handle = handle(evidence, node);
    let record = &mut books(evidence).handles.get_mut(&handle).unwrap().value;
    *record.block.values_mut().next().unwrap() += 1;
    format!("handle {handle}")
}

fn handle_missing(evidence: &mut Evidence, node: usize) -> String {
    let handle = handle(evidence, node);
    books(evidence).handles.remove(&handle);
    format!("handle {handle}")
}

fn handle_unused(evidence: &mut Evidence, node: usize) -> String {
    let record = Handle { block: [(block_cidr(node).to_string(), 1)].into(), ..Handle::default() };
    books(evidence).handles.insert(format!("left-{node}").into(), Stored::new(record, "1"));
    format!("handle left-{node}")
}

fn pool_overlap(evidence: &mut Evidence, node: usize) -> String {
    evidence.records.add(record(Kind::IpPool, &format!("inner-{node}"), json!({"cidr": "10.15.0.0/16"})));
    format!("IPPool(inner-{node})")
}

/// The record that is read says nothing of it.
fn ipam_config_ignored(evidence: &mut Evidence, _: usize) -> String {
    let spec = json!({"ipCooldownSeconds": 30});
    evidence.records.add(record(Kind::IpamConfiguration, "default", spec));
    "IPAMConfiguration(default)".to_owned()
}

fn leak_collection_off(evidence: &mut Evidence, node: usize) -> String {
    let spec = json!({"controllers": {"node": {"leakGracePeriod": "0s"}}});
    evidence.records.add(record(Kind::KubeControllersConfiguration, &format!("config-{node}"), spec));
    format!("KubeControllersConfiguration(config-{node})")
}

/// One address, and a tunnel has it.
fn pool_full(evidence: &mut Evidence, node: usize) -> String {
    let cidr: Cidr = format!("10.150.{node}.0/32").parse().unwrap();
    let pool = record(Kind::IpPool, &format!("tiny-{node}"), json!({"cidr": cidr, "blockSize": 32}));
    evidence.records.add(pool);
    give_to_tunnel(evidence, node, cidr);
    format!("IPPool(tiny-{node})")
}

/// A tunnel has an address of a pool that is for other nodes.
fn pool_not_for_node(evidence: &mut Evidence, node: usize) -> String {
    let cidr: Cidr = format!("10.151.{node}.0/26").parse().unwrap();
    let spec = json!({"cidr": cidr, "blockSize": 26, "nodeSelector": "rack == 'another'"});
    evidence.records.add(record(Kind::IpPool, &format!("rack-{node}"), spec));
    give_to_tunnel(evidence, node, cidr);
    format!("node {}", node_name(node))
}

/// A block of nobody, of which a node's tunnel has an address.
fn give_to_tunnel(evidence: &mut Evidence, node: usize, cidr: Cidr) {
    books(evidence).blocks.insert(cidr, Stored::new(Block::new(cidr, None, 1), "1"));
    let tunnel = Tunnel::Wireguard.owner(&node_name(node));
    ::ipam::take(
        &mut books(evidence).blocks.get_mut(&cidr).unwrap().value,
        &tunnel,
        1,
        &Reservations::default(),
    );
    let record = Handle { block: [(cidr.to_string(), 1)].into(), ..Handle::default() };
    books(evidence).handles.insert(tunnel.handle, Stored::new(record, "1"));
    let kube = &mut evidence.kube_nodes.as_mut().unwrap()[node].seen;
    kube.annotations
        .insert("projectcalico.org/IPv4WireguardInterfaceAddr".to_owned(), cidr.network().to_string());
}

/// The last service is gone.
fn service_block_empty(evidence: &mut Evidence, node: usize) -> String {
    let cidr = block_cidr(200 + node);
    claim(books(evidence), cidr, &AffinityOwner::Virtual("load-balancer".to_owned()));
    format!("block {cidr}")
}

fn record_unreadable(evidence: &mut Evidence, node: usize) -> String {
    let key = Key::Handle(format!("odd-{node}").into());
    evidence.ipam.as_mut().unwrap().add(key, b"[", Origin::file("dump"));
    format!("handle odd-{node}")
}

fn tombstone(evidence: &mut Evidence, node: usize) -> String {
    let record = Handle { deleted: true, ..Handle::default() };
    books(evidence).handles.insert(format!("dead-{node}").into(), Stored::new(record, "1"));
    format!("handle dead-{node}")
}

fn tunnel_address_shared(evidence: &mut Evidence, node: usize) -> String {
    let address = evidence.endpoints.as_ref().unwrap()[node * PODS].seen.addresses[0];
    let kube = &mut evidence.kube_nodes.as_mut().unwrap()[OTHER].seen;
    kube.annotations.insert("projectcalico.org/IPv4WireguardInterfaceAddr".to_owned(), address.to_string());
    address.to_string()
}
