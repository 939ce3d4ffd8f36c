//! Which addresses are worth a probe packet. Nothing is sent from here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::NodeName;

use evidence::Evidence;
use evidence::probe::TARGETS_MAX;

use crate::{Case, Options};

/// Addresses of one node that are worth a packet: its own, and those of a few of its pods.
const PODS_PER_NODE: usize = 2;

/// Whom nodes are to ask, in an order in which each node has its turn. The number of nodes that are left out comes second.
pub fn targets(evidence: &Evidence, options: &Options) -> (Vec<IpAddr>, usize) {
    let case = Case::new(evidence, options);
    let mut by_node: BTreeMap<&NodeName, BTreeSet<IpAddr>> = BTreeMap::new();
    for (name, view) in case.node_views() {
        let addresses = by_node.entry(name).or_default();
        addresses.extend(view.addresses.iter().map(|recorded| recorded.address()));
        let settled = case.endpoints_on(name).filter(|endpoint| !case.is_endpoint_in_flux(&endpoint.seen));
        addresses.extend(settled.take(PODS_PER_NODE).flat_map(|endpoint| &endpoint.seen.addresses));
    }
    let mut chosen = Vec::new();
    let mut skipped = 0;
    for addresses in by_node.values() {
        if chosen.len() + addresses.len() > TARGETS_MAX {
            skipped += 1;
            continue;
        }
        chosen.extend(addresses);
    }
    (chosen, skipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evidence::sample::{Sample, small};

    #[test]
    fn every_node_and_some_of_its_pods_are_asked() {
        let (chosen, skipped) = targets(&small(), &Options::default());
        assert_eq!((chosen.len(), skipped), (3 * (1 + PODS_PER_NODE), 0));
        let large =
            Sample { nodes: 600, blocks_per_node: 1, pods_per_node: 3, has_kernels: false }.evidence();
        let (chosen, skipped) = targets(&large, &Options::default());
        assert!(
            chosen.len() <= TARGETS_MAX && skipped == 600 - TARGETS_MAX / 3,
            "{} {skipped}",
            chosen.len()
        );
    }
}
