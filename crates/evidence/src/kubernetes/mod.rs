//! What Kubernetes says: pods, nodes, events.

mod object;

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use model::NodeName;
use serde::{Deserialize, Serialize};

pub use object::lease_of_object;

use super::{Origin, Sighted};

/// A pod's name. The namespace is not known where a table without that column was pasted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodName {
    pub namespace: Option<String>,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub name: PodName,
    pub uid: Option<String>,
    /// What its kubelet and its runtime call it, if that is not its UID: a pod from a file has another one on its node.
    pub static_uid: Option<String>,
    pub node: Option<NodeName>,
    pub addresses: Vec<IpAddr>,
    pub service_account: Option<String>,
    /// `None`: not said. A table does not say; see [`Pod::is_on_host_network`].
    pub host_network: Option<bool>,
    /// `status.phase`, or what `kubectl get` shows in its place: `Running`, `Init:1/2`, `Terminating` …
    pub status: String,
    pub created_at: Option<Timestamp>,
    /// Where only an age is known. Counts from when the evidence was taken.
    pub age: Option<SignedDuration>,
    /// Being deleted, since.
    pub deleted_at: Option<Timestamp>,
    /// How many of how many containers are ready.
    pub ready: Option<(u32, u32)>,
    /// Those of Calico and Plumbline only: the others are nobody's business here.
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KubeNode {
    pub name: NodeName,
    /// `Ready`, `NotReady`, `Ready,SchedulingDisabled`: as `kubectl get nodes` shows it. Empty: not said.
    pub status: String,
    pub internal_ips: Vec<IpAddr>,
    pub conditions: Vec<Condition>,
    pub annotations: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    /// `key=value:Effect`, or `key:Effect`.
    pub taints: Vec<String>,
    /// Where the machine comes from: `azure:///subscriptions/…`.
    pub provider: String,
    /// When its kubelet last renewed its lease.
    pub lease_renewed_at: Option<Timestamp>,
    pub created_at: Option<Timestamp>,
    pub age: Option<SignedDuration>,
    /// Where single facts stand, in a text of many lines: by the name of the annotation or condition, or `InternalIP`.
    pub places: BTreeMap<String, Origin>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Condition {
    pub kind: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    pub heartbeat_at: Option<Timestamp>,
    pub changed_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    pub reason: String,
    /// What it is about, as far as said: `Pod/kube-system/calico-node-x`.
    pub object: Option<String>,
    /// Where it was told.
    pub node: Option<NodeName>,
    pub message: String,
    pub count: u64,
    /// How long before the evidence was taken it happened last, and first.
    pub last_age: Option<SignedDuration>,
    pub first_age: Option<SignedDuration>,
    pub last_at: Option<Timestamp>,
}

impl Event {
    /// The pod it is about, if it is about one.
    pub fn pod(&self) -> Option<PodName> {
        let mut parts = self.object.as_deref()?.split('/');
        parts.next().filter(|kind| kind.eq_ignore_ascii_case("pod"))?;
        match (parts.next()?, parts.next()) {
            (namespace, Some(name)) => Some(PodName::new(namespace, name)),
            (name, None) => Some(PodName { namespace: None, name: name.to_owned() }),
        }
    }
}

impl PodName {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> PodName {
        PodName { namespace: Some(namespace.into()), name: name.into() }
    }

    /// Whether both may mean the same pod: a namespace that is not known fits any.
    pub fn may_be(&self, other: &PodName) -> bool {
        let differs = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
        self.name == other.name && !differs(&self.namespace, &other.namespace)
    }
}

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Pod {
    /// A program that runs on its node's network wherever it runs: a static pod of the control plane, or a part of the network.
    pub fn is_of_host_by_name(&self) -> bool {
        const PROGRAMS: [&str; 4] = ["calico-node-", "kube-proxy-", "plumbd-", "cilium-envoy-"];
        const STATIC: [&str; 4] = ["etcd-", "kube-apiserver-", "kube-controller-manager-", "kube-scheduler-"];
        let name = self.name.name.as_str();
        let is_static = || {
            let node = self.node.as_ref().map(|node| format!("-{node}"));
            STATIC.iter().any(|start| name.starts_with(start))
                && node.is_some_and(|node| name.ends_with(&node))
        };
        self.host_network != Some(false)
            && (PROGRAMS.iter().any(|start| name.starts_with(start)) || is_static())
    }

    /// Ran to its end: its sandbox is gone, and so is its claim to an address.
    pub fn is_finished(&self) -> bool {
        matches!(
            self.status.as_str(),
            "Succeeded" | "Failed" | "Completed" | "Error" | "Evicted" | "OOMKilled"
        )
    }

    /// Whether it is certainly not the pod with this UID.
    pub fn is_another(&self, uid: &str) -> bool {
        self.uid.as_deref().is_some_and(|own| own != uid) && self.static_uid.as_deref() != Some(uid)
    }

    pub fn is_terminating(&self) -> bool {
        self.deleted_at.is_some() || self.status == "Terminating"
    }

    /// Uses its node's network. A table does not say so: there, an address that is a node's own tells.
    pub fn is_on_host_network(&self, is_node_address: impl Fn(IpAddr) -> bool) -> bool {
        self.host_network.unwrap_or_else(|| {
            !self.addresses.is_empty() && self.addresses.iter().all(|ip| is_node_address(*ip))
        })
    }

    /// How old it was when the evidence was taken.
    pub fn age(&self, taken_at: Option<Timestamp>) -> Option<SignedDuration> {
        age(self.created_at, self.age, taken_at)
    }
}

impl Sighted<KubeNode> {
    /// Where one fact about the node stands, or else the node.
    pub fn place(&self, fact: &str) -> &Origin {
        self.seen.places.get(fact).unwrap_or(&self.origin)
    }
}

impl KubeNode {
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// `None`: not said.
    pub fn is_ready(&self) -> Option<bool> {
        match self.condition("Ready") {
            Some(ready) => Some(ready.status == "True"),
            None if self.status.is_empty() => None,
            None => Some(self.status.split(',').any(|word| word == "Ready")),
        }
    }

    pub fn age(&self, taken_at: Option<Timestamp>) -> Option<SignedDuration> {
        age(self.created_at, self.age, taken_at)
    }
}

/// From a time of creation if both times are known, else as it was told.
pub fn age(
    created_at: Option<Timestamp>,
    told: Option<SignedDuration>,
    taken_at: Option<Timestamp>,
) -> Option<SignedDuration> {
    match (created_at, taken_at) {
        (Some(created), Some(taken)) => Some(taken.duration_since(created)),
        _ => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_not_known_fits_any() {
        let bare = PodName { namespace: None, name: "web-0".to_owned() };
        assert!(bare.may_be(&PodName::new("a", "web-0")));
        assert!(PodName::new("a", "web-0").may_be(&bare));
        assert!(!PodName::new("a", "web-0").may_be(&PodName::new("b", "web-0")));
        assert!(!PodName::new("a", "web-0").may_be(&PodName::new("a", "web-1")));
    }

    #[test]
    fn readiness_is_the_condition_or_else_the_column() {
        let mut node = KubeNode::default();
        assert_eq!(node.is_ready(), None);
        node.status = "Ready,SchedulingDisabled".to_owned();
        assert_eq!(node.is_ready(), Some(true));
        node.status = "NotReady".to_owned();
        assert_eq!(node.is_ready(), Some(false));
        let unknown = Condition { kind: "Ready".into(), status: "Unknown".into(), ..Condition::default() };
        node.status = "Ready".to_owned();
        node.conditions.push(unknown);
        assert_eq!(node.is_ready(), Some(false));
    }

    #[test]
    fn a_pod_with_another_uid_is_another_pod() {
        let mut pod = Pod::default();
        assert!(!pod.is_another("u"), "its UID is not known");
        pod.uid = Some("mirror".to_owned());
        pod.static_uid = Some("u".to_owned());
        assert!(!pod.is_another("u") && !pod.is_another("mirror") && pod.is_another("v"));
    }

    #[test]
    fn a_pod_on_its_nodes_address_is_on_the_host_network() {
        let mut pod = Pod { addresses: vec!["172.17.73.65".parse().unwrap()], ..Pod::default() };
        let is_node = |ip: IpAddr| ip == "172.17.73.65".parse::<IpAddr>().unwrap();
        assert!(pod.is_on_host_network(is_node));
        assert!(!pod.is_on_host_network(|_| false));
        pod.host_network = Some(false);
        assert!(!pod.is_on_host_network(is_node));
        assert!(!Pod::default().is_on_host_network(is_node));
    }
}
