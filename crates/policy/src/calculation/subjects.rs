//! Which policies and profiles govern which local endpoints, in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::labels::{ClassId, LabelIndex, LabelMap, SelectorId};
use crate::record::{Direction, Endpoint, Layer, Order, Policy, PolicyId, Profile, Rule, Tier};

use super::sets::Sets;
use super::{EndpointId, Local, PolicyView, TierView};

/// The same name in a store may be written twice, while an upgrade renames records: the key that sorts first counts.
#[derive(Debug)]
struct Held {
    by_key: BTreeMap<Arc<str>, Arc<Policy>>,
    subject: SelectorId,
    is_active: bool,
}

impl Held {
    fn policy(&self) -> Option<&Arc<Policy>> {
        self.by_key.values().next()
    }
}

#[derive(Debug, Default)]
struct HeldProfile {
    profile: Option<Arc<Profile>>,
    /// Local endpoints that name it.
    users: usize,
}

#[derive(Debug, Default)]
pub(super) struct Subjects {
    index: LabelIndex,
    policies: BTreeMap<PolicyId, Held>,
    policies_of_selector: BTreeMap<SelectorId, BTreeSet<PolicyId>>,
    profiles: BTreeMap<Arc<str>, HeldProfile>,
    tiers: BTreeMap<Arc<str>, Tier>,
    locals: BTreeMap<EndpointId, Local>,
    locals_of_class: BTreeMap<ClassId, BTreeSet<EndpointId>>,
    tiers_of_class: BTreeMap<ClassId, Arc<[TierView]>>,
    dirty_classes: BTreeSet<ClassId>,
    pub(super) dirty_policies: BTreeSet<PolicyId>,
    pub(super) dirty_profiles: BTreeSet<Arc<str>>,
    pub(super) dirty_endpoints: BTreeSet<EndpointId>,
}

/// Tiers that Calico makes in every cluster. They count as such before their records are there: without one, what comes after them would be
/// shut.
fn built_in_tier(name: &str) -> Option<Tier> {
    let (order, passes) = match name {
        "default" => (1e6, false),
        "kube-admin" | "adminnetworkpolicy" => (1e3, true),
        "kube-baseline" | "baselineadminnetworkpolicy" => (1e7, true),
        _ => return None,
    };
    Some(Tier { order: Order::new(order), passes })
}

impl Subjects {
    pub(super) fn policy(&self, id: &PolicyId) -> Option<&Arc<Policy>> {
        self.policies.get(id).filter(|held| held.is_active).and_then(Held::policy)
    }

    pub(super) fn all_policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.values().filter_map(Held::policy)
    }

    /// One that a local endpoint names. It need not exist.
    pub(super) fn profile(&self, name: &str) -> Option<Option<&Arc<Profile>>> {
        self.profiles.get(name).filter(|held| held.users > 0).map(|held| held.profile.as_ref())
    }

    pub(super) fn all_profiles(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Profile>)> {
        self.profiles.iter().filter_map(|(name, held)| Some((name, held.profile.as_ref()?)))
    }

    pub(super) fn locals(&self) -> &BTreeMap<EndpointId, Local> {
        &self.locals
    }

    pub(super) fn tiers_of(&self, local: &Local) -> Arc<[TierView]> {
        self.tiers_of_class.get(&local.class).cloned().unwrap_or_default()
    }

    pub(super) fn put_policy(&mut self, key: &Arc<str>, policy: Policy, sets: &mut Sets) {
        let id = policy.id.clone();
        let held = self.policies.get(&id);
        if held.and_then(|held| held.by_key.get(key)).is_some_and(|old| **old == policy) {
            return;
        }
        let mut by_key = self.drop_policy(&id, sets);
        by_key.insert(Arc::clone(key), Arc::new(policy));
        self.hold_policy(id, by_key, sets);
    }

    pub(super) fn remove_policy(&mut self, key: &Arc<str>, id: &PolicyId, sets: &mut Sets) {
        let mut by_key = self.drop_policy(id, sets);
        by_key.remove(key);
        self.hold_policy(id.clone(), by_key, sets);
    }

    fn hold_policy(&mut self, id: PolicyId, by_key: BTreeMap<Arc<str>, Arc<Policy>>, sets: &mut Sets) {
        let Some(policy) = by_key.values().next().cloned() else { return };
        let subject = self.index.watch(&policy.subject);
        // A selector that nobody watched before belongs to this policy alone, which is looked at below.
        self.index.take_turns();
        self.policies_of_selector.entry(subject).or_default().insert(id.clone());
        self.dirty_classes.extend(self.index.classes_of(subject));
        self.policies.insert(id.clone(), Held { by_key, subject, is_active: false });
        self.refresh(&id, sets);
    }

    fn drop_policy(&mut self, id: &PolicyId, sets: &mut Sets) -> BTreeMap<Arc<str>, Arc<Policy>> {
        let Some(held) = self.policies.remove(id) else { return BTreeMap::new() };
        self.dirty_classes.extend(self.index.classes_of(held.subject));
        if let Some(policies) = self.policies_of_selector.get_mut(&held.subject) {
            policies.remove(id);
            if policies.is_empty() {
                self.policies_of_selector.remove(&held.subject);
            }
        }
        self.index.unwatch(held.subject);
        if held.is_active {
            self.dirty_policies.insert(id.clone());
            held.policy()
                .into_iter()
                .flat_map(|policy| rules(policy))
                .flat_map(Rule::sets)
                .for_each(|set| sets.release(set));
        }
        held.by_key
    }

    /// Activates a policy that has a local endpoint to govern, and the other way round.
    fn refresh(&mut self, id: &PolicyId, sets: &mut Sets) {
        let Some(held) = self.policies.get_mut(id) else { return };
        let is_active = self.index.classes_of(held.subject).next().is_some();
        if is_active == held.is_active {
            return;
        }
        held.is_active = is_active;
        self.dirty_policies.insert(id.clone());
        for set in held.policy().into_iter().flat_map(|policy| rules(policy)).flat_map(Rule::sets) {
            if is_active { sets.acquire(set) } else { sets.release(set) }
        }
    }

    fn refresh_all(&mut self, selectors: impl IntoIterator<Item = SelectorId>, sets: &mut Sets) {
        for selector in selectors {
            for policy in self.policies_of_selector.get(&selector).cloned().unwrap_or_default() {
                self.refresh(&policy, sets);
            }
        }
    }

    fn follow_turns(&mut self, sets: &mut Sets) {
        for turn in self.index.take_turns() {
            self.dirty_classes.insert(turn.class);
            self.refresh_all([turn.selector], sets);
        }
    }

    pub(super) fn put_tier(&mut self, name: &Arc<str>, tier: Option<Tier>) {
        if self.tiers.get(name) == tier.as_ref() {
            return;
        }
        self.tiers.remove(name);
        self.tiers.extend(tier.map(|tier| (Arc::clone(name), tier)));
        self.dirty_classes.extend(self.locals_of_class.keys());
    }

    pub(super) fn put_profile(&mut self, name: &Arc<str>, profile: Option<Profile>, sets: &mut Sets) {
        let held = self.profiles.entry(Arc::clone(name)).or_default();
        if held.profile.as_deref() == profile.as_ref() {
            return;
        }
        let labels: LabelMap = profile.iter().flat_map(|profile| profile.labels.iter().cloned()).collect();
        let new = profile.map(Arc::new);
        let old = std::mem::replace(&mut held.profile, new.clone());
        if held.users > 0 {
            self.dirty_profiles.insert(Arc::clone(name));
            new.iter()
                .flat_map(|profile| profile_rules(profile))
                .flat_map(Rule::sets)
                .for_each(|set| sets.acquire(set));
            old.iter()
                .flat_map(|profile| profile_rules(profile))
                .flat_map(Rule::sets)
                .for_each(|set| sets.release(set));
        } else if held.profile.is_none() {
            self.profiles.remove(name);
        }
        self.index.set_parent(name, labels);
        self.follow_turns(sets);
    }

    pub(super) fn put_local(&mut self, id: &EndpointId, endpoint: Endpoint, sets: &mut Sets) {
        let old = self.locals.get(id);
        let is_same = old.is_some_and(|old| old.is_same(&endpoint));
        let class = self.index.enter(&endpoint.labels, &endpoint.profiles);
        if is_same && old.is_some_and(|old| old.class == class) {
            self.index.leave(class);
            return;
        }
        // The new profiles are used before the old ones are not, so that those in both stay.
        self.use_profiles(&endpoint.profiles, sets);
        self.follow_turns(sets);
        self.remove_local(id, sets);
        self.locals_of_class.entry(class).or_default().insert(id.clone());
        self.dirty_endpoints.insert(id.clone());
        self.dirty_classes.insert(class);
        let (device, nets, profiles) = (endpoint.device, endpoint.nets, endpoint.profiles);
        self.locals.insert(id.clone(), Local { device, nets, profiles, class, node: endpoint.node });
        let selectors: Vec<SelectorId> = self.index.matched_by(class).collect();
        self.refresh_all(selectors, sets);
    }

    pub(super) fn remove_local(&mut self, id: &EndpointId, sets: &mut Sets) {
        let Some(local) = self.locals.remove(id) else { return };
        self.dirty_endpoints.insert(id.clone());
        if let Some(locals) = self.locals_of_class.get_mut(&local.class) {
            locals.remove(id);
            if locals.is_empty() {
                self.locals_of_class.remove(&local.class);
                self.tiers_of_class.remove(&local.class);
            }
        }
        let selectors: Vec<SelectorId> = self.index.matched_by(local.class).collect();
        self.index.leave(local.class);
        self.refresh_all(selectors, sets);
        for name in &local.profiles {
            let Some(held) = self.profiles.get_mut(name) else { continue };
            held.users -= 1;
            if held.users > 0 {
                continue;
            }
            self.dirty_profiles.insert(Arc::clone(name));
            let rules = held.profile.iter().flat_map(|profile| profile_rules(profile));
            rules.flat_map(Rule::sets).for_each(|set| sets.release(set));
            if held.profile.is_none() {
                self.profiles.remove(name);
            }
        }
    }

    fn use_profiles(&mut self, names: &[Arc<str>], sets: &mut Sets) {
        for name in names {
            let held = self.profiles.entry(Arc::clone(name)).or_default();
            held.users += 1;
            if held.users == 1 {
                self.dirty_profiles.insert(Arc::clone(name));
                let rules = held.profile.iter().flat_map(|profile| profile_rules(profile));
                rules.flat_map(Rule::sets).for_each(|set| sets.acquire(set));
            }
        }
    }

    /// Puts the policies of classes that changed in order again. An endpoint is dirty only if they differ from before.
    pub(super) fn settle(&mut self) {
        for class in std::mem::take(&mut self.dirty_classes) {
            let Some(locals) = self.locals_of_class.get(&class) else { continue };
            let tiers = self.ordered(class);
            if self.tiers_of_class.get(&class).is_some_and(|old| **old == *tiers) {
                continue;
            }
            self.dirty_endpoints.extend(locals.iter().cloned());
            self.tiers_of_class.insert(class, tiers.into());
        }
    }

    fn ordered(&self, class: ClassId) -> Vec<TierView> {
        let selectors = self.index.matched_by(class);
        let ids = selectors.filter_map(|selector| self.policies_of_selector.get(&selector)).flatten();
        let policies = ids.filter_map(|id| self.policies.get(id).and_then(Held::policy));
        let mut by_tier: BTreeMap<_, Vec<&Arc<Policy>>> = BTreeMap::new();
        for policy in policies {
            by_tier.entry(self.place_of_tier(&policy.tier)).or_default().push(policy);
        }
        by_tier
            .into_iter()
            .map(|((_, _, name), mut policies)| {
                policies.sort_by_cached_key(|policy| (policy.order, name_for_order(&policy.id)));
                let passes = self
                    .tiers
                    .get(&name)
                    .cloned()
                    .or_else(|| built_in_tier(&name))
                    .is_some_and(|tier| tier.passes);
                TierView { name, passes, policies: policies.into_iter().map(view).collect() }
            })
            .collect()
    }

    /// Tiers without a record come last.
    fn place_of_tier(&self, name: &Arc<str>) -> (bool, Order, Arc<str>) {
        let tier = self.tiers.get(name).cloned().or_else(|| built_in_tier(name));
        (tier.is_none(), tier.map_or(Order::LAST, |tier| tier.order), Arc::clone(name))
    }
}

fn view(policy: &Arc<Policy>) -> PolicyView {
    PolicyView {
        id: policy.id.clone(),
        ingress: policy.ingress.is_some(),
        egress: policy.egress.is_some(),
        layer: policy.layer,
        staged: policy.id.kind.is_staged(),
    }
}

/// Policies of equal order are compared by this text, byte by byte.
fn name_for_order(id: &PolicyId) -> String {
    format!("{}/{}/{}", id.name, id.namespace.as_deref().unwrap_or_default(), id.kind.name())
}

fn rules(policy: &Policy) -> impl Iterator<Item = &Rule> {
    Direction::BOTH.into_iter().filter_map(|direction| policy.rules(direction)).flatten()
}

fn profile_rules(profile: &Profile) -> impl Iterator<Item = &Rule> {
    Direction::BOTH.into_iter().flat_map(|direction| profile.rules(direction))
}

impl Layer {
    /// Whether a policy of this layer is asked where endpoints of workloads, or local processes of a host, are concerned.
    pub fn is_normal(self) -> bool {
        matches!(self, Layer::Normal | Layer::NormalAndForward)
    }
}
