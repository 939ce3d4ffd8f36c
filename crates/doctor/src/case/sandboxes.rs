//! Sandboxes by their ID: which node runs one, and what is inside of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::Cidr;

use super::Case;
use evidence::kernel::PodView;
use evidence::{NodeEvidence, same_id};

/// Things by a container's ID, which tools spell in full or cut short.
#[derive(Debug)]
pub(super) struct ById<'e, T>(BTreeMap<&'e str, T>);

/// What IDs that may be the same have in common at least.
const PREFIX: usize = 8;

impl<'e, T: Copy> ById<'e, T> {
    fn find(&self, id: &str) -> Option<T> {
        let Some(prefix) = id.get(..PREFIX) else { return self.0.get(id).copied() };
        let alike = self.0.range(prefix..).take_while(|(known, _)| known.starts_with(prefix));
        alike.into_iter().find(|(known, _)| same_id(known, id)).map(|(_, thing)| *thing)
    }
}

impl<'e> Case<'e> {
    /// The node whose runtime runs this sandbox, or does not say that it does not.
    pub fn runs_on(&self, container_id: &str) -> Option<&'e NodeEvidence> {
        let running = self.made.running.get_or_init(|| {
            let of_node = |node: &'e NodeEvidence| {
                let listed = node.sandboxes.iter().flatten().map(|sandbox| &sandbox.seen);
                let ready = listed.filter(|sandbox| sandbox.is_ready != Some(false));
                ready.map(move |sandbox| (sandbox.id.as_str(), node))
            };
            ById(self.all_nodes().flat_map(of_node).collect())
        });
        running.find(container_id)
    }

    /// What somebody saw who looked into this sandbox, and on which node.
    pub fn view_of(&self, container_id: &str) -> Option<(&'e NodeEvidence, &'e PodView)> {
        let views = self.made.looked_into.get_or_init(|| {
            let of_node = |node: &'e NodeEvidence| {
                let views = node.pod_views.iter().flatten();
                views.filter_map(move |view| Some((view.container_id.as_deref()?, (node, view))))
            };
            ById(self.all_nodes().flat_map(of_node).collect())
        });
        views.find(container_id)
    }

    /// Whether somebody wanted to look into this sandbox and found no namespace.
    pub fn is_namespace_lost(&self, container_id: &str) -> bool {
        let mut lost = self.all_nodes().flat_map(|node| node.lost_namespaces.iter().flatten());
        lost.any(|id| same_id(&id.seen, container_id))
    }

    /// Whether a pod that somebody looked into has this address.
    pub fn is_inside_a_pod(&self, address: IpAddr) -> bool {
        self.inside().contains(&address)
    }

    /// Addresses of a network that pods have which somebody looked into.
    pub fn inside_pods(&self, network: Cidr) -> impl Iterator<Item = IpAddr> {
        let from = self.inside().range(network.network()..).copied();
        from.take_while(move |address| network.contains(*address))
    }

    fn inside(&self) -> &BTreeSet<IpAddr> {
        self.made.inside.get_or_init(|| {
            let views = self.all_nodes().flat_map(|node| node.pod_views.iter().flatten());
            let held = views.flat_map(|view| view.kernel.addresses.iter().flatten());
            held.map(|held| held.seen.net.addr()).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn ids_are_found_in_full_and_cut_short() {
        let evidence = evidence::sample::small();
        let options = Options::default();
        let case = Case::new(&evidence, &options);
        let view = &evidence.node(&"worker-0001".into()).unwrap().pod_views.as_ref().unwrap()[0];
        let id = view.container_id.as_deref().unwrap();
        for spelled in [id, &id[..12], &id[..8]] {
            assert_eq!(
                case.runs_on(spelled).map(|node| node.name.as_str()),
                Some("worker-0001"),
                "{spelled}"
            );
            assert_eq!(case.view_of(spelled).map(|(_, view)| view), Some(view));
        }
        assert!(case.runs_on(&id[..4]).is_none() && case.view_of(&"9".repeat(64)).is_none());
        assert!(case.is_inside_a_pod("10.0.0.64".parse().unwrap()));
        assert!(!case.is_inside_a_pod("10.0.0.99".parse().unwrap()));
    }
}
