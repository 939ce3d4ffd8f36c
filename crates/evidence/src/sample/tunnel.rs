//! The small sample where pods are reached through VXLAN: tunnel addresses in the records and in the books, devices, ends and routes in every
//! kernel.

use ipam::{Stored, Tunnel};
use ipnet::IpNet;
use model::ipam::{BlockAttribute, Handle};
use model::{IpVersion, Kind, Mac};
use serde_json::json;

use super::kernel::{address, route};
use super::{Sample, block_cidr, node_address, node_name};
use crate::kernel::{Forward, Link, Neighbour, NeighbourState, Vxlan};
use crate::{Evidence, NodeEvidence, Origin, Sighted};

const DEVICE: &str = "vxlan.calico";
const MTU: u32 = 1450;
/// The last address of each node's block.
const ORDINAL: usize = 63;

/// Three nodes on one network, whose pool has this field set to this mode.
pub fn tunnelled(field: &str, mode: &str) -> Evidence {
    let sample = Sample { nodes: 3, blocks_per_node: 1, pods_per_node: 4, has_kernels: true };
    through(sample, field, mode)
}

pub fn through(sample: Sample, field: &str, mode: &str) -> Evidence {
    let mut evidence = sample.evidence();
    let pool = &mut evidence.records.all_mut(Kind::IpPool)[0].seen;
    pool.spec_mut().insert(field.to_owned(), json!(mode));
    for node in 0..sample.nodes {
        give_address(&mut evidence, node);
    }
    for node in 0..sample.nodes {
        fill(evidence.node_mut(node_name(node)), sample, node, mode == "Always");
    }
    evidence
}

fn block(node: usize) -> IpNet {
    block_cidr(node).to_string().parse().expect("a network")
}

fn tunnel(node: usize) -> std::net::IpAddr {
    block(node).broadcast()
}

fn give_address(evidence: &mut Evidence, node: usize) {
    let records = evidence.records.all_mut(Kind::Node);
    let record = records.iter_mut().find(|record| record.seen.metadata.name == node_name(node));
    let spec = record.expect("every node has a record").seen.spec_mut();
    spec.insert("ipv4VXLANTunnelAddr".to_owned(), json!(tunnel(node)));
    let handle = Tunnel::Vxlan.handle(&node_name(node));
    let books = &mut evidence.ipam.as_mut().expect("books").books;
    let cidr = block_cidr(node);
    let held = &mut books.blocks.get_mut(&cidr).expect("a block").value;
    held.allocations[ORDINAL] = Some(held.attributes.len());
    held.unallocated.retain(|free| *free != ORDINAL);
    held.attributes.push(BlockAttribute {
        handle_id: Some((&handle).into()),
        secondary: [
            ("node".to_owned(), node_name(node)),
            ("type".to_owned(), Tunnel::Vxlan.type_word().to_owned()),
        ]
        .into(),
        ..BlockAttribute::default()
    });
    let counts = Handle { block: [(cidr.to_string(), 1)].into(), ..Handle::default() };
    books.handles.insert(handle, Stored::new(counts, "1"));
}

fn fill(node: &mut NodeEvidence, sample: Sample, number: usize, always: bool) {
    let name = node.name.clone();
    let from = |what: &'static str| Origin::probe(name.as_str(), what);
    let inside = node.pod_views.iter_mut().flatten().flat_map(|view| view.kernel.links.iter_mut().flatten());
    inside.for_each(|link| link.seen.mtu = Some(MTU));
    let kernel = &mut node.kernel;
    let links = kernel.links.as_mut().expect("links");
    links.iter_mut().filter(|link| link.seen.is_workload()).for_each(|link| link.seen.mtu = Some(MTU));
    let vxlan = Vxlan {
        vni: Some(4096),
        port: Some(4789),
        local: Some(node_address(number)),
        parent: Some("eth0".to_owned()),
    };
    let link = Link {
        name: DEVICE.to_owned(),
        index: Some(100),
        kind: Some("vxlan".to_owned()),
        mac: Some(Mac::of_vxlan(name.as_str(), IpVersion::V4)),
        mtu: Some(MTU),
        is_up: Some(true),
        is_running: Some(true),
        vxlan: Some(vxlan),
        ..Link::default()
    };
    links.push(Sighted::new(link, from("links")));
    let addresses = kernel.addresses.as_mut().expect("addresses");
    addresses.push(address(DEVICE, tunnel(number), 32, &from("addresses")));
    let others = || (0..sample.nodes).filter(|other| *other != number);
    for other in others() {
        let mac = Mac::of_vxlan(&node_name(other), IpVersion::V4);
        let (device, state) = (DEVICE.to_owned(), NeighbourState::Permanent);
        let end = Neighbour { address: tunnel(other), device, mac: Some(mac), state, is_proxy: false };
        kernel.neighbours.as_mut().expect("neighbours").push(Sighted::new(end, from("neighbours")));
        let forward = Forward { device: DEVICE.to_owned(), mac, node: node_address(other) };
        let forwards = kernel.forwards.get_or_insert_default();
        forwards.push(Sighted::new(forward, from("ends of tunnels")));
    }
    for other in others() {
        let routes = kernel.routes.as_mut().expect("routes");
        let found = routes.iter_mut().find(|route| route.seen.destination == block(other));
        let (via, device) = if always { (tunnel(other), DEVICE) } else { (node_address(other), "eth0") };
        let mut led = route(block(other), Some(via), Some(device), "80");
        led.is_onlink = true;
        found.expect("a route to every block").seen = led;
    }
}
