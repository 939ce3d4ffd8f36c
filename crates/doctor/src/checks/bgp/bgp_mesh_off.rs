//! Reachable: nodes that BGP connects with nobody.

use model::{Kind, NodeName};
use serde_json::Value;

use crate::checks::words::{counted, listed};
use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Mesh is off, and nodes have no BGP peer",
    explanation: "nodeToNodeMeshEnabled is false, so a node has only the sessions that BGPPeer records give it, and \
                  some nodes have none. They learn no routes and announce none: their pods reach nobody on other \
                  nodes. The mesh is often switched off before the peers or route reflectors are set up.",
    remedy: "create the BGPPeer records for these nodes, or set nodeToNodeMeshEnabled: true in BGPConfiguration \
             default until they exist",
    needs: &[&[Need::Record(Kind::BgpConfiguration), Need::Record(Kind::BgpPeer)]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::BgpMeshOff, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let records = &case.evidence.records;
    let Some(bgp) = records.find(Kind::BgpConfiguration, "default") else { return };
    if bgp.seen.spec("nodeToNodeMeshEnabled") != Some(&Value::Bool(false)) || !needs_bgp(case) {
        return;
    }
    let peers = records.all(Kind::BgpPeer);
    let text = |peer: &model::Resource, field: &str| {
        peer.spec(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    // One that names no node is every node's; whom a selector means is not asked here.
    let is_for = |node: &NodeName| {
        peers.iter().any(|peer| {
            let named = text(&peer.seen, "node");
            named.is_empty() || *node == NodeName::from(named.as_str())
        })
    };
    let nodes: Vec<&NodeName> = case.node_views().keys().collect();
    let lonely: Vec<&&NodeName> = nodes.iter().filter(|node| !is_for(node)).collect();
    if nodes.len() < 2 || lonely.is_empty() {
        return;
    }
    let summary = format!(
        "the mesh is off, and {} of {} have no BGP peer: {}",
        lonely.len(),
        counted(nodes.len(), "node"),
        listed(&lonely)
    );
    let finding = look.found(bgp.seen.key(), summary);
    finding.known_by("off").seen(bgp.exhibit("nodeToNodeMeshEnabled: false"));
    for node in lonely {
        finding.explains(FindingCode::CalicoNodeNotReady, *node);
    }
    for (_, destination, owner) in crate::checks::reach::node_blocks(case) {
        for node in nodes.iter().filter(|node| ***node != owner) {
            finding.explains(FindingCode::BlockRouteMissing, crate::Subject::route(*node, destination));
        }
    }
}

/// Whether routes between nodes come from BGP: not if every pool goes through VXLAN, or Felix writes them.
fn needs_bgp(case: &Case<'_>) -> bool {
    let felix = case.evidence.records.find(Kind::FelixConfiguration, "default");
    let is_felix = felix.is_some_and(|felix| {
        felix.seen.spec("programClusterRoutes").and_then(Value::as_str) == Some("Enabled")
    });
    let mut pools = case.pools().iter().filter(|(pool, _)| pool.is_enabled());
    !is_felix && pools.any(|(pool, _)| !pool.has_vxlan())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::Evidence;
    use evidence::sample::{record, small, through};

    fn off(mut evidence: Evidence, peers: &[Value]) -> Evidence {
        evidence.records.add(record(
            Kind::BgpConfiguration,
            "default",
            json!({"nodeToNodeMeshEnabled": false}),
        ));
        for (number, peer) in peers.iter().enumerate() {
            evidence.records.add(record(Kind::BgpPeer, &format!("peer-{number}"), peer.clone()));
        }
        evidence
    }

    #[test]
    fn fires_for_nodes_that_no_peer_is_for() {
        silent(&CHECK, &small());
        let nodes = small().kube_nodes.unwrap().len();
        let finding = only(&CHECK, &off(small(), &[]));
        assert!(
            finding.summary.starts_with(&format!("the mesh is off, and {nodes} of {nodes} nodes")),
            "{}",
            finding.summary
        );
        let named = json!({"node": "worker-0000", "peerIP": "172.16.9.9", "asNumber": 65000});
        let finding = only(&CHECK, &off(small(), &[named]));
        assert!(!finding.summary.contains("worker-0000"), "{}", finding.summary);
    }

    #[test]
    fn stays_silent_where_all_have_a_peer_or_need_none() {
        let global = json!({"peerIP": "172.16.9.9", "asNumber": 65000});
        silent(&CHECK, &off(small(), &[global]));
        let reflected = json!({"nodeSelector": "all()", "peerSelector": "route-reflector == 'true'"});
        silent(&CHECK, &off(small(), &[reflected]));
        let sample =
            evidence::sample::Sample { nodes: 3, blocks_per_node: 1, pods_per_node: 2, has_kernels: true };
        silent(&CHECK, &off(through(sample, "vxlanMode", "Always"), &[]));
    }
}
