//! Which cables there are, and who is plugged into which.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{Card, Network, NodeDescription};

/// How the nodes of a lab are joined. Of two networks, nodes are by turns on the one and on the other, and the router
/// knows nothing of pods. From the network of the second NICs nothing leads anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// All nodes on one network
    Shared,
    /// Two networks with a router between them
    Subnets,
    /// All nodes on one network, each with a second NIC on another
    TwoCards,
}

/// The fabric's own host part on each network.
const FABRIC_HOST: u8 = 254;
/// What the second card of [`Topology::TwoCards`] is plugged into.
const SECOND: u8 = 9;

impl Topology {
    /// The fabric forwards between its networks.
    pub(super) fn has_router(self) -> bool {
        self == Topology::Subnets
    }

    pub(super) fn networks(self, ipv6: bool) -> Vec<Network> {
        let network = |(name, number): (&str, u8)| Network {
            name: name.to_owned(),
            fabric_addresses: addresses(number, FABRIC_HOST, ipv6),
        };
        let all: &[(&str, u8)] = match self {
            Topology::Shared => &[("fabric", 0)],
            Topology::Subnets => &[("fabric", 0), ("beyond", 1)],
            Topology::TwoCards => &[("fabric", 0), ("second", SECOND)],
        };
        all.iter().copied().map(network).collect()
    }

    /// The node with this number, from 1.
    pub(super) fn node(self, index: usize, ipv6: bool) -> NodeDescription {
        let host = u8::try_from(index).unwrap_or(u8::MAX);
        let card = |device: &str, network: &str, number: u8| Card {
            device: device.to_owned(),
            network: network.to_owned(),
            addresses: addresses(number, host, ipv6),
        };
        let cards = match self {
            Topology::Shared => vec![card("eth0", "fabric", 0)],
            Topology::Subnets if index.is_multiple_of(2) => vec![card("eth0", "beyond", 1)],
            Topology::Subnets => vec![card("eth0", "fabric", 0)],
            Topology::TwoCards => vec![card("eth0", "fabric", 0), card("eth1", "second", SECOND)],
        };
        NodeDescription { name: format!("node{index}"), cards }
    }
}

fn addresses(network: u8, host: u8, ipv6: bool) -> Vec<(IpAddr, u8)> {
    let mut addresses = vec![(IpAddr::from(Ipv4Addr::new(172, 30, network, host)), 24)];
    if ipv6 {
        let address = Ipv6Addr::new(0xfd30, 0, 0, u16::from(network), 0, 0, 0, u16::from(host));
        addresses.push((address.into(), 64));
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stand_where_the_topology_says() {
        let first = |topology: Topology, index| topology.node(index, false).address().unwrap().to_string();
        assert_eq!(first(Topology::Shared, 2), "172.30.0.2");
        assert_eq!(
            (first(Topology::Subnets, 1), first(Topology::Subnets, 2)),
            ("172.30.0.1".into(), "172.30.1.2".into())
        );
        assert_eq!(Topology::TwoCards.node(3, true).cards.len(), 2);
        assert_eq!(first(Topology::TwoCards, 3), "172.30.0.3");
        for topology in [Topology::Shared, Topology::Subnets, Topology::TwoCards] {
            let networks = topology.networks(true);
            let known = |card: &Card| networks.iter().any(|network| network.name == card.network);
            assert!(topology.node(1, true).cards.iter().chain(&topology.node(2, true).cards).all(known));
        }
    }
}
