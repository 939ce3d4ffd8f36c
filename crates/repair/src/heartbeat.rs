//! When each node last showed that it runs.

use std::collections::BTreeMap;

use doctor::Case;
use ipam::NODE_ATTRIBUTE;
use jiff::Timestamp;
use model::NodeName;

/// The latest sign of each node: a heartbeat of its kubelet, or a record that only a running node writes.
pub(crate) fn last_signs(case: &Case<'_>) -> BTreeMap<NodeName, Timestamp> {
    let mut last: BTreeMap<NodeName, Timestamp> = BTreeMap::new();
    let mut note = |node: NodeName, at: Option<Timestamp>| {
        let Some(at) = at else { return };
        let latest = last.entry(node).or_insert(at);
        *latest = at.max(*latest);
    };
    for kube in case.evidence.kube_nodes.iter().flatten().map(|kube| &kube.seen) {
        let heartbeats = kube.conditions.iter().map(|condition| condition.heartbeat_at);
        heartbeats.chain([kube.lease_renewed_at]).for_each(|at| note(kube.name.clone(), at));
    }
    for endpoint in case.all_endpoints().iter().map(|endpoint| &endpoint.seen) {
        if let Some(node) = &endpoint.node {
            note(node.clone(), endpoint.created_at);
        }
    }
    let blocks = case.evidence.ipam.iter().flat_map(|ipam| ipam.books.blocks.values());
    for block in blocks.map(|stored| &stored.value) {
        if let Some(node) = block.owner().and_then(|owner| owner.node()) {
            note(node, block.affinity_claim_time.as_deref().and_then(|text| text.parse().ok()));
        }
        for held in &block.attributes {
            if let Some(node) = held.secondary.get(NODE_ATTRIBUTE) {
                note(node.as_str().into(), ipam::allocated_at(held));
            }
        }
    }
    last
}
