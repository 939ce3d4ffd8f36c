//! Packets that were sent to see whether they arrive, and whom to send them to. Nothing is sent from here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Case, Options};

use super::Evidence;

/// What came of an echo request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Echo {
    Answered,
    /// Nothing came back, however often it was tried.
    Silent,
    /// Somebody said that it cannot be reached.
    Unreachable {
        said_by: IpAddr,
    },
    /// The node's own kernel did not send.
    NotSent {
        problem: String,
    },
}

/// Addresses of one node that are worth a packet: its own, and those of a few of its pods.
const PODS_PER_NODE: usize = 2;
/// In one look, from each node.
pub const TARGETS_MAX: usize = 1_000;

/// Whom nodes are to ask, in an order in which each node has its turn. The number of nodes that are left out comes second.
pub fn targets(evidence: &Evidence, options: &Options) -> (Vec<IpAddr>, usize) {
    let case = Case::new(evidence, options);
    let mut by_node: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
    for (name, view) in case.node_views() {
        let addresses = by_node.entry(name).or_default();
        addresses.extend(view.addresses.iter().map(|recorded| recorded.address()));
        let settled = case.endpoints_on(name).filter(|endpoint| !case.is_endpoint_in_flux(&endpoint.seen));
        addresses.extend(settled.take(PODS_PER_NODE).flat_map(|endpoint| &endpoint.seen.addresses));
    }
    let mut chosen = Vec::new();
    let mut left_out = 0;
    for addresses in by_node.values() {
        if chosen.len() + addresses.len() > TARGETS_MAX {
            left_out += 1;
            continue;
        }
        chosen.extend(addresses);
    }
    (chosen, left_out)
}

impl std::fmt::Display for Echo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Echo::Answered => f.write_str("an answer"),
            Echo::Silent => f.write_str("no answer"),
            Echo::Unreachable { said_by } => write!(f, "{said_by} says that it cannot be reached"),
            Echo::NotSent { problem } => write!(f, "the packet was not sent ({problem})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, small};

    #[test]
    fn every_node_and_some_of_its_pods_are_asked() {
        let (chosen, left_out) = targets(&small(), &Options::default());
        assert_eq!((chosen.len(), left_out), (3 * (1 + PODS_PER_NODE), 0));
        let large =
            Sample { nodes: 600, blocks_per_node: 1, pods_per_node: 3, has_kernels: false }.evidence();
        let (chosen, left_out) = targets(&large, &Options::default());
        assert!(
            chosen.len() <= TARGETS_MAX && left_out == 600 - TARGETS_MAX / 3,
            "{} {left_out}",
            chosen.len()
        );
    }
}
