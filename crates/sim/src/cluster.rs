//! The records of a made-up cluster of any size: pool, nodes, blocks, affinities, handles, endpoints, all in agreement.
//!
//! For measurements, and for whoever needs a lot of records that could be real.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipam::{Owner, Reservations};
use jiff::Timestamp;
use model::ipam::{Affinity, AffinityState, Block, Handle};
use model::names::{EndpointName, host_interface_name};
use model::{AffinityOwner, Cidr, Key, Kind, Resource};
use serde_json::json;
use store::{Change, Committed, MAX_CHANGES, Store, StoreError};
use tokio::task::JoinSet;

/// The pool of the cluster: as many blocks as [`Cluster::BLOCKS_MAX`].
const POOL: &str = "10.0.0.0/12";
const BLOCK_PREFIX: u8 = 26;
const BLOCK_ADDRESSES: usize = 64;
/// The network's name in the CNI configuration, and so the first part of every handle.
const NETWORK: &str = "k8s-pod-network";
/// 2026-08-22T06:33:20Z.
const MADE_AT: i64 = 1_787_380_400;

/// How large a cluster is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub nodes: usize,
    /// Spread evenly over the pool, and node by node.
    pub blocks: usize,
    /// Each with a handle of its own.
    pub addresses_per_block: usize,
    /// Whether there is an endpoint for each address.
    pub has_endpoints: bool,
}

impl Cluster {
    pub const BLOCKS_MAX: usize = 1 << (BLOCK_PREFIX - 12);

    /// Every record, as commits that are as large as a store takes and may happen in any order.
    pub fn commits(self) -> impl Iterator<Item = Vec<Change>> + Send {
        let first = std::iter::once_with(pool).chain((0..self.nodes).map(node)).map(|change| vec![change]);
        pack(first.chain((0..self.blocks).map(move |number| self.block(number))))
    }

    /// Writes all of it, with many commits under way at once.
    pub async fn write(self, store: &Arc<dyn Store>) -> Result<(), StoreError> {
        write(store, self.commits()).await
    }

    /// One block and all that belongs to it.
    fn block(self, number: usize) -> Vec<Change> {
        let node = node_name(number % self.nodes.max(1));
        let owner = AffinityOwner::Host(node.clone());
        let mut block = ipam::new_block(block_network(number), &owner, None, made_at());
        let (mut handles, mut endpoints) = (Vec::new(), Vec::new());
        for address in 0..self.addresses_per_block.min(BLOCK_ADDRESSES) {
            let pod = Pod::new(number * BLOCK_ADDRESSES + address, &node);
            for address in ipam::take(&mut block, &pod.owner(), 1, &Reservations::default()) {
                handles.push(pod.handle(&block));
                if self.has_endpoints {
                    endpoints.push(pod.endpoint(address));
                }
            }
        }
        let affinity = Affinity::new(AffinityState::Confirmed).encode();
        let mut changes = vec![
            Change::create(Key::Affinity { owner, block: block.cidr }, affinity),
            Change::create(block.key(), block.encode()),
        ];
        changes.extend(handles);
        changes.extend(endpoints);
        changes
    }
}

/// Does these commits, in any order, several at once.
pub async fn write(
    store: &Arc<dyn Store>,
    commits: impl Iterator<Item = Vec<Change>>,
) -> Result<(), StoreError> {
    const AT_ONCE: usize = 8;
    let mut under_way = JoinSet::new();
    for commit in commits {
        if under_way.len() == AT_ONCE {
            finish_one(&mut under_way).await?;
        }
        let store = Arc::clone(store);
        under_way.spawn(async move { store.commit(commit).await });
    }
    while !under_way.is_empty() {
        finish_one(&mut under_way).await?;
    }
    Ok(())
}

async fn finish_one(under_way: &mut JoinSet<Result<Committed, StoreError>>) -> Result<(), StoreError> {
    match under_way.join_next().await {
        Some(Ok(outcome)) => outcome.map(drop),
        Some(Err(error)) => {
            let operation = "writing the records of a cluster".to_owned();
            Err(StoreError::Other { operation, source: Box::new(error) })
        }
        None => Ok(()),
    }
}

/// Fills commits with groups of changes that stay together.
pub fn pack(groups: impl Iterator<Item = Vec<Change>>) -> impl Iterator<Item = Vec<Change>> {
    let mut groups = groups.peekable();
    std::iter::from_fn(move || {
        let mut commit = groups.next()?;
        while let Some(group) = groups.next_if(|next| commit.len() + next.len() <= MAX_CHANGES) {
            commit.extend(group);
        }
        Some(commit)
    })
}

/// A pod that exists in records only.
#[derive(Clone, Debug)]
pub struct Pod {
    number: usize,
    node: String,
    namespace: String,
    name: String,
}

impl Pod {
    /// The same number, the same pod.
    pub fn new(number: usize, node: &str) -> Pod {
        Pod {
            number,
            node: node.to_owned(),
            namespace: format!("team-{}", number % 50),
            name: format!("web-{:05x}-{number:06}", number % 977),
        }
    }

    /// Who holds its address.
    pub fn owner(&self) -> Owner {
        let handle = format!("{NETWORK}.{}", self.container_id());
        Owner::on_node(handle, &self.node, made_at()).of_pod(&self.namespace, &self.name, Some(&self.uid()))
    }

    /// Its endpoint, as Calico's plugin writes it: about 900 bytes.
    pub fn endpoint(&self, address: IpAddr) -> Change {
        let Pod { node, namespace, name: pod, .. } = self;
        let name = EndpointName::of_pod(node, pod, "eth0").compute().expect("made-up names are fit for it");
        let mut resource = Resource::new(Kind::WorkloadEndpoint, &name);
        resource.metadata.namespace = Some(namespace.clone());
        resource.metadata.uid = Some(self.uid());
        resource.metadata.creation_timestamp = Some(made_at().to_string());
        for (key, value) in [
            ("app", "web"),
            ("pod-template-hash", "7c5ddbdf54"),
            ("projectcalico.org/namespace", namespace),
            ("projectcalico.org/orchestrator", "k8s"),
            ("projectcalico.org/serviceaccount", "default"),
        ] {
            resource.metadata.labels.insert(key.to_owned(), value.to_owned());
        }
        let spec = json!({
            "orchestrator": "k8s", "node": node, "pod": pod, "endpoint": "eth0", "serviceAccountName": "default",
            "containerID": self.container_id(),
            "ipNetworks": [Cidr::single(address)],
            "profiles": [format!("kns.{namespace}"), format!("ksa.{namespace}.default")],
            "interfaceName": host_interface_name(namespace, pod).map(|name| name.to_string()).ok(),
            "mac": "ee:ee:ee:ee:ee:ee",
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080, "hostPort": 0, "hostIP": ""}],
        });
        resource.body.insert("spec".into(), spec);
        Change::create(Key::namespaced(Kind::WorkloadEndpoint, namespace, name), resource.encode())
    }

    fn handle(&self, block: &Block) -> Change {
        let handle = Handle { block: [(block.cidr.to_string(), 1)].into(), ..Handle::default() };
        Change::create(Key::Handle(self.owner().handle), handle.encode())
    }

    fn container_id(&self) -> String {
        format!("{:064x}", self.number)
    }

    fn uid(&self) -> String {
        format!("6d0c7f3e-53a4-4b0f-9f0d-{:012x}", self.number)
    }
}

fn pool() -> Change {
    let mut resource = Resource::new(Kind::IpPool, "pods");
    resource
        .body
        .insert("spec".into(), json!({ "cidr": POOL, "blockSize": BLOCK_PREFIX, "nodeSelector": "all()" }));
    Change::create(Key::cluster(Kind::IpPool, "pods"), resource.encode())
}

fn node(number: usize) -> Change {
    let name = node_name(number);
    let address = format!("172.16.{}.{}/16", number >> 8 & 255, number & 255);
    let mut resource = Resource::new(Kind::Node, &name);
    resource.body.insert("spec".into(), json!({ "bgp": { "ipv4Address": address } }));
    Change::create(Key::cluster(Kind::Node, name), resource.encode())
}

fn node_name(number: usize) -> String {
    format!("worker-{number:04}")
}

/// An odd factor reaches every block of the pool once, since there are a power of two of them.
fn block_network(number: usize) -> Cidr {
    let position = number.wrapping_mul(7919) % Cluster::BLOCKS_MAX;
    let address = Ipv4Addr::from(0x0a00_0000 + (position * BLOCK_ADDRESSES) as u32);
    Cidr::containing(address.into(), BLOCK_PREFIX).unwrap_or_else(|| Cidr::single(address.into()))
}

fn made_at() -> Timestamp {
    Timestamp::from_second(MADE_AT).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ipam::check::{EndpointFacts, Evidence, NodeFacts, analyse};
    use ipam::{Answer, Books, Pool};
    use store::Write;

    use super::*;

    const SMALL: Cluster = Cluster { nodes: 3, blocks: 10, addresses_per_block: 5, has_endpoints: true };

    fn records(cluster: Cluster) -> Vec<(Key, Vec<u8>)> {
        let value = |write| match write {
            Write::Put(value) => value.to_vec(),
            other => panic!("only creations, not {other:?}"),
        };
        let changes = cluster.commits().inspect(|commit| assert!(commit.len() <= MAX_CHANGES)).flatten();
        changes.map(|change| (change.key, value(change.write))).collect()
    }

    fn addresses(value: &[u8]) -> Vec<IpAddr> {
        let document: serde_json::Value = serde_json::from_slice(value).unwrap();
        let networks = document["spec"]["ipNetworks"].as_array().unwrap().iter();
        networks.map(|network| network.as_str().unwrap().parse::<Cidr>().unwrap().network()).collect()
    }

    #[test]
    fn the_records_of_a_cluster_agree() {
        let (mut books, mut pools) = (Books::default(), Vec::new());
        let (mut nodes, mut endpoints) = (Vec::new(), Vec::new());
        for (key, value) in records(SMALL) {
            match &key {
                Key::Resource { kind: Kind::IpPool, .. } => {
                    let resource = Resource::decode(&key, Kind::IpPool, &value, "1").unwrap();
                    pools.push(Pool::new(&resource).unwrap());
                }
                Key::Resource { kind: Kind::Node, name, .. } => {
                    nodes.push(NodeFacts { name: name.clone(), tunnels: Vec::new() });
                }
                Key::Resource { namespace, name, .. } => endpoints.push(EndpointFacts::owned(
                    namespace.clone().unwrap(),
                    name.clone(),
                    addresses(&value),
                )),
                _ => books.add(&key, Answer::read(&key, Some((&value, "1")))),
            }
        }
        let (books, services) = (&books, &[]);
        let (pools, nodes, endpoints) = (&pools, &nodes, &endpoints);
        let now = made_at();
        let analysis = analyse(&Evidence { books, pools, nodes, endpoints, services, now });
        assert_eq!(analysis.problems, []);
        assert_eq!((analysis.allocations.len(), analysis.in_use), (50, 50));
        assert_eq!((books.handles.len(), books.affinities.len(), books.unreadable.len()), (50, 10, 0));
    }

    #[test]
    fn every_block_of_the_pool_is_reached_once() {
        let networks: BTreeSet<Cidr> = (0..Cluster::BLOCKS_MAX).map(block_network).collect();
        assert_eq!(networks.len(), Cluster::BLOCKS_MAX);
        let pool: Cidr = POOL.parse().unwrap();
        assert!(networks.iter().all(|network| pool.contains(network.network())));
    }

    #[test]
    fn commits_are_as_large_as_they_may_be() {
        let sizes: Vec<usize> = SMALL.commits().map(|commit| commit.len()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 1 + 3 + 10 * (2 + 5 + 5));
        assert_eq!(sizes, [124]);
        let larger = Cluster { blocks: 30, ..SMALL };
        assert!(larger.commits().all(|commit| (64..=MAX_CHANGES).contains(&commit.len())));
    }
}
