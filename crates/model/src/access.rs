//! What a node's agent needs of the store, as grants for its credentials: what is the node's own it writes, what is the cluster's it only
//! reads. What nodes share (address blocks and handles) any of them can write; no store can tell there whose address it is.

use crate::names::{EndpointName, EndpointNameError};
use crate::{AffinityOwner, IpVersion, Key, KeyRange, Kind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    Read,
    ReadWrite,
}

/// Keys that may be read or written, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub access: Access,
    pub keys: GrantedKeys,
    pub why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantedKeys {
    One(Key),
    All(KeyRange),
}

/// In which namespaces a node may have pods. Calico's key of an endpoint has the namespace before the node, so etcd can keep the endpoints of
/// other nodes from it only namespace by namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantedNamespaces {
    /// The node can write every endpoint record of the cluster.
    All,
    Some(Vec<String>),
}

/// Containers that are no pods have records, too.
const ORCHESTRATORS: [&str; 2] = ["k8s", "cni"];

/// Records of the cluster that an agent works by.
pub const READ_KINDS: [Kind; 14] = [
    Kind::Node,
    Kind::IpPool,
    Kind::IpReservation,
    Kind::ClusterInformation,
    Kind::FelixConfiguration,
    Kind::BgpConfiguration,
    Kind::BgpPeer,
    Kind::BgpFilter,
    Kind::Tier,
    Kind::GlobalNetworkPolicy,
    Kind::NetworkPolicy,
    Kind::Profile,
    Kind::WorkloadEndpoint,
    Kind::CalicoNodeStatus,
];

/// All that the agent of one node needs.
pub fn node_grants(node: &str, namespaces: &GrantedNamespaces) -> Result<Vec<Grant>, EndpointNameError> {
    let one = |key: Key, why| Grant { access: Access::ReadWrite, keys: GrantedKeys::One(key), why };
    let all = |range: KeyRange, why| Grant { access: Access::ReadWrite, keys: GrantedKeys::All(range), why };
    let mut grants = vec![
        one(Key::cluster(Kind::Node, node), "its own Node record"),
        one(
            Key::cluster(Kind::FelixConfiguration, format!("node.{node}")),
            "its own settings, created at its first start",
        ),
        one(Key::cluster(Kind::CalicoNodeStatus, node), "its own status"),
    ];
    for version in [IpVersion::V4, IpVersion::V6] {
        let owner = AffinityOwner::Host(node.to_owned());
        grants.push(all(KeyRange::AffinitiesOf(owner, version), "its own block affinities"));
    }
    match namespaces {
        GrantedNamespaces::All => {
            grants.push(all(KeyRange::Kind(Kind::WorkloadEndpoint), "endpoints of every node"));
        }
        GrantedNamespaces::Some(namespaces) => {
            for (namespace, orchestrator) in namespaces
                .iter()
                .flat_map(|namespace| ORCHESTRATORS.map(|orchestrator| (namespace, orchestrator)))
            {
                grants.push(all(own_endpoints(node, namespace, orchestrator)?, "its own endpoints"));
            }
        }
    }
    for version in [IpVersion::V4, IpVersion::V6] {
        grants.push(all(KeyRange::Blocks(version), "IPAM blocks, shared by all nodes"));
    }
    grants.push(all(KeyRange::Handles, "IPAM handles, shared by all nodes"));
    let read =
        |keys: GrantedKeys| Grant { access: Access::Read, keys, why: "settings and records of the cluster" };
    // Followed as a range, so it is granted as one.
    grants.push(read(GrantedKeys::All(KeyRange::IpamConfig)));
    grants.extend(READ_KINDS.map(|kind| read(GrantedKeys::All(KeyRange::Kind(kind)))));
    Ok(grants)
}

/// Names double every dash inside a part, so no other node's name begins like this.
fn own_endpoints(node: &str, namespace: &str, orchestrator: &str) -> Result<KeyRange, EndpointNameError> {
    let name = EndpointName {
        node: node.to_owned(),
        orchestrator: orchestrator.to_owned(),
        workload: String::new(),
        endpoint: String::new(),
    };
    let (kind, namespace) = (Kind::WorkloadEndpoint, Some(namespace.to_owned()));
    Ok(KeyRange::NamePrefix { kind, namespace, prefix: name.prefix()? })
}

impl Grant {
    /// The key, or the prefix of keys, in Calico's etcd layout.
    pub fn etcd_text(&self) -> String {
        match &self.keys {
            GrantedKeys::One(key) => key.etcd_text(),
            GrantedKeys::All(range) => range.etcd_prefix(),
        }
    }

    pub fn is_prefix(&self) -> bool {
        matches!(self.keys, GrantedKeys::All(_))
    }

    pub fn covers(&self, key: &Key) -> bool {
        let text = key.etcd_text();
        if self.is_prefix() { text.starts_with(&self.etcd_text()) } else { text == self.etcd_text() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(grants: &[Grant], access: Access, key: &Key) -> bool {
        grants.iter().any(|grant| grant.access >= access && grant.covers(key))
    }

    #[test]
    fn a_node_writes_what_is_its_own_and_no_other_nodes() {
        let namespaces = GrantedNamespaces::Some(vec!["shop".to_owned()]);
        let grants = node_grants("a", &namespaces).unwrap();
        let endpoint = |node: &str, namespace: &str| {
            let name = EndpointName::of_pod(node, "web", "eth0").compute().unwrap();
            Key::namespaced(Kind::WorkloadEndpoint, namespace, name)
        };
        let affinity = |node: &str| Key::Affinity {
            owner: AffinityOwner::Host(node.to_owned()),
            block: "10.0.0.0/26".parse().unwrap(),
        };
        let writes = |key: &Key| may(&grants, Access::ReadWrite, key);
        let own =
            [Key::cluster(Kind::Node, "a"), endpoint("a", "shop"), affinity("a"), Key::Handle("x".into())];
        for key in own {
            assert!(writes(&key), "{key}");
        }
        // Names that begin with this node's.
        for other in ["b", "a-b", "a-k8s", "ab", "a.b"] {
            for key in [Key::cluster(Kind::Node, other), endpoint(other, "shop"), affinity(other)] {
                assert!(!writes(&key), "{key}");
            }
            assert!(may(&grants, Access::Read, &Key::cluster(Kind::Node, other)));
        }
        assert!(!writes(&endpoint("a", "kube-system")));
        for kind in Kind::all().filter(|kind| !kind.is_namespaced()) {
            assert!(!writes(&Key::cluster(kind, "default")), "{kind}");
        }
        assert!(!writes(&Key::IpamConfig) && may(&grants, Access::Read, &Key::IpamConfig));
    }

    #[test]
    fn with_all_namespaces_endpoints_of_other_nodes_are_open() {
        let grants = node_grants("a", &GrantedNamespaces::All).unwrap();
        assert!(may(
            &grants,
            Access::ReadWrite,
            &Key::namespaced(Kind::WorkloadEndpoint, "x", "b-k8s-web-eth0")
        ));
    }
}
