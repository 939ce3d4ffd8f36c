//! Faults of the address book: blocks, handles, affinities, pools.

use std::net::IpAddr;

use anyhow::{Context as _, Result};
use ipam::{Owner, Reservations, Tunnel};
use model::ipam::{Affinity, AffinityState, Block, Handle, IpamConfig};
use model::{AffinityOwner, Cidr, FindingCode, Key, Kind};
use serde_json::json;

use crate::injection::{Fault, Injection, Takes};
use crate::scene::NODES;

pub(crate) const FAULTS: &[Fault] = &[
    Fault { code: FindingCode::AddressAllocatedTwice, takes: Takes::Node, inject: address_allocated_twice },
    Fault { code: FindingCode::AddressLeaked, takes: Takes::Pod, inject: address_leaked },
    Fault { code: FindingCode::AddressUsedButFree, takes: Takes::Pod, inject: address_used_but_free },
    Fault { code: FindingCode::AffinityContradicted, takes: Takes::Pod, inject: affinity_contradicted },
    Fault { code: FindingCode::AffinityMissing, takes: Takes::Node, inject: affinity_missing },
    Fault { code: FindingCode::AffinityOfGoneNode, takes: Takes::Pod, inject: affinity_of_gone_node },
    Fault { code: FindingCode::AffinityUnfinished, takes: Takes::Node, inject: affinity_unfinished },
    Fault {
        code: FindingCode::AllocationWithoutHandle,
        takes: Takes::Pod,
        inject: allocation_without_handle,
    },
    Fault { code: FindingCode::BlockContradictsItself, takes: Takes::Node, inject: block_contradicts_itself },
    // Routes on other nodes are judged by their blocks: faults of theirs would not be seen beside it.
    Fault { code: FindingCode::BlockMissing, takes: Takes::Cluster, inject: block_missing },
    Fault { code: FindingCode::BlockOutsidePools, takes: Takes::Pod, inject: block_outside_pools },
    Fault { code: FindingCode::BlockOverlap, takes: Takes::Node, inject: block_overlap },
    Fault { code: FindingCode::HandleByName, takes: Takes::Node, inject: handle_by_name },
    Fault { code: FindingCode::HandleCountWrong, takes: Takes::Pod, inject: handle_count_wrong },
    Fault { code: FindingCode::HandleMissing, takes: Takes::Pod, inject: handle_missing },
    Fault { code: FindingCode::HandleUnused, takes: Takes::Pod, inject: handle_unused },
    Fault {
        code: FindingCode::ClusterRoutesContradictory,
        takes: Takes::Cluster,
        inject: cluster_routes_contradictory,
    },
    Fault { code: FindingCode::IpamConfigIgnored, takes: Takes::Cluster, inject: ipam_config_ignored },
    Fault { code: FindingCode::LeakCollectionOff, takes: Takes::Pod, inject: leak_collection_off },
    // Only while its node has the address.
    Fault { code: FindingCode::BlockHidesAddress, takes: Takes::Setup, inject: block_hides_address },
    Fault { code: FindingCode::BlockLimitReached, takes: Takes::Cluster, inject: block_limit_reached },
    Fault { code: FindingCode::PoolFull, takes: Takes::Pod, inject: pool_full },
    Fault { code: FindingCode::PoolNotForNode, takes: Takes::Pod, inject: pool_not_for_node },
    Fault { code: FindingCode::PoolOverlap, takes: Takes::Pod, inject: pool_overlap },
    Fault { code: FindingCode::RecordUnreadable, takes: Takes::Pod, inject: record_unreadable },
    Fault { code: FindingCode::ServiceBlockEmpty, takes: Takes::Pod, inject: service_block_empty },
    Fault { code: FindingCode::Tombstone, takes: Takes::Pod, inject: tombstone },
    Fault { code: FindingCode::TunnelAddressShared, takes: Takes::Pod, inject: tunnel_address_shared },
];

/// A sandbox of long ago, as the plugin notes its owner.
fn nobody(handle: &str, node: &str) -> Owner {
    let long_ago = "2026-01-01T00:00:00Z".parse().expect("a time");
    Owner::on_node(handle, node, long_ago).of_pod(crate::scene::NAMESPACE, "long-gone", None)
}

/// A handle as a sandbox that does not exist would have.
fn lost_handle(i: &Injection<'_>, digit: char) -> String {
    format!("{}.{:02x}{}", lab::cluster::NETWORK, i.lot(), digit.to_string().repeat(62))
}

fn claim(i: &Injection<'_>, cidr: Cidr, owner: &AffinityOwner) -> Result<()> {
    i.put(Key::Block(cidr), Block::new(cidr, Some(owner), 1).encode())?;
    i.put(Key::Affinity { owner: owner.clone(), block: cidr }, Affinity::default().encode())
}

fn affinity(i: &Injection<'_>) -> Key {
    Key::Affinity { owner: i.owner(), block: i.block() }
}

/// The books' ordinal of the pod's address, given back.
pub(super) fn give_back(i: &Injection<'_>) -> Result<()> {
    let address = i.address();
    i.edit_block(i.block(), |block| {
        let ordinal = block.ordinal(address).expect("it is in the block");
        ipam::give_back(block, &[ordinal], None);
    })?;
    i.remove(Key::Handle(i.handle().into()))
}

/// As after a backup of the store that is older than the block; its affinity and its handles are left.
fn block_missing(i: &mut Injection<'_>) -> Result<()> {
    i.remove(Key::Block(i.block()))?;
    i.expect(format!("block {}", i.block()))
}

/// A smaller block inside, which gave the pod's address to somebody else.
fn address_allocated_twice(i: &mut Injection<'_>) -> Result<()> {
    let inner = Cidr::containing(i.address(), 28).context("a block")?;
    let handle = lost_handle(i, 'a');
    claim(i, inner, &i.owner())?;
    let (address, node) = (i.address(), i.node);
    i.edit_block(inner, |block| assert!(ipam::take_address(block, &nobody(&handle, node), address)))?;
    i.put_handle(&handle, inner)?;
    i.expect_within(FindingCode::BlockOverlap, format!("block {inner}"), address);
    Ok(())
}

fn address_leaked(i: &mut Injection<'_>) -> Result<()> {
    let handle = lost_handle(i, 'b');
    let (mut taken, node): (Vec<IpAddr>, _) = (Vec::new(), i.node);
    i.edit_block(i.block(), |block| {
        taken = ipam::take(block, &nobody(&handle, node), 1, &Reservations::default());
    })?;
    i.put_handle(&handle, i.block())?;
    i.expect(taken[0])
}

fn address_used_but_free(i: &mut Injection<'_>) -> Result<()> {
    give_back(i)?;
    i.expect(i.address())
}

fn affinity_contradicted(i: &mut Injection<'_>) -> Result<()> {
    // Of another block for each, so that there can be several.
    let block: Cidr = format!("10.244.{}.0/26", i.lot()).parse()?;
    i.put(Key::Affinity { owner: i.owner(), block }, Affinity::default().encode())?;
    i.expect(format!("affinity of {} for {block}", i.node))
}

fn affinity_missing(i: &mut Injection<'_>) -> Result<()> {
    i.remove(affinity(i))?;
    i.expect(format!("block {}", i.block()))
}

fn affinity_of_gone_node(i: &mut Injection<'_>) -> Result<()> {
    let (gone, cidr) = (format!("gone-{}", i.lot()), format!("10.244.{}.64/26", i.lot()).parse()?);
    claim(i, cidr, &AffinityOwner::Host(gone.clone()))?;
    i.expect(format!("node {gone}"))
}

fn affinity_unfinished(i: &mut Injection<'_>) -> Result<()> {
    i.put(affinity(i), Affinity::new(AffinityState::PendingDeletion).encode())?;
    i.expect(format!("affinity of {} for {}", i.node, i.block()))
}

fn allocation_without_handle(i: &mut Injection<'_>) -> Result<()> {
    let handle = i.handle();
    i.edit_block(i.block(), |block| {
        let held = block.attributes.iter_mut().find(|held| held.handle() == Some(&handle.as_str().into()));
        held.expect("the pod's").handle_id = None;
    })?;
    i.remove(Key::Handle(handle.into()))?;
    i.expect(i.address())
}

fn block_contradicts_itself(i: &mut Injection<'_>) -> Result<()> {
    let address = i.address();
    i.edit_block(i.block(), |block| {
        let ordinal = block.ordinal(address).expect("it is in the block");
        block.unallocated.push(ordinal);
    })?;
    i.expect(format!("block {}", i.block()))
}

fn block_outside_pools(i: &mut Injection<'_>) -> Result<()> {
    let cidr: Cidr = format!("10.200.{}.0/26", i.lot()).parse()?;
    claim(i, cidr, &i.owner())?;
    let own = i.node;
    for other in NODES.into_iter().filter(|other| *other != own) {
        let via = crate::scene::address_of(own);
        i.on(other, format!("ip route replace {cidr} via {via} dev eth0"), format!("ip route del {cidr}"))?;
    }
    i.expect(format!("block {cidr}"))
}

/// A pool, and a block of it, around the address of a node.
fn block_hides_address(i: &mut Injection<'_>) -> Result<()> {
    let cidr = Cidr::single(crate::scene::address_of(i.node).parse()?);
    let spec = serde_json::json!({"cidr": cidr.to_string(), "blockSize": 32, "disabled": true});
    i.put_resource(model::Kind::IpPool, &format!("nodes-{}", i.lot()), spec)?;
    claim(i, cidr, &i.owner())?;
    i.expect(format!("block {cidr}"))
}

fn block_overlap(i: &mut Injection<'_>) -> Result<()> {
    let inner = Cidr::containing(i.address(), 28).context("a block")?;
    claim(i, inner, &i.owner())?;
    i.expect(format!("block {inner}"))
}

fn handle_by_name(i: &mut Injection<'_>) -> Result<()> {
    let (old, name) = (i.handle(), format!("{}.{}", i.pod().namespace, i.pod().name));
    i.edit_block(i.block(), |block| {
        let held = block.attributes.iter_mut().find(|held| held.handle() == Some(&old.as_str().into()));
        held.expect("the pod's").handle_id = Some(name.as_str().into());
    })?;
    i.remove(Key::Handle(old.into()))?;
    i.put_handle(&name, i.block())?;
    i.expect(format!("block {}", i.block()))
}

fn handle_count_wrong(i: &mut Injection<'_>) -> Result<()> {
    let record = Handle { block: [(i.block().to_string(), 2)].into(), ..Handle::default() };
    i.put(Key::Handle(i.handle().into()), record.encode())?;
    i.expect(format!("handle {}", i.handle()))
}

fn handle_missing(i: &mut Injection<'_>) -> Result<()> {
    i.remove(Key::Handle(i.handle().into()))?;
    i.expect(format!("handle {}", i.handle()))
}

fn handle_unused(i: &mut Injection<'_>) -> Result<()> {
    let handle = lost_handle(i, 'c');
    i.put_handle(&handle, i.block())?;
    i.expect(format!("handle {handle}"))
}

/// Both sides write the same routes: the agent goes on, and BIRD has its own configuration in these labs.
fn cluster_routes_contradictory(i: &mut Injection<'_>) -> Result<()> {
    let name = format!("node.{}", i.node);
    for (kind, name) in [(Kind::FelixConfiguration, name.as_str()), (Kind::BgpConfiguration, "default")] {
        i.put_resource(kind, name, json!({"programClusterRoutes": "Enabled"}))?;
    }
    i.expect(format!("FelixConfiguration({name})"))
}

fn leak_collection_off(i: &mut Injection<'_>) -> Result<()> {
    let name = format!("config-{}", i.lot());
    let spec = json!({"controllers": {"node": {"leakGracePeriod": "0s"}}});
    i.put_resource(Kind::KubeControllersConfiguration, &name, spec)?;
    i.expect(format!("KubeControllersConfiguration({name})"))
}

/// The record that is read says nothing of it.
fn ipam_config_ignored(i: &mut Injection<'_>) -> Result<()> {
    i.put_resource(Kind::IpamConfiguration, "default", json!({"ipCooldownSeconds": 30}))?;
    i.expect("IPAMConfiguration(default)")
}

/// One block each, and of this node's nothing may be given out any more.
fn block_limit_reached(i: &mut Injection<'_>) -> Result<()> {
    let config = IpamConfig { strict_affinity: true, max_blocks_per_host: 1, ..IpamConfig::default() };
    i.put(Key::IpamConfig, config.encode())?;
    let spec = json!({"reservedCIDRs": [i.block()]});
    i.put_resource(Kind::IpReservation, &format!("kept-{}", i.lot()), spec)?;
    i.expect(format!("node {}", i.node))
}

/// A pool of one address, which a pod that is not in the books' other pools has: a tunnel.
fn pool_full(i: &mut Injection<'_>) -> Result<()> {
    let (name, cidr): (String, Cidr) =
        (format!("tiny-{}", i.lot()), format!("10.150.{}.0/32", i.lot()).parse()?);
    i.put_resource(Kind::IpPool, &name, json!({"cidr": cidr, "blockSize": 32}))?;
    give_to_tunnel(i, cidr)?;
    i.expect(format!("IPPool({name})"))
}

/// A pool for other nodes, of which the tunnel of a node has an address.
fn pool_not_for_node(i: &mut Injection<'_>) -> Result<()> {
    let cidr: Cidr = format!("10.151.{}.0/26", i.lot()).parse()?;
    let spec = json!({"cidr": cidr, "blockSize": 26, "nodeSelector": "rack == 'another'"});
    i.put_resource(Kind::IpPool, &format!("rack-{}", i.lot()), spec)?;
    let node = give_to_tunnel(i, cidr)?;
    i.expect(format!("node {node}"))
}

/// The last service is gone.
fn service_block_empty(i: &mut Injection<'_>) -> Result<()> {
    let cidr: Cidr = format!("10.244.{}.192/26", 200 + i.lot()).parse()?;
    claim(i, cidr, &AffinityOwner::Virtual("load-balancer".to_owned()))?;
    i.expect(format!("block {cidr}"))
}

/// A block of nobody, of which the tunnel of a node that is somewhere else has the first address.
fn give_to_tunnel(i: &Injection<'_>, cidr: Cidr) -> Result<String> {
    let node = format!("extra-{}", i.lot());
    let tunnel = Tunnel::Vxlan.owner(&node);
    let mut block = Block::new(cidr, None, 1);
    ipam::take(&mut block, &tunnel, 1, &Reservations::default());
    i.put(Key::Block(cidr), block.encode())?;
    i.put_handle(tunnel.handle.as_str(), cidr)?;
    let bgp = json!({"ipv4Address": format!("172.30.0.{}/24", 100 + i.lot())});
    i.put_node(&node, json!({"bgp": bgp, "ipv4VXLANTunnelAddr": cidr.network()}))?;
    Ok(node)
}

fn pool_overlap(i: &mut Injection<'_>) -> Result<()> {
    let name = format!("inner-{}", i.lot());
    i.put_resource(Kind::IpPool, &name, json!({"cidr": format!("10.244.{}.0/24", 200 + i.lot())}))?;
    i.expect(format!("IPPool({name})"))
}

fn record_unreadable(i: &mut Injection<'_>) -> Result<()> {
    let handle = lost_handle(i, 'd');
    i.put(Key::Handle(handle.clone().into()), "[")?;
    i.expect(format!("handle {handle}"))
}

fn tombstone(i: &mut Injection<'_>) -> Result<()> {
    let handle = lost_handle(i, 'e');
    i.put(Key::Handle(handle.clone().into()), Handle { deleted: true, ..Handle::default() }.encode())?;
    i.expect(format!("handle {handle}"))
}

/// The tunnel of a node that is somewhere else has a pod's address.
fn tunnel_address_shared(i: &mut Injection<'_>) -> Result<()> {
    let bgp = json!({"ipv4Address": format!("172.30.0.{}/24", 100 + i.lot())});
    let spec = json!({"bgp": bgp, "ipv4VXLANTunnelAddr": i.address()});
    i.put_node(&format!("extra-{}", i.lot()), spec)?;
    i.expect(i.address())
}
