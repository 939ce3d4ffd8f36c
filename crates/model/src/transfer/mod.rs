//! Copying all records of one store to another: which can be carried, how they change, in which order, and what may be in the way.
//!
//! Keys and values are those of the etcd layout on both sides. [`plan`] decides about the source's records, [`Plan::meet`] about
//! what the destination already holds. Whoever copies reads, asks and writes.
//!
//! * [`carry`]: what becomes of one record. [`Why`] a record is left, what is [`Altered`] in one that is not.
//! * `compare`: whether two values say the same. `meet`: what a record in the destination means for the copy.
//! * `order`: an order in which a copy that stops anywhere leaves IPAM records that agree.
//! * [`information`]: the destination's own record, which says that a copy is not finished.

mod carry;
mod compare;
pub mod information;
mod meet;
mod order;
#[cfg(test)]
mod properties;
mod reason;
mod settings;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::kube::{Layout, place};
use crate::{Key, Kind, Resource};

pub use compare::Likeness;
pub use meet::{Existing, Meeting, Obstacle, Rule, stages_of_removal};
pub use order::Stages;
pub use reason::{Altered, Why};

/// What keeps the records that arrive.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Records under the keys of the etcd layout: SQLite, etcd.
    Records,
    /// Custom resources, beside Kubernetes' own objects.
    Kubernetes(Cluster),
}

/// Where the records come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Records,
    Kubernetes,
}

/// What a cluster has before the copy, as far as it decides about records.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub layout: Layout,
    /// Kinds without a definition.
    pub unserved: BTreeSet<Kind>,
    nodes: BTreeMap<String, Resource>,
    endpoints: BTreeMap<Key, Attachment>,
    profiles: BTreeSet<String>,
}

/// What a Pod shows of its network.
#[derive(Clone, Debug, Default)]
struct Attachment {
    networks: BTreeSet<String>,
    has_sandbox: bool,
}

impl Attachment {
    fn of(endpoint: &Resource) -> Attachment {
        let listed = endpoint.spec("ipNetworks").and_then(Value::as_array).into_iter().flatten();
        let networks = listed.filter_map(Value::as_str).map(str::to_owned).collect();
        let sandbox = endpoint.spec("containerID").and_then(Value::as_str);
        Attachment { networks, has_sandbox: sandbox.is_some_and(|sandbox| !sandbox.is_empty()) }
    }

    /// Of a record that can be read.
    fn read(key: &Key, value: &[u8]) -> Option<Attachment> {
        let Key::Resource { kind: Kind::WorkloadEndpoint, .. } = key else { return None };
        Some(Attachment::of(&Resource::decode(key, Kind::WorkloadEndpoint, value, "").ok()?))
    }
}

impl Cluster {
    pub fn new(layout: Layout) -> Cluster {
        Cluster {
            layout,
            unserved: BTreeSet::new(),
            nodes: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            profiles: BTreeSet::new(),
        }
    }

    /// Takes note of a view: a node, an endpoint or a profile that an object of the cluster shows.
    pub fn note(&mut self, key: &Key, value: &[u8]) {
        let Key::Resource { kind, name, .. } = key else { return };
        let shown = || Resource::decode(key, *kind, value, "").ok();
        match kind {
            Kind::Profile => drop(self.profiles.insert(name.clone())),
            Kind::Node => drop(shown().and_then(|node| self.nodes.insert(name.clone(), node))),
            Kind::WorkloadEndpoint => {
                let attachment = Attachment::read(key, value).unwrap_or_default();
                self.endpoints.insert(key.clone(), attachment);
            }
            _ => {}
        }
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        self.profiles.contains(&format!("kns.{namespace}"))
    }
}

/// Whether a Pod, as a record shows it now, may still learn the sandbox of an endpoint: it is the one that the endpoint is about.
pub fn is_pod_of(key: &Key, endpoint: &[u8], pod: &[u8]) -> bool {
    match (Attachment::read(key, endpoint), Attachment::read(key, pod)) {
        (Some(endpoint), Some(pod)) => endpoint.networks == pod.networks && !pod.has_sandbox,
        _ => false,
    }
}

/// What is to be written, and what is not. `V` is whatever holds values.
#[derive(Clone, Debug)]
pub struct Plan<V> {
    /// By the keys they get.
    pub writes: BTreeMap<Key, V>,
    /// The source's ClusterInformation, which is written first and last.
    pub information: Option<V>,
    pub left: Vec<(Key, Why)>,
    /// By the keys of the source.
    pub altered: Vec<(Key, Altered)>,
}

impl<V> Plan<V> {
    /// Whether something of the source will be missing in the destination.
    pub fn has_losses(&self) -> bool {
        self.left.iter().any(|(_, why)| why.is_loss())
            || self.altered.iter().any(|(_, altered)| altered.is_loss())
    }
}

/// Decides about every record of the source.
pub fn plan<V>(source: impl IntoIterator<Item = (Key, V)>, from: Origin, to: &Destination) -> Plan<V>
where
    V: AsRef<[u8]> + From<Vec<u8>>,
{
    let mut plan = Plan { writes: BTreeMap::new(), information: None, left: Vec::new(), altered: Vec::new() };
    let mut source: BTreeMap<Key, V> = source.into_iter().collect();
    plan.information = source.remove(&information::key());
    if let Destination::Kubernetes(_) = to {
        settings::merge(&mut source, &mut plan.altered);
    }
    let mut taken = BTreeMap::new();
    for (key, value) in source {
        let carried = match carry::carry(from, to, &key, value.as_ref()) {
            Ok(carried) => carried,
            Err(why) => {
                plan.left.push((key, why));
                continue;
            }
        };
        let to_key = carried.key.unwrap_or_else(|| key.clone());
        if let Some(by) = name_taken(to, &mut taken, &key, &to_key) {
            plan.left.push((key, Why::NameTaken { by }));
            continue;
        }
        plan.altered.extend(carried.altered.into_iter().map(|altered| (key.clone(), altered)));
        plan.writes.insert(to_key, carried.value.map_or(value, V::from));
    }
    plan
}

/// The record of the source that has taken the name already, if one has.
fn name_taken(
    to: &Destination,
    taken: &mut BTreeMap<(Kind, Option<String>, String), Key>,
    key: &Key,
    to_key: &Key,
) -> Option<Key> {
    let Destination::Kubernetes(_) = to else { return None };
    let place = place(to_key)?;
    let place = (place.kind, place.namespace, place.name);
    if let Some(by) = taken.get(&place) {
        return Some(by.clone());
    }
    taken.insert(place, key.clone());
    None
}
