//! No orphans: blocks and affinities of nodes that are gone.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::{AffinityOwner, Cidr, Key};

use super::exhibit;
use crate::checks::words::{counted, endpoint_subject, listed};
use crate::evidence::IpamEvidence;
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "affinity-of-gone-node",
    severity: Severity::Warning,
    title: "Blocks that belong to a node that is gone",
    explanation: "Blocks or affinities name a node of which there is no record any more. Its blocks are \
                  lost to the others, routes for them lead nowhere, and if a node of that name comes back \
                  it takes up addresses that somebody else may have by then.",
    remedy: "if the node will not come back: plumb repair node NAME. If it was deleted by mistake while it \
             runs, make its record anew first",
    needs: &[&[Need::Ipam, Need::KubeNodes], &[Need::Ipam, Need::Record(model::Kind::Node)]],
    settles: Settles::InTwoLooks,
    look,
};

#[derive(Default)]
struct Left {
    blocks: Vec<Cidr>,
    affinities: Vec<Cidr>,
}

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    if !case.books_view().is_some_and(|view| view.knows_nodes) {
        return;
    }
    for (node, left) in left_behind(case, ipam) {
        let summary = format!("node {node} is gone and still has {}", left.words());
        let finding = look.found(Subject::node(&node), summary);
        finding.known_by("left behind");
        let owner = AffinityOwner::Host(node.clone());
        for block in &left.affinities {
            let subject = Subject::Affinity { owner: owner.clone(), block: *block };
            finding
                .explains("affinity-contradicted", subject.clone())
                .explains("affinity-unfinished", subject);
            finding.seen(exhibit(case, Key::Affinity { owner: owner.clone(), block: *block }, "affinity"));
        }
        for block in &left.blocks {
            finding.seen(exhibit(case, Key::Block(*block), format!("block {block} belongs to node {node}")));
            finding.explains("affinity-missing", Subject::Block(*block));
            for address in allocated(ipam, block) {
                finding.explains("address-leaked", address);
            }
        }
        for endpoint in case.endpoints_on(&node) {
            finding.explains("endpoint-without-pod", endpoint_subject(&endpoint.seen));
        }
    }
}

impl Left {
    fn words(&self) -> String {
        let mut what = Vec::new();
        if !self.blocks.is_empty() {
            what.push(format!("{} ({})", counted(self.blocks.len(), "block"), listed(&self.blocks)));
        }
        let bare = self.affinities.iter().filter(|block| !self.blocks.contains(block)).count();
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

fn left_behind(case: &Case<'_>, ipam: &IpamEvidence) -> BTreeMap<String, Left> {
    let mut left: BTreeMap<String, Left> = BTreeMap::new();
    // A machine that answers under this name is not gone: that its record is has a code of its own.
    let lives = |node: &str| case.node(node).is_some_and(|node| node.setup.node_name.is_some());
    let is_gone = |node: &str| case.node_view(node).is_none() && !lives(node);
    for (cidr, stored) in ipam.books.blocks.iter().filter(|(_, stored)| !stored.value.deleted) {
        if let Some(AffinityOwner::Host(node)) = stored.value.owner()
            && is_gone(&node)
        {
            left.entry(node).or_default().blocks.push(*cidr);
        }
    }
    for ((owner, cidr), _) in ipam.books.affinities.iter().filter(|(_, stored)| !stored.value.deleted) {
        if let AffinityOwner::Host(node) = owner
            && is_gone(node)
        {
            left.entry(node.clone()).or_default().affinities.push(*cidr);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_once_for_a_node_that_is_gone() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.records = Default::default();
        silent(&CHECK, &evidence);
        evidence.kube_nodes.as_mut().unwrap().remove(1);
        silent(&CHECK, &evidence);
        evidence.nodes.remove("worker-0001");
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "node worker-0001 is gone and still has one block (10.0.0.64/26)");
        assert_eq!(finding.evidence.len(), 2);
    }

    #[test]
    fn is_silent_where_not_all_nodes_are_known() {
        let mut evidence = small();
        evidence.records = Default::default();
        evidence.kube_nodes.as_mut().unwrap().remove(1);
        evidence.nodes.remove("worker-0001");
        evidence.partial.kube_nodes = true;
        silent(&CHECK, &evidence);
    }
}
