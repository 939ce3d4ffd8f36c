//! No orphans: blocks and affinities of nodes that are gone.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::{AffinityOwner, Cidr, Key, NodeName};

use super::exhibit;
use crate::checks::words::{counted, listed};
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::IpamEvidence;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Blocks belong to a node that no longer exists",
    explanation: "Blocks or affinities refer to a node that has no Node record. Other nodes cannot claim \
                  these blocks, and routes to them lead nowhere. A new node with the same name would use \
                  addresses that may have been allocated to other pods since then.",
    remedy: "if the node will not come back: plumb repair node NAME --apply. If its record was deleted by \
             mistake while the node still runs, restart the node's agent first so that it writes the record \
             again",
    needs: &[&[Need::Ipam, Need::KubeNodes], &[Need::Ipam, Need::Record(model::Kind::Node)]],
    ..Check::warning(FindingCode::AffinityOfGoneNode, look)
};

#[derive(Default)]
struct Left {
    blocks: Vec<Cidr>,
    affinities: Vec<(AffinityOwner, Cidr)>,
}

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    if !case.books_view().is_some_and(|view| view.knows_nodes) {
        return;
    }
    for (node, left) in left_behind(case, ipam) {
        let summary = format!("node {node} no longer exists but still has {}", left.words());
        let finding = look.found(&node, summary);
        finding.known_by("left behind");
        for (owner, block) in &left.affinities {
            let subject = Subject::Affinity { owner: owner.clone(), block: *block };
            finding
                .explains(FindingCode::AffinityContradicted, subject.clone())
                .explains(FindingCode::AffinityUnfinished, subject);
            finding.seen(exhibit(case, Key::Affinity { owner: owner.clone(), block: *block }, "affinity"));
        }
        for block in &left.blocks {
            finding.seen(exhibit(case, Key::Block(*block), format!("block {block} belongs to node {node}")));
            finding.explains(FindingCode::AffinityMissing, *block);
            for address in allocated(ipam, block) {
                finding.explains(FindingCode::AddressLeaked, address);
            }
        }
        for endpoint in case.endpoints_on(&node) {
            finding.explains(FindingCode::EndpointWithoutPod, &endpoint.seen);
        }
    }
}

impl Left {
    fn words(&self) -> String {
        let mut what = Vec::new();
        if !self.blocks.is_empty() {
            what.push(format!("{} ({})", counted(self.blocks.len(), "block"), listed(&self.blocks)));
        }
        let bare = self.affinities.iter().filter(|(_, block)| !self.blocks.contains(block)).count();
        if bare > 0 {
            what.push(counted(bare, "affinity record"));
        }
        what.join(" and ")
    }
}

fn allocated(ipam: &IpamEvidence, block: &Cidr) -> Vec<IpAddr> {
    let block = ipam.books.blocks.get(block).map(|stored| &stored.value);
    let taken = |block: &model::ipam::Block, at: usize| block.allocations[at].and(block.address(at));
    block.map_or_else(Vec::new, |block| {
        (0..block.allocations.len()).filter_map(|at| taken(block, at)).collect()
    })
}

fn left_behind(case: &Case<'_>, ipam: &IpamEvidence) -> BTreeMap<NodeName, Left> {
    let mut left: BTreeMap<NodeName, Left> = BTreeMap::new();
    // A machine that answers under this name is not gone: that its record is has a code of its own.
    let lives = |node: &NodeName| case.node(node).is_some_and(|node| node.setup.node_name.is_some());
    let is_gone = |node: &NodeName| case.node_view(node).is_none() && !lives(node);
    for (cidr, block) in case.live_blocks() {
        if let Some(node) = block.owner().and_then(|owner| owner.node()).filter(is_gone) {
            left.entry(node).or_default().blocks.push(cidr);
        }
    }
    for ((owner, cidr), _) in ipam.books.affinities.iter().filter(|(_, stored)| !stored.value.deleted) {
        if let Some(node) = owner.node().filter(is_gone) {
            left.entry(node).or_default().affinities.push((owner.clone(), *cidr));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_once_for_a_node_that_is_gone() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.records = Default::default();
        silent(&CHECK, &evidence);
        evidence.kube_nodes.as_mut().unwrap().remove(1);
        silent(&CHECK, &evidence);
        evidence.nodes.remove(&"worker-0001".into());
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "node worker-0001 no longer exists but still has one block \
                                     (10.0.0.64/26)"
        );
        assert_eq!(finding.evidence.len(), 2);
    }

    #[test]
    fn is_silent_where_not_all_nodes_are_known() {
        let mut evidence = small();
        evidence.records = Default::default();
        evidence.kube_nodes.as_mut().unwrap().remove(1);
        evidence.nodes.remove(&"worker-0001".into());
        evidence.partial.kube_nodes = true;
        silent(&CHECK, &evidence);
    }
}
