//! Reachable: a block of a pool that holds a node's or a service's address.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{Cidr, Key, Kind, NodeName};

use super::exhibit;
use crate::checks::networks::Networks;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Block contains a node's address or a service range",
    explanation: "A block of a pool contains the address of a node or a range of service addresses. A route \
                  to the block would send traffic for that node or service to the block's owner, so \
                  Plumbline's agents do not install one. Pods in the block cannot be reached from other \
                  nodes. The cause is a pool that overlaps the network of the nodes or of the services.",
    remedy: "disable the pool, create one that overlaps neither nodes nor services, recreate the pods, then \
             delete the old pool",
    needs: &[&[Need::Ipam, Need::Record(Kind::IpPool), Need::Record(Kind::Node)]],
    ..Check::error(FindingCode::BlockHidesAddress, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let pools = super::pools(case);
    let (by_network, hideable) = (Networks::new(pools.iter().copied()), Hideable::of(case));
    for (cidr, _) in case.live_blocks() {
        let Some(pool) = by_network.first_around(&cidr).and_then(|place| pools.get(place)) else { continue };
        let hidden = hideable.by(&cidr, Some(pool));
        let Some(first) = hidden.first() else { continue };
        let finding = look.found(cidr, format!("block {cidr} contains {first}"));
        finding.known_by("hides").seen(exhibit(case, Key::Block(cidr), format!("block {cidr}")));
        for other in hidden.iter().skip(1) {
            finding.because(format!("it also contains {other}"));
        }
    }
}

/// What a route to a block may hide: addresses of nodes, and ranges of services. Neither they nor blocks are few.
pub(super) struct Hideable<'c> {
    nodes: Vec<(IpAddr, &'c NodeName)>,
    nodes_by_network: Networks,
    services: Vec<Cidr>,
    services_by_network: Networks,
}

impl<'c> Hideable<'c> {
    pub(super) fn of(case: &'c Case<'_>) -> Hideable<'c> {
        let views = case.node_views().values();
        let nodes: Vec<(IpAddr, &NodeName)> = views
            .flat_map(|view| view.addresses.iter().map(|recorded| (recorded.address(), &view.name)))
            .collect();
        let configuration = case.evidence.records.find(Kind::BgpConfiguration, "default");
        let services = plan::bgp::service_networks(configuration.map(|record| &record.seen));
        let services = services.into_iter().filter_map(|range: IpNet| range.to_string().parse().ok());
        let services: Vec<Cidr> = services.collect();
        Hideable {
            nodes_by_network: Networks::new(nodes.iter().map(|(address, _)| Cidr::single(*address))),
            services_by_network: Networks::new(services.iter().copied()),
            nodes,
            services,
        }
    }

    /// Whose addresses a route to a block would hide, in words. A range of services around the whole pool is meant so.
    pub(super) fn by(&self, block: &Cidr, pool: Option<&Cidr>) -> Vec<String> {
        let nodes = self.nodes_by_network.within(block).into_iter().filter_map(|place| self.nodes.get(place));
        let nodes = nodes.map(|(address, node)| format!("{address}, the address of node {node}"));
        let around = self.services_by_network.around(block);
        let mut services = [around, self.services_by_network.within(block)].concat();
        services.sort_unstable();
        services.dedup();
        let services = services.into_iter().filter_map(|place| self.services.get(place));
        let hidden = services.filter(|range| !pool.is_some_and(|pool| range.contains_cidr(pool)));
        nodes.chain(hidden.map(|range| format!("service addresses {range}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_for_services_inside_a_block_and_not_for_a_range_around_the_pool() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let services = |range: &str| json!({"serviceClusterIPs": [{"cidr": range}]});
        evidence.records.add(record(Kind::BgpConfiguration, "default", services("10.0.0.0/8")));
        silent(&CHECK, &evidence);
        evidence.records.all_mut(Kind::BgpConfiguration).clear();
        evidence.records.add(record(Kind::BgpConfiguration, "default", services("10.0.0.8/29")));
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "block 10.0.0.0/26 contains service addresses 10.0.0.8/29");
    }

    /// Of everything that a block hides the nodes come first, by name, then the ranges, as they are configured.
    #[test]
    fn what_a_block_hides_is_named_in_order() {
        let mut evidence = small();
        let range = |cidr: &str| json!({"cidr": cidr});
        let services =
            [range("10.0.0.32/28"), range("10.0.0.0/24"), range("10.0.0.8/29"), range("10.9.0.0/16")];
        evidence.records.add(record(
            Kind::BgpConfiguration,
            "default",
            json!({"serviceClusterIPs": services}),
        ));
        for (node, address) in [("a", "10.0.0.40/24"), ("b", "10.0.0.3/24"), ("c", "10.0.0.64/24")] {
            evidence.records.add(record(Kind::Node, node, json!({"bgp": {"ipv4Address": address}})));
        }
        let options = crate::Options::default();
        let case = Case::new(&evidence, &options);
        let hidden = Hideable::of(&case).by(&"10.0.0.0/26".parse().unwrap(), None);
        assert_eq!(
            hidden,
            [
                "10.0.0.40, the address of node a",
                "10.0.0.3, the address of node b",
                "service addresses 10.0.0.32/28",
                "service addresses 10.0.0.0/24",
                "service addresses 10.0.0.8/29",
            ]
        );
    }
}
