//! Books: addresses of a pool that is not for the node they are on.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ::ipam::{NODE_ATTRIBUTE, Pool};
use model::ipam::Block;
use model::{Key, Kind, NodeName, Resource};
use serde_json::Value;

use super::{block_of, exhibit};
use crate::checks::words::{ALIKE_MAX, counted, listed};
use crate::{Case, Check, FindingCode, Look, Need};
use evidence::{Origin, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Addresses come from a pool that does not select their node",
    explanation: "A node has addresses from a pool whose nodeSelector does not select the node. They work, \
                  but where pools are tied to racks or zones, the network outside may route them elsewhere. \
                  Calico ignores the selector when a pod requests a specific address, and pods keep their \
                  addresses when the selector or the node's labels change.",
    remedy: "recreate these pods so that they get addresses from a pool that selects their node; or correct \
             the pool's nodeSelector or the node's labels",
    needs: &[
        &[Need::Ipam, Need::Record(Kind::IpPool), Need::Record(Kind::Node)],
        &[Need::Ipam, Need::Record(Kind::IpPool), Need::KubeNodes],
    ],
    ..Check::info(FindingCode::PoolNotForNode, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let pools = case.pools();
    if pools.iter().all(|(pool, _)| pool.selects_every_node()) {
        return;
    }
    let mut strangers: BTreeMap<(usize, NodeName), Vec<IpAddr>> = BTreeMap::new();
    for (cidr, block) in case.live_blocks() {
        let around = pools.iter().enumerate().filter(|(_, (pool, _))| pool.cidr.contains_cidr(&cidr));
        // Pools that overlap are another finding; the closest is meant.
        let Some((index, (pool, _))) = around.max_by_key(|(_, (pool, _))| pool.cidr.prefix_len()) else {
            continue;
        };
        if pool.selects_every_node() {
            continue;
        }
        for (node, address) in not_chosen(case, pool, block) {
            strangers.entry((index, node)).or_default().push(address);
        }
    }
    for ((index, node), addresses) in strangers {
        tell(case, look, pools[index].1, &node, &addresses);
    }
}

/// What of a block is on nodes that its pool does not choose. Of a node without a record nobody knows the labels.
fn not_chosen(case: &Case<'_>, pool: &Pool, block: &Block) -> impl Iterator<Item = (NodeName, IpAddr)> {
    (0..block.allocations.len()).filter_map(move |ordinal| {
        let node = NodeName::from(block.attribute(ordinal)?.secondary.get(NODE_ATTRIBUTE)?);
        let (labels, _) = labels(case, &node)?;
        (!pool.selects_node(labels)).then_some((node, block.address(ordinal)?))
    })
}

fn tell(
    case: &Case<'_>,
    look: &mut Look<'_>,
    pool: &Sighted<Resource>,
    node: &NodeName,
    addresses: &[IpAddr],
) {
    let count = counted(addresses.len(), "address");
    let key = pool.seen.key();
    let summary =
        format!("node {node} has {count} from {key}, which does not select it: {}", listed(addresses));
    let finding = look.found(node, summary);
    finding.known_by(key.to_string());
    let selector = pool.seen.spec("nodeSelector").and_then(Value::as_str).unwrap_or_default();
    finding.seen(pool.exhibit(format!("nodeSelector: {selector}")));
    if let Some((labels, origin)) = labels(case, node) {
        finding.seen(origin.exhibit(format!("labels: {}", in_words(labels))));
    }
    for address in addresses.iter().take(ALIKE_MAX) {
        if let Some(cidr) = block_of(case, *address) {
            finding.seen(exhibit(case, Key::Block(cidr), format!("{address} is on node {node}")));
        }
    }
}

type Labels = BTreeMap<String, String>;

/// A node's labels as allocation knows them: of its record, or of Kubernetes where that is the store.
fn labels<'e>(case: &Case<'e>, node: &NodeName) -> Option<(&'e Labels, &'e Origin)> {
    let view = case.node_view(node)?;
    let record = view.record.map(|record| (&record.seen.metadata.labels, &record.origin));
    record.or_else(|| {
        view.kube
            .iter()
            .find(|kube| !kube.seen.labels.is_empty())
            .map(|kube| (&kube.seen.labels, &kube.origin))
    })
}

fn in_words(labels: &Labels) -> String {
    let all: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::Evidence;
    use evidence::sample::{record, small};

    /// The pool around everything is for one rack, and the first node is in another.
    fn racks() -> Evidence {
        let mut evidence = small();
        let rack = json!({"cidr": "10.0.0.0/14", "blockSize": 26, "nodeSelector": "rack == 'a'"});
        evidence.records.add(record(Kind::IpPool, "rack-a", rack));
        for node in evidence.records.all_mut(Kind::Node) {
            let rack = if node.seen.metadata.name == "worker-0000" { "b" } else { "a" };
            node.seen.metadata.labels.insert("rack".to_owned(), rack.to_owned());
        }
        evidence
    }

    #[test]
    fn fires_for_addresses_of_another_racks_pool() {
        let evidence = racks();
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "node worker-0000 has 4 addresses from IPPool(rack-a), which does not select it: 10.0.0.0, \
             10.0.0.1, 10.0.0.2, 10.0.0.3"
        );
    }

    #[test]
    fn stays_silent_where_the_selector_chooses_or_a_closer_pool_is_for_all() {
        silent(&CHECK, &small());
        let mut evidence = racks();
        for node in evidence.records.all_mut(Kind::Node) {
            node.seen.metadata.labels.insert("rack".to_owned(), "a".to_owned());
        }
        silent(&CHECK, &evidence);
        let mut evidence = racks();
        let closer = json!({"cidr": "10.0.0.0/16", "blockSize": 26});
        evidence.records.add(record(Kind::IpPool, "closer", closer));
        silent(&CHECK, &evidence);
    }

    #[test]
    fn goes_by_kubernetes_where_there_is_no_record_and_by_nothing_where_nobody_knows_labels() {
        let mut evidence = racks();
        evidence.records.all_mut(Kind::Node).retain(|node| node.seen.metadata.name != "worker-0000");
        evidence.kube_nodes.as_mut().unwrap()[0].seen.labels.clear();
        silent(&CHECK, &evidence);
        let labels = &mut evidence.kube_nodes.as_mut().unwrap()[0].seen.labels;
        labels.insert("rack".to_owned(), "c".to_owned());
        assert!(only(&CHECK, &evidence).evidence.iter().any(|exhibit| exhibit.text == "labels: rack=c"));
    }
}
