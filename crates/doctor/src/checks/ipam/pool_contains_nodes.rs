//! Reachable: a pool that holds the addresses of the nodes themselves.

use std::net::IpAddr;

use model::{Cidr, Kind, NodeName};

use crate::checks::networks::Networks;
use crate::checks::words::{counted, listed};
use crate::{Case, Certainty, Check, FindingCode, Look, Need, NodeView, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pool contains the addresses of nodes",
    explanation: "The network of a pool for pods contains addresses of nodes. Calico takes traffic to such a node for \
                  traffic to a pod: it is not NATed, a block may be routed over the nodes' own network, and a pod may \
                  get the address of a machine. The default pool 192.168.0.0/16 on a network such as 192.168.1.0/24 \
                  is the usual case.",
    remedy: "create a pool that overlaps neither the nodes' network nor the services, disable this one, recreate the \
             pods, then delete it",
    needs: &[
        &[Need::Record(Kind::IpPool), Need::Record(Kind::Node)],
        &[Need::Record(Kind::IpPool), Need::KubeNodes],
    ],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::PoolContainsNodes, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let held: Vec<(&NodeName, IpAddr)> = case
        .node_views()
        .values()
        .flat_map(|view| addresses(view).into_iter().map(|address| (&view.name, address)))
        .collect();
    let held_by_network = Networks::new(held.iter().map(|(_, address)| Cidr::single(*address)));
    let blocks: Vec<Cidr> = case.live_blocks().map(|(block, _)| block).collect();
    let blocks_by_network = Networks::new(blocks.iter().copied());
    for (pool, record) in case.pools().iter().filter(|(pool, _)| pool.is_enabled()) {
        let mut inside: Vec<&(&NodeName, IpAddr)> =
            held_by_network.within(&pool.cidr).into_iter().filter_map(|place| held.get(place)).collect();
        if inside.is_empty() {
            continue;
        }
        // Of each node the first address.
        inside.dedup_by_key(|(node, _)| *node);
        let inside: Vec<String> =
            inside.iter().map(|(node, address)| format!("{node} ({address})")).collect();
        let summary = format!(
            "pool {} ({}) contains the addresses of {}: {}",
            pool.name,
            pool.cidr,
            counted(inside.len(), "node"),
            listed(&inside)
        );
        let finding = look.found(record.seen.key(), summary);
        finding.known_by("contains").seen(record.exhibit(format!("cidr: {}", pool.cidr)));
        for block in blocks_by_network.within(&pool.cidr).into_iter().filter_map(|place| blocks.get(place)) {
            finding.explains(FindingCode::BlockHidesAddress, Subject::Block(*block));
        }
    }
}

fn addresses(view: &NodeView<'_>) -> Vec<IpAddr> {
    view.addresses.iter().map(|recorded| recorded.address()).chain(view.internal_ips()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    /// A node's records may name several of its addresses.
    #[test]
    fn each_node_inside_is_named_once() {
        let mut evidence = small();
        let bgp = json!({"ipv4Address": "10.200.0.9/24", "ipv6Address": "fd00::9/64"});
        evidence.records.add(record(Kind::Node, "n9", json!({"bgp": bgp})));
        evidence.kube_nodes.as_mut().unwrap()[0].seen.internal_ips =
            vec!["10.200.0.2".parse().unwrap(), "10.200.0.1".parse().unwrap()];
        let spec = json!({"cidr": "10.200.0.0/24", "blockSize": 26});
        evidence.records.add(record(Kind::IpPool, "lan", spec));
        let summary = only(&CHECK, &evidence).summary;
        assert!(summary.contains("2 nodes: n9 (10.200.0.9), worker-0000 (10.200.0.2)"), "{summary}");
    }

    #[test]
    fn fires_for_an_enabled_pool_around_a_node() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let spec = json!({"cidr": "172.16.0.0/24", "blockSize": 26, "disabled": true});
        evidence.records.add(record(Kind::IpPool, "lan", spec.clone()));
        silent(&CHECK, &evidence);
        evidence
            .records
            .all_mut(Kind::IpPool)
            .last_mut()
            .unwrap()
            .seen
            .spec_mut()
            .insert("disabled".to_owned(), json!(false));
        let finding = only(&CHECK, &evidence);
        assert!(
            finding.summary.starts_with("pool lan (172.16.0.0/24) contains the addresses of "),
            "{}",
            finding.summary
        );
        assert!(finding.summary.contains("worker-0000 (172.16.0.1)"), "{}", finding.summary);
    }
}
