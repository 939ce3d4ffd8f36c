//! Who gives addresses on a node: the address book, or another plugin that it knows nothing of.

use std::net::IpAddr;

use model::NodeName;
use serde_json::Value;

use super::{Case, NodeView};
use evidence::{NodeEvidence, Sighted};

/// Ours, and Calico's by whose name we may be installed.
const OUR_NETWORK: [&str; 3] = ["calico", "plumb", "plumb-cni"];
/// Who takes addresses out of the address book; so does whoever is not told whom to ask.
const OUR_ADDRESSES: [&str; 3] = ["calico-ipam", "plumb-ipam", ""];

/// The network configuration of a node, as far as it matters here.
pub(crate) struct NetworkConfig {
    /// The program that makes the network: the first of a list.
    pub(crate) plugin: String,
    /// The program that gives addresses; empty if none is named.
    pub(crate) ipam: String,
}

impl NetworkConfig {
    pub(crate) fn read(text: &Sighted<String>) -> Option<NetworkConfig> {
        let config: Value = serde_json::from_str(&text.seen).ok()?;
        let first = config["plugins"].get(0).unwrap_or(&config);
        let ipam = first["ipam"]["type"].as_str().unwrap_or_default().to_owned();
        Some(NetworkConfig { plugin: first["type"].as_str()?.to_owned(), ipam })
    }

    /// Where only the names of files were listed: what a name says.
    pub(crate) fn of_name(file: &str, text: &Sighted<String>) -> Option<NetworkConfig> {
        const PLUGINS: [&str; 10] = [
            "multus",
            "calico",
            "plumb",
            "flannel",
            "cilium",
            "weave",
            "kube-router",
            "antrea",
            "podman",
            "bridge",
        ];
        let plugin = PLUGINS.iter().find(|name| file.contains(**name)).filter(|_| text.seen.is_empty())?;
        let plugin = if *plugin == "plumb" { "plumb-cni" } else { *plugin };
        Some(NetworkConfig { plugin: plugin.to_owned(), ipam: String::new() })
    }

    pub(crate) fn is_ours(&self) -> bool {
        OUR_NETWORK.contains(&self.plugin.as_str())
    }
}

impl Case<'_> {
    /// Whether whoever has this address got it from somebody else than the address book, so that it stands in no block.
    pub fn is_given_by_others(&self, address: IpAddr) -> bool {
        let endpoints = self.endpoints_at(address).iter().map(|endpoint| endpoint.seen.node.as_ref());
        let pods = self.pods_at(address).iter().map(|pod| pod.seen.node.as_ref());
        let mut nodes: Vec<Option<&NodeName>> = endpoints.chain(pods).collect();
        if nodes.is_empty() {
            let has_tunnel = |view: &&NodeView<'_>| view.tunnels.iter().any(|(_, held)| *held == address);
            nodes.extend(self.node_views().values().filter(has_tunnel).map(|view| Some(&view.name)));
        }
        let gives_others = |node: &Option<&NodeName>| {
            let node = node.and_then(|node| self.node(node));
            node.and_then(gives_from_books).map_or_else(|| !self.is_book_used(), |is_ours| !is_ours)
        };
        !nodes.is_empty() && nodes.iter().all(gives_others)
    }

    /// Whether anything shows that addresses of this cluster come from the address book. One that was never written in is how
    /// clusters look whose nodes have ranges of their own (`host-local`).
    fn is_book_used(&self) -> bool {
        *self.made.is_book_used.get_or_init(|| {
            let is_written = self.evidence.ipam.as_ref().is_some_and(|ipam| {
                let books = &ipam.books;
                !(books.blocks.is_empty() && books.handles.is_empty() && books.affinities.is_empty())
            });
            is_written || self.all_nodes().any(|node| gives_from_books(node) == Some(true))
        })
    }
}

/// Whether a node's plugin takes addresses out of the address book; `None`: nothing tells.
fn gives_from_books(node: &NodeEvidence) -> Option<bool> {
    let configs = node.setup.cni_configs.iter().flatten();
    let mut ours = configs.filter_map(|(_, text)| NetworkConfig::read(text)).filter(NetworkConfig::is_ours);
    match ours.next() {
        Some(config) => Some(OUR_ADDRESSES.contains(&config.ipam.as_str())),
        // An agent of ours that holds attachments has given their addresses.
        None => node.attachments.as_ref().is_some_and(|held| !held.is_empty()).then_some(true),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::{FindingCode, diagnose};
    use evidence::sample::small;
    use evidence::{Evidence, Origin, Sighted};

    fn configured(evidence: &mut Evidence, ipam: &str) {
        let text =
            format!(r#"{{"name": "n", "plugins": [{{"type": "calico", "ipam": {{"type": "{ipam}"}}}}]}}"#);
        for node in evidence.nodes.values_mut() {
            let file = Sighted::new(text.clone(), Origin::probe(&node.name, "10-calico.conflist"));
            node.setup.cni_configs = Some([("10-calico.conflist".to_owned(), file)].into());
        }
    }

    fn codes(evidence: &Evidence) -> BTreeSet<FindingCode> {
        diagnose(evidence).findings.iter().map(|finding| finding.code).collect()
    }

    /// A cluster on which nobody ever wrote into the address book.
    fn without_books() -> Evidence {
        let mut evidence = small();
        evidence.ipam.as_mut().unwrap().books = Default::default();
        evidence
    }

    #[test]
    fn addresses_of_other_plugins_stand_in_no_block_and_rightly_so() {
        let mut evidence = without_books();
        configured(&mut evidence, "calico-ipam");
        assert_eq!(codes(&evidence), BTreeSet::from([FindingCode::BlockMissing]));
        configured(&mut evidence, "host-local");
        assert_eq!(codes(&evidence), BTreeSet::new());
    }

    #[test]
    fn a_book_that_nobody_is_known_to_use_is_not_missed() {
        let mut evidence = without_books();
        assert_eq!(
            codes(&evidence),
            BTreeSet::from([FindingCode::BlockMissing]),
            "our agents have given addresses"
        );
        evidence.nodes.values_mut().for_each(|node| node.attachments = None);
        assert_eq!(codes(&evidence), BTreeSet::new());
        // One record is enough to know better.
        let handle = model::ipam::Handle::default();
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        books.handles.insert("left".into(), ipam::Stored::new(handle, "1"));
        assert!(codes(&evidence).contains(&FindingCode::BlockMissing));
    }
}
