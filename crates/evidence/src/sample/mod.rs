//! A made-up cluster in full health, of any size: records, books, kernels and pods all tell one story. For tests, which break
//! one thing and look whether that is found, and for measurements.

mod kernel;
mod tunnel;

use std::net::{IpAddr, Ipv4Addr};

use ipam::{Books, Owner, Reservations, Stored};
use jiff::{SignedDuration, Timestamp};
use model::ipam::{Affinity, AffinityState, Handle};
use model::names::{EndpointName, host_interface_name};
use model::{AffinityOwner, Cidr, Key, Kind, Mac, Resource};
use serde_json::{Value, json};

pub use kernel::route as kernel_route;
pub use tunnel::{through, tunnelled};

use crate::kubernetes::Condition;
use crate::{Endpoint, Evidence, IpamEvidence, KubeNode, Origin, Pod, PodName, Sighted};

/// How large it is to be.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub nodes: usize,
    pub blocks_per_node: usize,
    /// Spread over the node's blocks, at most 64 to a block.
    pub pods_per_node: usize,
    /// Whether each node's kernel, pods from inside, runtime and set-up were looked at, too.
    pub has_kernels: bool,
}

const BLOCK_PREFIX: u8 = 26;
const BLOCK_ADDRESSES: usize = 64;
const NETWORK: &str = "k8s-pod-network";
/// 2026-08-22T06:33:20Z.
const TAKEN_AT: i64 = 1_787_380_400;

/// Three nodes with four pods each, looked at from all sides.
pub fn small() -> Evidence {
    Sample { nodes: 3, blocks_per_node: 1, pods_per_node: 4, has_kernels: true }.evidence()
}

/// The same with one setting of another component.
pub fn set(mut evidence: Evidence, kind: crate::SettingKind, value: &str) -> Evidence {
    let setting = crate::Setting { kind, value: value.to_owned() };
    evidence.settings.get_or_insert_default().push(Sighted::new(setting, Origin::file("settings.yaml")));
    evidence
}

/// One pod of the sample.
#[derive(Clone, Debug)]
pub struct SamplePod {
    pub number: usize,
    pub name: PodName,
    pub node: String,
    pub address: IpAddr,
}

impl Sample {
    pub fn evidence(self) -> Evidence {
        let mut evidence = Evidence { taken_at: Some(taken_at()), ..Evidence::default() };
        evidence.records.add(record(
            Kind::IpPool,
            "pods",
            json!({"cidr": "10.0.0.0/12", "blockSize": BLOCK_PREFIX, "ipipMode": "Never", "vxlanMode": "Never",
                   "natOutgoing": true, "nodeSelector": "all()"}),
        ));
        for kind in [Kind::GlobalNetworkPolicy, Kind::NetworkPolicy, Kind::Profile, Kind::BgpPeer] {
            evidence.records.looked_for(kind);
        }
        let (mut books, mut pods) = (Books::default(), Vec::new());
        for node in 0..self.nodes {
            let spec = json!({"bgp": {"ipv4Address": format!("{}/16", node_address(node))}});
            evidence.records.add(record(Kind::Node, &node_name(node), spec));
            self.fill_blocks(node, &mut books, &mut pods);
        }
        evidence.ipam = Some(IpamEvidence::of_store(books));
        evidence.kube_nodes = Some((0..self.nodes).map(kube_node).collect());
        evidence.endpoints = Some(pods.iter().map(SamplePod::endpoint).collect());
        let mut kube_pods: Vec<Sighted<Pod>> = pods.iter().map(SamplePod::pod).collect();
        kube_pods.extend((0..self.nodes).map(network_pod));
        evidence.pods = Some(kube_pods);
        evidence.events = Some(Vec::new());
        if self.has_kernels {
            for node in 0..self.nodes {
                let name = node_name(node);
                let here: Vec<&SamplePod> = pods.iter().filter(|pod| pod.node == name).collect();
                *evidence.node_mut(name.as_str()) = kernel::node(self, node, &here);
            }
        }
        evidence
    }

    fn fill_blocks(self, node: usize, books: &mut Books, pods: &mut Vec<SamplePod>) {
        let owner = AffinityOwner::Host(node_name(node));
        let per_block = self.pods_per_node.div_ceil(self.blocks_per_node.max(1)).min(BLOCK_ADDRESSES);
        let mut left = self.pods_per_node;
        for number in 0..self.blocks_per_node {
            let cidr = block_cidr(node * self.blocks_per_node + number);
            let mut block = ipam::new_block(cidr, &owner, None, made_at());
            for _ in 0..per_block.min(left) {
                let mut pod = SamplePod::new(pods.len(), node_name(node));
                let taken = ipam::take(&mut block, &pod.owner(), 1, &Reservations::default());
                let Some(address) = taken.first() else { break };
                pod.address = *address;
                let handle = Handle { block: [(cidr.to_string(), 1)].into(), ..Handle::default() };
                books.handles.insert(pod.owner().handle, Stored::new(handle, "1"));
                pods.push(pod);
                left -= 1;
            }
            books.blocks.insert(cidr, Stored::new(block, "1"));
            let affinity = Affinity::new(AffinityState::Confirmed);
            books.affinities.insert((owner.clone(), cidr), Stored::new(affinity, "1"));
        }
    }
}

impl SamplePod {
    fn new(number: usize, node: String) -> SamplePod {
        let name = PodName::new(format!("team-{}", number % 50), format!("web-{number}"));
        SamplePod { number, name, node, address: IpAddr::V4(Ipv4Addr::UNSPECIFIED) }
    }

    pub fn container_id(&self) -> String {
        format!("{:08x}{:056x}", self.number + 1, self.number)
    }

    pub fn device(&self) -> String {
        let namespace = self.name.namespace.as_deref().unwrap_or_default();
        host_interface_name(namespace, &self.name.name).map(|name| name.to_string()).unwrap_or_default()
    }

    pub fn mac(&self) -> Mac {
        let [_, a, b, c] = (self.number as u32).to_be_bytes();
        Mac([0x02, 0, 0, a, b, c])
    }

    fn owner(&self) -> Owner {
        let namespace = self.name.namespace.as_deref().unwrap_or_default();
        Owner::on_node(format!("{NETWORK}.{}", self.container_id()), &self.node, made_at()).of_pod(
            namespace,
            &self.name.name,
            None,
        )
    }

    fn endpoint(&self) -> Sighted<Endpoint> {
        let name = EndpointName::of_pod(&self.node, &self.name.name, "eth0").compute();
        let name = name.unwrap_or_default();
        let namespace = self.name.namespace.clone();
        let key = Key::namespaced(Kind::WorkloadEndpoint, namespace.clone().unwrap_or_default(), &name);
        let endpoint = Endpoint {
            namespace,
            name,
            orchestrator: "k8s".to_owned(),
            pod: Some(self.name.name.clone()),
            node: Some(self.node.as_str().into()),
            interface: Some("eth0".to_owned()),
            device: Some(self.device()),
            mac: Some(self.mac()),
            container_id: Some(self.container_id()),
            addresses: vec![self.address],
            created_at: Some(made_at()),
            ..Endpoint::default()
        };
        Sighted::new(endpoint, Origin::store(&key))
    }

    fn pod(&self) -> Sighted<Pod> {
        let pod = Pod {
            name: self.name.clone(),
            uid: Some(format!("uid-{}", self.number)),
            node: Some(self.node.as_str().into()),
            addresses: vec![self.address],
            host_network: Some(false),
            status: "Running".to_owned(),
            created_at: Some(made_at()),
            ready: Some((1, 1)),
            ..Pod::default()
        };
        let origin = Origin::Api(format!("pod/{}", self.name).into());
        Sighted::new(pod, origin)
    }
}

/// The one that brings the network, on its node's own address.
fn network_pod(node: usize) -> Sighted<Pod> {
    let name = PodName::new("kube-system", format!("calico-node-{node:05}"));
    let origin = Origin::Api(format!("pod/{name}").into());
    let pod = Pod {
        name,
        node: Some(node_name(node).into()),
        addresses: vec![node_address(node)],
        host_network: Some(true),
        status: "Running".to_owned(),
        created_at: Some(made_at()),
        ready: Some((1, 1)),
        ..Pod::default()
    };
    Sighted::new(pod, origin)
}

fn kube_node(node: usize) -> Sighted<KubeNode> {
    let ready = Condition { kind: "Ready".into(), status: "True".into(), ..Condition::default() };
    let name = node_name(node);
    let origin = Origin::Api(format!("node/{name}").into());
    let seen = KubeNode {
        name: name.into(),
        internal_ips: vec![node_address(node)],
        conditions: vec![ready],
        created_at: Some(made_at()),
        ..KubeNode::default()
    };
    Sighted::new(seen, origin)
}

pub fn record(kind: Kind, name: &str, spec: Value) -> Sighted<Resource> {
    let mut resource = Resource::new(kind, name);
    resource.body.insert("spec".to_owned(), spec);
    Sighted::in_store(resource)
}

pub fn node_name(number: usize) -> String {
    format!("worker-{number:04}")
}

pub fn node_address(number: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0xac10_0001 + number as u32))
}

pub fn block_cidr(number: usize) -> Cidr {
    let address = Ipv4Addr::from(0x0a00_0000 + (number * BLOCK_ADDRESSES) as u32);
    Cidr::containing(address.into(), BLOCK_PREFIX).unwrap_or_else(|| Cidr::single(address.into()))
}

fn taken_at() -> Timestamp {
    Timestamp::from_second(TAKEN_AT).unwrap_or_default()
}

/// Everything was made an hour before.
fn made_at() -> Timestamp {
    taken_at() - SignedDuration::from_hours(1)
}
