//! Records in; the wanted ruleset, and what changes in it, out. Pure but for the settings in the environment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::{Key, Kind, Resource};
use plan::between::NodeView;
use policy::ruleset::{Change, Ruleset};
use policy::{Calculation, EndpointKind, HostFacts, KubernetesKind, Rendering, Scope};
use serde_json::Value;
use store::Record;
use tracing::warn;

use super::records::Part;
use super::settings::PolicySettings;
use super::stand_in::{StandIns, bare_endpoint, fit_for_policy};
use super::superseded::Superseded;
use super::{Enforced, InForce};
use crate::felix::FelixEnvironment;
use crate::journal::Entry;

/// What is wanted of the kernel at one moment.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Against what was wanted before.
    pub(super) changes: Vec<Change>,
    pub(super) in_force: InForce,
    pub(super) policies: usize,
}

/// Felix shuts an endpoint with `allowSpoofedSourcePrefixes` where its settings do not allow these. Here it stays open: the rules against
/// spoofing, which are not part of policy, drop what it must not send.
const MAY_SPOOF: bool = true;

/// The table that holds all of policy, of the family `inet`.
pub(super) const TABLE: &str = "plumb-policy";

#[derive(Debug)]
pub(super) struct Engine {
    node: Arc<str>,
    calculation: Calculation,
    rendering: Rendering,
    /// Those that the calculation and the rendering were made with.
    settings: PolicySettings,
    /// How often they changed. After a change all records are read again.
    round: u64,
    stand_ins: StandIns,
    /// All parts that are followed.
    parts: BTreeSet<Part>,
    /// Those that have to be listed before anything is decided.
    incomplete: BTreeSet<Part>,
    /// Parts that the store does not have or does not show.
    absent: BTreeSet<Part>,
    /// Why it does not show them.
    hidden: BTreeMap<Part, String>,
    unreadable: BTreeSet<Key>,
    /// Of every kind, to find at a new list what is gone.
    cached: BTreeMap<Kind, BTreeSet<Key>>,
    /// Addresses of every node: packets of tunnels between them pass before policy of hosts is asked.
    nodes: BTreeMap<Key, Vec<IpAddr>>,
    /// Of this node's devices, by which some host endpoints are found.
    devices: BTreeMap<Arc<str>, BTreeSet<IpAddr>>,
    has_new_facts: bool,
    /// Attachments without records, by device.
    bare: BTreeMap<String, Resource>,
    superseded: Superseded,
    felix: BTreeMap<String, Resource>,
    environment: FelixEnvironment,
}

impl Engine {
    pub(super) fn new(node: &str) -> Engine {
        let environment = FelixEnvironment::read();
        let settings = PolicySettings::read(&BTreeMap::new(), &environment, node);
        Engine {
            node: node.into(),
            calculation: Calculation::new(Scope::Node(node.into()), MAY_SPOOF),
            rendering: Rendering::new(settings.rendering.clone()),
            settings,
            round: 0,
            stand_ins: StandIns::new(true),
            parts: BTreeSet::new(),
            // Before it is known which parts there are, something is missing.
            incomplete: Part::all(false),
            absent: BTreeSet::new(),
            hidden: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            cached: BTreeMap::new(),
            nodes: BTreeMap::new(),
            devices: BTreeMap::new(),
            has_new_facts: false,
            bare: BTreeMap::new(),
            superseded: Superseded::default(),
            felix: BTreeMap::new(),
            environment,
        }
    }

    /// What changed since the last call. The first time that is everything, into an empty table.
    pub(super) fn wanted(&mut self) -> Wanted {
        if std::mem::take(&mut self.has_new_facts) {
            let nodes = self.nodes.values().flatten().copied().collect();
            self.rendering.set_host_facts(HostFacts { devices: self.devices.clone(), nodes });
        }
        let superseded = self.superseded.changed();
        for endpoint in superseded.put {
            let key = endpoint.key();
            let profiles = self.stand_ins.needed_for(&key, &endpoint);
            profiles.iter().for_each(|profile| self.calculation.put(&profile.key(), profile));
            self.calculation.put(&key, &endpoint);
        }
        superseded.removed.iter().for_each(|key| self.calculation.remove(key));
        let update = self.calculation.take_update();
        let changes = self.rendering.update(&self.calculation, &update);
        let mut in_force: BTreeMap<Arc<str>, Enforced> = BTreeMap::new();
        let mut policies = BTreeSet::new();
        for (id, local) in self.calculation.locals() {
            for tier in self.calculation.tiers(local).iter() {
                policies.extend(
                    tier.policies.iter().filter(|policy| !policy.staged).map(|policy| policy.id.clone()),
                );
            }
            if id.kind == EndpointKind::Workload {
                let missing = local.profiles.iter().filter(|name| !self.stand_ins.has(name)).cloned();
                in_force.entry(Arc::clone(&local.device)).or_insert_with(|| Enforced {
                    nets: local.nets.clone(),
                    missing_profiles: missing.collect(),
                });
            }
        }
        Wanted { changes, in_force: Arc::new(in_force), policies: policies.len() }
    }

    /// All of what is wanted, as of the last [`Engine::wanted`].
    pub(super) fn ruleset(&self) -> Ruleset {
        self.rendering.ruleset(&self.calculation)
    }

    /// Sets aside the policies for which a change was to be made that the kernel refuses. Says which; none if the change is for no policy.
    pub(super) fn set_aside(&mut self, refused: &Change, why: &str) -> Vec<String> {
        let mut behind = self.rendering.policies_behind(refused);
        behind.retain(|policy| self.calculation.set_aside(policy, why));
        behind.iter().map(ToString::to_string).collect()
    }

    /// What could not be understood, in words.
    pub(super) fn problems(&self) -> Vec<String> {
        let problems = self.calculation.problems();
        problems.into_iter().map(|problem| format!("{}: {}", problem.record, problem.reason)).collect()
    }

    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// Starts over where the settings changed: what they say goes into every rule. Until all records are cached again, the kernel keeps its rules.
    fn set_settings(&mut self) {
        let settings = PolicySettings::read(&self.felix, &self.environment, &self.node);
        if settings == self.settings {
            return;
        }
        self.calculation = Calculation::new(Scope::Node(Arc::clone(&self.node)), MAY_SPOOF);
        self.rendering = Rendering::new(settings.rendering.clone());
        self.settings = settings;
        self.stand_ins.clear();
        self.superseded.begin_again();
        self.bare.values().for_each(|endpoint| self.calculation.put(&endpoint.key(), endpoint));
        self.cached.clear();
        self.has_new_facts = true;
        self.incomplete = self.parts.difference(&self.absent).copied().collect();
        self.incomplete.remove(&Part::Records(Kind::FelixConfiguration));
        self.round += 1;
    }

    /// `are_written`: whether there are profiles for all namespaces.
    pub(super) fn expect(&mut self, parts: BTreeSet<Part>, are_written: bool) {
        self.parts.clone_from(&parts);
        self.incomplete = parts;
        self.stand_ins = StandIns::new(!are_written);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.incomplete.is_empty()
    }

    pub(super) fn incomplete(&self) -> Vec<String> {
        self.incomplete.iter().map(|part| part.what()).collect()
    }

    /// A part was listed to its end. Says whether it was the last one.
    pub(super) fn is_listed(&mut self, part: Part) -> bool {
        self.hidden.remove(&part);
        self.absent.remove(&part);
        let is_new = self.incomplete.remove(&part);
        if part == Part::Records(Kind::FelixConfiguration) {
            self.set_settings();
        }
        is_new && self.incomplete.is_empty()
    }

    fn is_settings_listed(&self) -> bool {
        !self.incomplete.contains(&Part::Records(Kind::FelixConfiguration))
    }

    /// A part that the store does not have, or does not show for this reason.
    pub(super) fn without(&mut self, part: Part, hidden: Option<String>) {
        self.incomplete.remove(&part);
        self.absent.insert(part);
        if part == Part::Records(Kind::Profile) && hidden.is_some() {
            self.use_stand_ins();
        }
        match hidden {
            Some(reason) => drop(self.hidden.insert(part, reason)),
            None => drop(self.hidden.remove(&part)),
        }
    }

    /// The agent may not read what opens the pods of a namespace. Without rights that an earlier version did not need, it shuts no pod.
    fn use_stand_ins(&mut self) {
        self.stand_ins = StandIns::new(true);
        let named = self.calculation.locals().values().flat_map(|local| local.profiles.iter().cloned());
        for name in named.collect::<BTreeSet<_>>() {
            if let Some(profile) = self.stand_ins.needed(&name) {
                self.calculation.put(&profile.key(), &profile);
            }
        }
    }

    pub(super) fn unreadable(&self) -> Vec<String> {
        let hidden = self.hidden.iter().map(|(part, reason)| format!("all {} ({reason})", part.what()));
        self.unreadable.iter().map(Key::to_string).chain(hidden).collect()
    }

    pub(super) fn put(&mut self, kind: Kind, record: &Record) {
        let key = &record.key;
        self.cached.entry(kind).or_default().insert(key.clone());
        match Resource::decode(key, kind, &record.value, record.revision.as_str()) {
            Ok(resource) => {
                self.unreadable.remove(key);
                self.put_resource(key, resource);
            }
            Err(error) => {
                if self.unreadable.insert(key.clone()) {
                    warn!(%error, "cannot read a record that policy depends on; its last readable version stays in use");
                }
            }
        }
    }

    /// An attachment that has no record in this kind of store. No policy can select it.
    pub(super) fn put_bare(&mut self, device: &str, addresses: &[IpAddr]) {
        let endpoint = bare_endpoint(&self.node, device, addresses);
        self.calculation.put(&endpoint.key(), &endpoint);
        self.bare.insert(device.to_owned(), endpoint);
    }

    pub(super) fn remove_bare(&mut self, device: &str) {
        if let Some(endpoint) = self.bare.remove(device) {
            self.calculation.remove(&endpoint.key());
        }
    }

    /// An attachment of the journal, which may outlive its record.
    pub(super) fn attach(&mut self, entry: &Entry) {
        self.superseded.attach(entry, &self.node);
    }

    pub(super) fn detach(&mut self, device: &str) {
        self.superseded.detach(device);
    }

    /// Whether there are endpoints that are hosts, on any node.
    pub(super) fn has_hosts(&self) -> bool {
        self.cached.get(&Kind::HostEndpoint).is_some_and(|cached| !cached.is_empty())
    }

    /// Says whether they are others than before.
    pub(super) fn set_devices(&mut self, devices: BTreeMap<Arc<str>, BTreeSet<IpAddr>>) -> bool {
        let is_new = self.devices != devices;
        self.devices = devices;
        self.has_new_facts |= is_new;
        is_new
    }

    fn put_node(&mut self, key: &Key, node: Option<&Resource>) {
        let view = node.map(NodeView::read).unwrap_or_default();
        let addresses =
            [view.v4.address, view.v6.address].into_iter().flatten().map(|net| net.addr()).collect();
        let old = match node {
            Some(_) => self.nodes.insert(key.clone(), addresses),
            None => self.nodes.remove(key),
        };
        self.has_new_facts |= old.as_ref() != self.nodes.get(key);
    }

    fn put_resource(&mut self, key: &Key, mut resource: Resource) {
        if resource.kind == Kind::Node {
            return self.put_node(key, Some(&resource));
        }
        if resource.kind == Kind::FelixConfiguration {
            self.felix.insert(resource.metadata.name.clone(), resource);
            // A list is not complete before its end.
            if self.is_settings_listed() {
                self.set_settings();
            }
            return;
        }
        fit_for_policy(&mut resource);
        if resource.kind == Kind::WorkloadEndpoint {
            self.superseded.put(key, &resource, &self.node);
        }
        for profile in self.stand_ins.needed_for(key, &resource) {
            self.calculation.put(&profile.key(), &profile);
        }
        self.calculation.put(key, &resource);
    }

    pub(super) fn remove(&mut self, kind: Kind, key: &Key) {
        self.cached.entry(kind).or_default().remove(key);
        self.unreadable.remove(key);
        if let (Kind::FelixConfiguration, Key::Resource { name, .. }) = (kind, key) {
            self.felix.remove(name);
            if self.is_settings_listed() {
                self.set_settings();
            }
            return;
        }
        if kind == Kind::Node {
            return self.put_node(key, None);
        }
        self.superseded.remove(key);
        match self.stand_ins.instead_of(key) {
            Some(profile) => self.calculation.put(key, &profile),
            None => self.calculation.remove(key),
        }
    }

    /// After a list: whatever it did not show is gone.
    pub(super) fn keep_only(&mut self, kind: Kind, listed: &BTreeSet<Key>) {
        let cached = self.cached.remove(&kind).unwrap_or_default();
        for key in cached.difference(listed) {
            self.remove(kind, key);
        }
        self.cached.insert(kind, listed.clone());
    }

    pub(super) fn put_object(&mut self, kind: KubernetesKind, object: &Value) {
        self.calculation.put_kubernetes(kind, object);
    }

    pub(super) fn remove_object(&mut self, kind: KubernetesKind, namespace: Option<&str>, name: &str) {
        self.calculation.remove_kubernetes(kind, namespace, name);
    }
}

#[cfg(test)]
mod tests {
    use model::KeyRange;
    use serde_json::json;
    use store::{MemoryStore, Store};

    use super::*;

    #[test]
    fn the_table_is_the_one_that_others_know_as_ours() {
        assert_eq!(format!("inet {TABLE}"), plan::between::POLICY_TABLE);
    }

    async fn put(store: &dyn Store, kind: Kind, namespace: Option<&str>, name: &str, spec: Value) {
        let mut resource = Resource::new(kind, name);
        resource.metadata.namespace = namespace.map(str::to_owned);
        resource.body.insert("spec".to_owned(), spec);
        store.create(resource.key(), resource.encode()).await.unwrap();
    }

    async fn records(store: &dyn Store, kind: Kind) -> Vec<Record> {
        store.list_all(KeyRange::Kind(kind)).await.unwrap().0
    }

    fn endpoint(node: &str, device: &str, address: &str) -> Value {
        json!({"node": node, "orchestrator": "k8s", "workload": "", "pod": "a", "endpoint": "eth0", "containerID": "c",
            "interfaceName": device, "ipNetworks": [address], "profiles": ["kns.shop"]})
    }

    fn listed(engine: &mut Engine) {
        for part in Part::all(false) {
            engine.is_listed(part);
        }
    }

    #[tokio::test]
    async fn records_become_rules_and_what_a_new_list_does_not_show_goes() {
        let store = MemoryStore::new();
        let store: &dyn Store = &store;
        put(
            store,
            Kind::WorkloadEndpoint,
            Some("shop"),
            "a-k8s-a-eth0",
            endpoint("a", "cali1", "10.0.0.1/32"),
        )
        .await;
        put(
            store,
            Kind::GlobalNetworkPolicy,
            None,
            "shut",
            json!({"selector": "all()", "types": ["Ingress"]}),
        )
        .await;
        let mut engine = Engine::new("a");
        engine.expect(Part::all(false), false);
        for kind in [Kind::WorkloadEndpoint, Kind::GlobalNetworkPolicy] {
            for record in records(store, kind).await {
                engine.put(kind, &record);
            }
        }
        assert!(!engine.is_complete());
        listed(&mut engine);
        assert!(engine.is_complete());
        let wanted = engine.wanted();
        assert_eq!(
            (wanted.policies, wanted.in_force.keys().map(|device| &**device).collect::<Vec<_>>()),
            (1, vec!["cali1"])
        );
        assert!(!wanted.changes.is_empty());
        let mut from_changes = Ruleset::default();
        from_changes.apply(&wanted.changes).unwrap();
        assert_eq!(from_changes, engine.ruleset());
        let rules = engine.ruleset().to_string();
        assert!(rules.contains("gnp/shut") && rules.contains("pri-kns.shop"), "{rules}");
        engine.keep_only(Kind::GlobalNetworkPolicy, &BTreeSet::new());
        assert_eq!(engine.wanted().policies, 0);
        assert!(!engine.ruleset().to_string().contains("gnp/shut"));
    }

    #[tokio::test]
    async fn what_the_kernel_refuses_is_set_aside_and_shuts_those_whom_it_selects() {
        let store = MemoryStore::new();
        let store: &dyn Store = &store;
        put(
            store,
            Kind::WorkloadEndpoint,
            Some("shop"),
            "a-k8s-a-eth0",
            endpoint("a", "cali1", "10.0.0.1/32"),
        )
        .await;
        for name in ["bad", "good"] {
            let rules = json!([{"action": "Allow", "source": {"nets": ["192.0.2.0/24"]}}]);
            put(store, Kind::GlobalNetworkPolicy, None, name, json!({"selector": "all()", "ingress": rules}))
                .await;
        }
        let mut engine = Engine::new("a");
        for kind in [Kind::WorkloadEndpoint, Kind::GlobalNetworkPolicy] {
            for record in records(store, kind).await {
                engine.put(kind, &record);
            }
        }
        let writes_bad =
            |change: &&Change| matches!(change, Change::AddRules { chain, .. } if chain.ends_with("gnp/bad"));
        let wanted = engine.wanted();
        let refused = wanted.changes.iter().find(writes_bad).unwrap();
        assert_eq!(engine.set_aside(refused, "no such expression"), ["gnp/bad"]);
        assert_eq!(engine.set_aside(refused, "no such expression"), [] as [&str; 0], "once");
        let changes = engine.wanted().changes;
        let rewritten = changes.iter().find(writes_bad).unwrap().to_string();
        assert!(rewritten.contains("drop") && rewritten.contains("no such expression"), "{rewritten}");
        assert!(!changes.iter().any(|change| change.to_string().contains("gnp/good")), "{changes:?}");
        assert_eq!(engine.problems().len(), 1);
    }

    #[test]
    fn profiles_that_may_not_be_read_shut_no_pod() {
        let mut engine = Engine::new("a");
        engine.expect(Part::all(true), true);
        let mut pod = Resource::new(Kind::WorkloadEndpoint, "a-k8s-a-eth0");
        pod.metadata.namespace = Some("shop".to_owned());
        pod.body.insert("spec".to_owned(), endpoint("a", "cali1", "10.0.0.1/32"));
        engine.put_resource(&pod.key(), pod.clone());
        let opens = |engine: &mut Engine| {
            let _ = engine.wanted();
            engine.ruleset().to_string().contains("n-pri-kns.shop/0")
        };
        assert!(!opens(&mut engine), "it is not seen yet");
        engine.without(Part::Records(Kind::Profile), Some("no rights".to_owned()));
        assert!(opens(&mut engine));
    }

    #[test]
    fn addresses_of_nodes_are_facts_for_policy_of_hosts() {
        let mut engine = Engine::new("a");
        let mut node = Resource::new(Kind::Node, "b");
        node.body.insert("spec".to_owned(), json!({"bgp": {"ipv4Address": "172.30.0.2/24"}}));
        engine.put_resource(&node.key(), node.clone());
        assert!(std::mem::take(&mut engine.has_new_facts));
        engine.put_resource(&node.key(), node.clone());
        assert!(!engine.has_new_facts, "nothing else");
        assert_eq!(
            engine.nodes.values().flatten().copied().collect::<Vec<_>>(),
            [IpAddr::from([172, 30, 0, 2])]
        );
        engine.remove(Kind::Node, &node.key());
        assert!(engine.has_new_facts && engine.nodes.is_empty());
    }

    #[test]
    fn other_settings_begin_anew_and_what_cannot_be_read_is_named() {
        let mut engine = Engine::new("a");
        engine.expect(Part::all(false), false);
        listed(&mut engine);
        assert_eq!(engine.round(), 0);
        let mut felix = Resource::new(Kind::FelixConfiguration, "default");
        felix.body.insert("spec".to_owned(), json!({"defaultEndpointToHostAction": "Drop"}));
        engine.put_resource(&felix.key(), felix.clone());
        assert_eq!((engine.round(), engine.is_complete()), (1, false));
        listed(&mut engine);
        assert_eq!((engine.round(), engine.is_complete()), (1, true));
        let key = Key::cluster(Kind::GlobalNetworkPolicy, "broken");
        engine.put(
            Kind::GlobalNetworkPolicy,
            &Record { key, value: b"{".to_vec().into(), revision: store::Revision::new("1") },
        );
        engine.without(Part::Records(Kind::Tier), Some("no rights".to_owned()));
        assert_eq!(engine.unreadable(), ["GlobalNetworkPolicy(broken)", "all tiers (no rights)"]);
    }
}
