//! A cluster to decide about: node `a` is this one.

use model::{Cidr, IpVersion};
use plan::between::{
    Between, BlockView, Encapsulation, NodeView, PoolView, Presence, Uplink, Uplinks, Via, Way,
};

pub(crate) const OWN: &str = "a";

pub(crate) fn node(address: &str, tunnel: &str) -> NodeView {
    let presence =
        Presence { address: address.parse().ok(), tunnel: tunnel.parse().ok(), ..Presence::default() };
    match presence.address {
        Some(network) if IpVersion::of(network.addr()) == IpVersion::V6 => {
            NodeView { v6: presence, ..NodeView::default() }
        }
        _ => NodeView { v4: presence, ..NodeView::default() },
    }
}

pub(crate) fn pool(cidr: &str, encapsulation: Encapsulation) -> PoolView {
    let cidr: Cidr = cidr.parse().unwrap();
    let block_size = if cidr.version() == IpVersion::V4 { 26 } else { 122 };
    PoolView { cidr, encapsulation, nat_outgoing: false, is_enabled: true, is_of_services: false, block_size }
}

pub(crate) fn block(owner: &str) -> BlockView {
    BlockView { owner: Some(owner.to_owned()), ..BlockView::default() }
}

pub(crate) fn lent(owner: &str, lent: &[(&str, &str)]) -> BlockView {
    let lent = lent.iter().map(|(address, node)| (address.parse().unwrap(), (*node).to_owned()));
    BlockView { lent: lent.collect(), ..block(owner) }
}

pub(crate) fn uplinks() -> Uplinks {
    let uplink = || Uplink { device: "eth0".to_owned(), index: 2, mtu: 1500 };
    Uplinks { v4: Some(uplink()), v6: Some(uplink()), has_ipip: false }
}

/// `a` and `b` share a network, `c` is behind a router. Each has a block, the pool is the same for all.
pub(crate) fn cluster(encapsulation: Encapsulation) -> Between {
    let mut between = Between::new(OWN);
    between.set_uplinks(uplinks());
    between.set_node("a", Some(node("192.0.2.1/24", "10.0.0.0")));
    between.set_node("b", Some(node("192.0.2.2/24", "10.0.1.0")));
    between.set_node("c", Some(node("198.51.100.3/24", "10.0.2.0")));
    between.set_pool("pods", Some(pool("10.0.0.0/16", encapsulation)));
    for (index, owner) in ["a", "b", "c"].into_iter().enumerate() {
        between.set_block(cidr(&format!("10.0.{index}.0/26")), Some(block(owner)));
    }
    between.settle();
    between
}

pub(crate) fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

/// Routes in words, one per destination.
pub(crate) fn routes(between: &Between) -> Vec<String> {
    let words = between.routes().map(|route| match route.way {
        Way::Blackhole => format!("{} blackhole", route.destination),
        Way::Via { via, gateway } => {
            let device = match via {
                Via::Uplink => "uplink",
                Via::Vxlan => "vxlan",
                Via::Ipip => "ipip",
            };
            format!("{} {device} {gateway}", route.destination)
        }
    });
    words.collect()
}

/// Troubles as codes, with the node.
pub(crate) fn troubles(between: &Between) -> Vec<String> {
    between.troubles().map(|(cidr, node, trouble)| format!("{cidr} {node} {}", trouble.code())).collect()
}
