//! When a dump of the API was taken, as far as it tells: not before the last thing that happened in it.

use evidence::{Evidence, KubeNode};
use jiff::Timestamp;

/// Sets the moment from the latest heartbeat, event or creation among objects of the API, so that what was only just made or changed
/// counts as young. It is never later than the real moment, so nothing is called older than it is.
pub(crate) fn estimate(mut evidence: Evidence) -> Evidence {
    if evidence.taken_at.is_none() {
        evidence.taken_at = latest(&evidence);
    }
    evidence
}

fn latest(evidence: &Evidence) -> Option<Timestamp> {
    let pods = evidence.pods.iter().flatten().filter_map(|pod| pod.seen.created_at);
    let events = evidence.events.iter().flatten().filter_map(|event| event.seen.last_at);
    let nodes = evidence.kube_nodes.iter().flatten().flat_map(|node| of_node(&node.seen));
    pods.chain(events).chain(nodes).max()
}

fn of_node(node: &KubeNode) -> impl Iterator<Item = Timestamp> {
    let conditions =
        node.conditions.iter().flat_map(|condition| [condition.heartbeat_at, condition.changed_at]);
    conditions.chain([node.lease_renewed_at, node.created_at]).flatten()
}
