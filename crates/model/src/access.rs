//! What a node's agent needs of the store, as grants for its credentials: what is the node's own it writes, what is the cluster's it only
//! reads. What nodes share (address blocks and handles) any of them can write; no store can tell there whose address it is. Handles of
//! tunnels are an exception: they name their node.

use crate::names::{EndpointName, EndpointNameError};
use crate::{AffinityOwner, HandleId, IpVersion, Key, KeyRange, Kind};

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
    /// From this one up to the second, which is not granted, or to the last.
    Handles(HandleId, Option<HandleId>),
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
pub const READ_KINDS: [Kind; 20] = [
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
    Kind::StagedGlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedKubernetesNetworkPolicy,
    Kind::GlobalNetworkSet,
    Kind::NetworkSet,
    Kind::HostEndpoint,
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
    let read =
        |keys: GrantedKeys| Grant { access: Access::Read, keys, why: "settings and records of the cluster" };
    // First, because it replaces the grant of an older version, which was to write the same range.
    grants.push(read(GrantedKeys::All(KeyRange::Handles)));
    let own = HandleId::TUNNEL_DEVICES.map(|device| Key::Handle(HandleId::of_tunnel(device, node)));
    grants.extend(own.map(|key| one(key, "the handles of its own tunnels' addresses")));
    grants.extend(handles_of_no_tunnel().map(|keys| Grant {
        access: Access::ReadWrite,
        keys,
        why: "the other IPAM handles, shared by all nodes",
    }));
    // Followed as a range, so it is granted as one.
    grants.push(read(GrantedKeys::All(KeyRange::IpamConfig)));
    grants.extend(READ_KINDS.map(|kind| read(GrantedKeys::All(KeyRange::Kind(kind)))));
    Ok(grants)
}

/// The ranges between the handles of tunnels.
fn handles_of_no_tunnel() -> impl Iterator<Item = GrantedKeys> {
    let tunnels = HandleId::TUNNEL_DEVICES.map(|device| HandleId::of_tunnel(device, ""));
    // A dot follows the dash: the first text that does not begin with what names a tunnel.
    let after = |tunnel: &HandleId| HandleId::from(format!("{}.", tunnel.to_string().trim_end_matches('-')));
    let starts = [HandleId::from("-")].into_iter().chain(tunnels.each_ref().map(after));
    let ends = tunnels.into_iter().map(Some).chain([None]);
    starts.zip(ends).map(|(start, end)| GrantedKeys::Handles(start, end))
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
    /// The key, the prefix of keys, or the first of a range, in Calico's etcd layout.
    pub fn etcd_text(&self) -> String {
        match &self.keys {
            GrantedKeys::One(key) => key.etcd_text(),
            GrantedKeys::All(range) => range.etcd_prefix(),
            GrantedKeys::Handles(start, _) => Key::Handle(start.clone()).etcd_text(),
        }
    }

    /// The first key after a range that is not a prefix.
    pub fn etcd_end(&self) -> Option<String> {
        match &self.keys {
            GrantedKeys::One(_) | GrantedKeys::All(_) => None,
            GrantedKeys::Handles(_, Some(end)) => Some(Key::Handle(end.clone()).etcd_text()),
            // The digit 0 follows the slash.
            GrantedKeys::Handles(_, None) => {
                Some(format!("{}0", KeyRange::Handles.etcd_prefix().trim_end_matches('/')))
            }
        }
    }

    pub fn is_prefix(&self) -> bool {
        matches!(self.keys, GrantedKeys::All(_))
    }

    pub fn covers(&self, key: &Key) -> bool {
        let (text, start) = (key.etcd_text(), self.etcd_text());
        match &self.keys {
            GrantedKeys::One(_) => text == start,
            GrantedKeys::All(_) => text.starts_with(&start),
            GrantedKeys::Handles(..) => start <= text && self.etcd_end().is_some_and(|end| text < end),
        }
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
    fn of_tunnels_handles_a_node_writes_its_own_only() {
        let grants = node_grants("b", &GrantedNamespaces::All).unwrap();
        let handle = |text: &str| Key::Handle(text.into());
        for device in HandleId::TUNNEL_DEVICES {
            assert!(may(&grants, Access::ReadWrite, &Key::Handle(HandleId::of_tunnel(device, "b"))));
            for other in ["a", "bb", "b.c", "b-c", "a-b", "zz", "0"] {
                let key = Key::Handle(HandleId::of_tunnel(device, other));
                assert!(!may(&grants, Access::ReadWrite, &key), "{key}");
                assert!(may(&grants, Access::Read, &key), "{key}");
            }
        }
        for shared in [
            "0f3a",
            "k8s-pod-network.0f3a",
            "A.b",
            "ipip.c1",
            "vxlan.c1",
            "vxlan-v6.c1",
            "wireguard.c1",
            "zz.c1",
            "_x",
            "ip.c",
            "wg.c",
        ] {
            assert!(may(&grants, Access::ReadWrite, &handle(shared)), "{shared}");
        }
        assert!(!may(&grants, Access::ReadWrite, &Key::IpamConfig));
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
