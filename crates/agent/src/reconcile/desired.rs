//! The desired state of the kernel, from the journal.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use model::Sandbox;
use plan::{NodeDesired, NodeFacts, PodWiring, Watched};
use tracing::warn;

use crate::journal::Entry;

#[derive(Debug, Default)]
pub(super) struct Desired {
    /// Shared with observations in progress.
    pub(super) node: Arc<NodeDesired>,
    pub(super) watched: Watched,
    namespaces: BTreeMap<Sandbox, PathBuf>,
}

impl Desired {
    /// Replaces all entries. Keeps what was learned about those that stay, and returns the new ones.
    pub(super) fn update(&mut self, entries: Vec<Entry>, facts: &NodeFacts) -> Vec<PodWiring> {
        self.namespaces.clear();
        let mut node = NodeDesired::default();
        for entry in entries {
            let sandbox = entry.attachment.sandbox.clone();
            match PodWiring::new(&entry.attachment, facts) {
                Ok(wiring) => {
                    self.namespaces.insert(sandbox, entry.netns);
                    node.insert(wiring);
                }
                Err(error) => warn!(%sandbox, %error, "cannot reconcile a journal entry"),
            }
        }
        for gone in self.node.wirings().filter(|before| node.get(&before.sandbox) != Some(before)) {
            self.watched.remove(gone);
        }
        let is_new = |wiring: &&PodWiring| self.node.get(&wiring.sandbox) != Some(wiring);
        let new: Vec<PodWiring> = node.wirings().filter(is_new).cloned().collect();
        new.iter().for_each(|wiring| self.watched.insert(wiring));
        self.node = Arc::new(node);
        new
    }

    /// The namespace of the pod's end, if the journal has it.
    pub(super) fn netns(&self, sandbox: &Sandbox) -> Option<PathBuf> {
        self.namespaces.get(sandbox).filter(|path| !path.as_os_str().is_empty()).cloned()
    }

    /// Every pod whose namespace the journal has.
    pub(super) fn pods(&self) -> Vec<(PathBuf, PodWiring)> {
        let pods =
            self.node.wirings().filter_map(|wiring| Some((self.netns(&wiring.sandbox)?, wiring.clone())));
        pods.collect()
    }
}

#[cfg(test)]
mod tests {
    use plan::{Affected, Notice};

    use super::*;
    use crate::journal::example;

    #[test]
    fn an_entry_that_stays_keeps_what_was_learned() {
        let facts = NodeFacts { rp_filter: 0, has_ipv6: true };
        let (first, second) = (example("c1"), example("c2"));
        let mut desired = Desired::default();
        desired.update(vec![first.clone(), second.clone()], &facts);
        desired.watched.learn(7, &first.attachment.sandbox);
        desired.watched.learn(8, &second.attachment.sandbox);
        desired.update(vec![first.clone()], &facts);
        let setting = |index| Notice::Setting { index };
        assert_eq!(desired.watched.affected(&setting(7)), Affected::Pod(first.attachment.sandbox.clone()));
        assert_eq!(desired.watched.affected(&setting(8)), Affected::Nobody);
        assert_eq!(desired.netns(&first.attachment.sandbox), Some(first.netns));
        assert_eq!(desired.pods().len(), 1);
    }
}
