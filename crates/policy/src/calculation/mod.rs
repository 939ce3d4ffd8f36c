//! From records to what each local endpoint may do: its tiers and policies in order, and the members of the sets that their rules refer to.
//!
//! Records come one by one, in any order, and again as often as the store likes. What comes out depends only on the last state. Each record touches
//! only what it concerns; [`Calculation::take_update`] says what that was since the last call.

mod sets;
mod subjects;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use model::{Key, Kind, Resource};
use serde_json::Value;

use crate::labels::{ClassId, LabelMap};
use crate::record::{
    self, ClusterKind, Direction, Endpoint, Layer, Policy, PolicyId, PolicyKind, Profile, SetSource,
};
use crate::ruleset::Element;
use sets::{Members, Sets};
use subjects::Subjects;

pub use sets::SetUpdate;

/// What selectors can match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointKind {
    Workload,
    Host,
    NetworkSet,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointId {
    pub kind: EndpointKind,
    pub namespace: Option<Arc<str>>,
    pub name: Arc<str>,
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// An object of Kubernetes that is not one of Calico's kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KubernetesKind {
    /// `networking.k8s.io/v1`
    NetworkPolicy,
    /// `policy.networking.k8s.io/v1alpha2`
    ClusterNetworkPolicy,
    /// `policy.networking.k8s.io/v1alpha1`
    AdminNetworkPolicy,
    /// `policy.networking.k8s.io/v1alpha1`
    BaselineAdminNetworkPolicy,
    /// `discovery.k8s.io/v1`
    EndpointSlice,
}

/// Whose endpoints count as local.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Node(Arc<str>),
    /// Every node's, for questions about both ends of a connection.
    Cluster,
}

/// A local endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    pub device: Arc<str>,
    pub nets: Vec<IpNet>,
    pub profiles: Vec<Arc<str>>,
    pub node: Arc<str>,
    class: ClassId,
}

impl Local {
    fn is_same(&self, endpoint: &Endpoint) -> bool {
        self.device == endpoint.device
            && self.nets == endpoint.nets
            && self.profiles == endpoint.profiles
            && self.node == endpoint.node
    }
}

/// A tier in which policies select an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierView {
    pub name: Arc<str>,
    /// At its end it passes on instead of dropping.
    pub passes: bool,
    pub policies: Vec<PolicyView>,
}

/// A policy that selects an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyView {
    pub id: PolicyId,
    pub ingress: bool,
    pub egress: bool,
    pub layer: Layer,
    pub staged: bool,
}

impl PolicyView {
    pub fn has(&self, direction: Direction) -> bool {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }
}

/// What changed since the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    pub sets: BTreeMap<Arc<SetSource>, SetUpdate>,
    /// Whose rules changed, and which became active or ceased to be.
    pub policies: BTreeSet<PolicyId>,
    pub profiles: BTreeSet<Arc<str>>,
    pub endpoints: BTreeSet<EndpointId>,
}

impl Update {
    pub fn is_empty(&self) -> bool {
        *self == Update::default()
    }
}

/// A record that cannot be understood in part, or as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// `knp/shop/web`, `profile kns.shop`, …
    pub record: String,
    pub reason: Arc<str>,
    /// Whether the endpoints that it selects are shut because of it.
    pub is_set_aside: bool,
}

/// Kind, namespace and name in the store.
type PolicyKey = (Kind, Option<Arc<str>>, Arc<str>);

#[derive(Debug)]
pub struct Calculation {
    scope: Scope,
    may_spoof: bool,
    sets: Sets,
    subjects: Subjects,
    /// Which policy the record of a key was read as.
    policy_keys: BTreeMap<PolicyKey, PolicyId>,
    /// What is wrong with records that are no policies and no profiles.
    faults: BTreeMap<String, Vec<Arc<str>>>,
}

impl Calculation {
    /// `may_spoof`: FelixConfiguration sets `workloadSourceSpoofing` to `Any`.
    pub fn new(scope: Scope, may_spoof: bool) -> Calculation {
        let mut calculation = Calculation {
            scope,
            may_spoof,
            sets: Sets::default(),
            subjects: Subjects::default(),
            policy_keys: BTreeMap::new(),
            faults: BTreeMap::new(),
        };
        let profile = model::resource::default_allow_profile();
        calculation.put_profile(&profile.metadata.name.as_str().into(), Some(record::read_profile(&profile)));
        calculation
    }

    /// A record as the store has it now. Kinds that say nothing about policy are ignored.
    pub fn put(&mut self, key: &Key, record: &Resource) {
        let Key::Resource { name, .. } = key else { return };
        let name: Arc<str> = name.as_str().into();
        match record.kind {
            Kind::WorkloadEndpoint | Kind::HostEndpoint | Kind::NetworkSet | Kind::GlobalNetworkSet => {
                self.put_endpoint(record);
            }
            Kind::Tier => {
                let (tier, fault) = record::read_tier(record);
                self.note(format!("tier {name}"), fault.map(|fault| fault.text()));
                self.subjects.put_tier(&name, Some(tier));
            }
            Kind::Profile => self.put_profile(&name, Some(record::read_profile(record))),
            kind => {
                let policy = match kind {
                    Kind::StagedKubernetesNetworkPolicy => record::read_staged_kubernetes(record),
                    _ => record::read_policy(record),
                };
                self.put_policy(kind, record.metadata.namespace.as_deref(), name, policy);
            }
        }
    }

    /// The store has no record of this key any more.
    pub fn remove(&mut self, key: &Key) {
        let Key::Resource { kind, namespace, name } = key else { return };
        let (kind, name): (Kind, Arc<str>) = (*kind, name.as_str().into());
        match kind {
            Kind::WorkloadEndpoint | Kind::HostEndpoint | Kind::NetworkSet | Kind::GlobalNetworkSet => {
                let id = endpoint_id(kind, namespace.as_deref(), &name);
                self.note(format!("{kind} {id}"), None);
                self.sets.remove_item(&id);
                self.subjects.remove_local(&id, &mut self.sets);
            }
            Kind::Tier => {
                self.note(format!("tier {name}"), None);
                self.subjects.put_tier(&name, None);
            }
            Kind::Profile => self.put_profile(&name, None),
            kind => self.put_policy(kind, namespace.as_deref(), name, None),
        }
    }

    /// An object of Kubernetes as its API server has it now.
    pub fn put_kubernetes(&mut self, kind: KubernetesKind, object: &Value) {
        let policy = match kind {
            KubernetesKind::EndpointSlice => {
                let text = |field: &str| object.get("metadata")?.get(field)?.as_str();
                let (Some(namespace), Some(name)) = (text("namespace"), text("name")) else { return };
                match record::read_slice(object) {
                    Some(slice) => self.sets.put_slice(slice),
                    None => self.sets.remove_slice(&namespace.into(), &name.into()),
                }
                return;
            }
            KubernetesKind::NetworkPolicy => record::read_kubernetes_policy(object),
            KubernetesKind::ClusterNetworkPolicy => {
                record::read_cluster_policy(ClusterKind::ClusterNetworkPolicy, object)
            }
            KubernetesKind::AdminNetworkPolicy => record::read_cluster_policy(ClusterKind::Admin, object),
            KubernetesKind::BaselineAdminNetworkPolicy => {
                record::read_cluster_policy(ClusterKind::Baseline, object)
            }
        };
        if let Some(policy) = policy {
            let name = Arc::clone(&policy.id.name);
            self.subjects.put_policy(&name, policy, &mut self.sets);
        }
    }

    pub fn remove_kubernetes(&mut self, kind: KubernetesKind, namespace: Option<&str>, name: &str) {
        let (namespace, name): (Option<Arc<str>>, Arc<str>) = (namespace.map(Into::into), name.into());
        let kind = match kind {
            KubernetesKind::EndpointSlice => {
                return self.sets.remove_slice(&namespace.unwrap_or_else(|| "".into()), &name);
            }
            KubernetesKind::NetworkPolicy => PolicyKind::KubernetesNetworkPolicy,
            KubernetesKind::ClusterNetworkPolicy => PolicyKind::ClusterNetworkPolicy,
            KubernetesKind::AdminNetworkPolicy => PolicyKind::AdminNetworkPolicy,
            KubernetesKind::BaselineAdminNetworkPolicy => PolicyKind::BaselineAdminNetworkPolicy,
        };
        let id = PolicyId { kind, namespace, name: Arc::clone(&name) };
        self.subjects.remove_policy(&name, &id, &mut self.sets);
    }

    /// The kernel refuses what a policy asks for. It denies everything then, to those whom it selects, until its record is put again. Says whether
    /// there is such a policy, and it was not set aside before.
    pub fn set_aside(&mut self, id: &PolicyId, why: &str) -> bool {
        let Some(policy) = self.subjects.policy(id).filter(|policy| policy.set_aside.is_none()) else {
            return false;
        };
        let policy = Policy { set_aside: Some(why.into()), ..Policy::clone(policy) };
        self.subjects.put_policy(&Arc::clone(&id.name), policy, &mut self.sets);
        true
    }

    /// What changed since the last call. The first time, that is everything.
    pub fn take_update(&mut self) -> Update {
        self.subjects.settle();
        Update {
            sets: self.sets.report(),
            policies: std::mem::take(&mut self.subjects.dirty_policies),
            profiles: std::mem::take(&mut self.subjects.dirty_profiles),
            endpoints: std::mem::take(&mut self.subjects.dirty_endpoints),
        }
    }

    pub fn locals(&self) -> &BTreeMap<EndpointId, Local> {
        self.subjects.locals()
    }

    /// The tiers that govern a local endpoint, in order. As of the last [`Calculation::take_update`].
    pub fn tiers(&self, local: &Local) -> Arc<[TierView]> {
        self.subjects.tiers_of(local)
    }

    /// The members of a set that an active rule refers to.
    pub fn members(&self, source: &SetSource) -> Option<impl Iterator<Item = &Element>> {
        self.sets.get(source).map(Members::elements)
    }

    /// Every set that an active rule refers to.
    pub fn sets(&self) -> impl Iterator<Item = &Arc<SetSource>> {
        self.sets.sources().map(|(source, _)| source)
    }

    pub(crate) fn set(&self, source: &SetSource) -> Option<&Members> {
        self.sets.get(source)
    }

    pub(crate) fn policy(&self, id: &PolicyId) -> Option<&Arc<Policy>> {
        self.subjects.policy(id)
    }

    /// A profile that a local endpoint names: not at all, named but absent, or there.
    pub(crate) fn profile(&self, name: &str) -> Option<Option<&Arc<Profile>>> {
        self.subjects.profile(name)
    }

    /// Everything that could not be understood.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for policy in self.subjects.all_policies() {
            let record = policy.id.to_string();
            let whole = policy.set_aside.iter().map(|reason| (reason, !policy.id.kind.is_staged()));
            for (reason, is_set_aside) in whole.chain(policy.remarks.iter().map(|remark| (remark, false))) {
                problems.push(Problem { record: record.clone(), reason: Arc::clone(reason), is_set_aside });
            }
        }
        for (name, profile) in self.subjects.all_profiles() {
            if let Some(reason) = &profile.set_aside {
                let (record, reason) = (format!("profile {name}"), Arc::clone(reason));
                problems.push(Problem { record, reason, is_set_aside: true });
            }
        }
        for (record, reasons) in &self.faults {
            let problem = |reason: &Arc<str>| Problem {
                record: record.clone(),
                reason: Arc::clone(reason),
                is_set_aside: false,
            };
            problems.extend(reasons.iter().map(problem));
        }
        problems.sort();
        problems
    }

    fn note(&mut self, record: String, faults: impl IntoIterator<Item = Arc<str>>) {
        let faults: Vec<Arc<str>> = faults.into_iter().collect();
        match faults.is_empty() {
            true => drop(self.faults.remove(&record)),
            false => drop(self.faults.insert(record, faults)),
        }
    }

    fn put_policy(&mut self, kind: Kind, namespace: Option<&str>, name: Arc<str>, policy: Option<Policy>) {
        let key = (kind, namespace.map(Into::into), Arc::clone(&name));
        let old = match &policy {
            Some(policy) => self.policy_keys.insert(key, policy.id.clone()),
            None => self.policy_keys.remove(&key),
        };
        if let Some(old) = old.filter(|old| policy.as_ref().is_none_or(|policy| policy.id != *old)) {
            self.subjects.remove_policy(&name, &old, &mut self.sets);
        }
        if let Some(policy) = policy {
            self.subjects.put_policy(&name, policy, &mut self.sets);
        }
    }

    fn put_profile(&mut self, name: &Arc<str>, profile: Option<Profile>) {
        if profile.is_none() && **name == *model::resource::DEFAULT_ALLOW_PROFILE {
            return;
        }
        let labels: LabelMap = profile.iter().flat_map(|profile| profile.labels.iter().cloned()).collect();
        self.sets.set_profile(name, labels);
        self.subjects.put_profile(name, profile, &mut self.sets);
    }

    fn put_endpoint(&mut self, record: &Resource) {
        let namespace = record.metadata.namespace.as_deref().filter(|_| record.kind.is_namespaced());
        let id = endpoint_id(record.kind, namespace, &record.metadata.name.as_str().into());
        let read = match record.kind {
            Kind::WorkloadEndpoint => record::read_workload(record, self.may_spoof),
            Kind::HostEndpoint => record::read_host(record).map(Some),
            _ => Ok(Some(record::read_network_set(record))),
        };
        let label = format!("{} {id}", record.kind);
        let endpoint = match read {
            Ok(endpoint) => {
                self.note(label, endpoint.iter().flat_map(|endpoint| endpoint.faults.iter().cloned()));
                endpoint
            }
            Err(fault) => {
                self.note(
                    label,
                    [format!("{fault}; the endpoint counts as missing, so its device is shut").into()],
                );
                None
            }
        };
        let Some(endpoint) = endpoint else {
            self.sets.remove_item(&id);
            self.subjects.remove_local(&id, &mut self.sets);
            return;
        };
        self.sets.put_item(&id, &endpoint);
        if id.kind != EndpointKind::NetworkSet && self.is_local(&endpoint) {
            self.subjects.put_local(&id, endpoint, &mut self.sets);
        } else {
            self.subjects.remove_local(&id, &mut self.sets);
        }
    }

    fn is_local(&self, endpoint: &Endpoint) -> bool {
        match &self.scope {
            Scope::Node(node) => endpoint.node.eq_ignore_ascii_case(node),
            Scope::Cluster => true,
        }
    }
}

fn endpoint_id(kind: Kind, namespace: Option<&str>, name: &Arc<str>) -> EndpointId {
    let kind = match kind {
        Kind::WorkloadEndpoint => EndpointKind::Workload,
        Kind::HostEndpoint => EndpointKind::Host,
        _ => EndpointKind::NetworkSet,
    };
    EndpointId { kind, namespace: namespace.map(Into::into), name: Arc::clone(name) }
}
