//! The calculated policies as a ruleset for the kernel, and the changes that keep it so.
//!
//! All of it is in one table of its own. A packet of a workload goes from the base chain of its hook through a verdict map to the chain of its device.
//! That accepts established connections, and asks the chains of policies, tier by tier, then those of profiles. "This end accepts" is a bit of the
//! packet's mark, because the other end may still have to be asked.
//!
//! [`Rendering::update`] writes again only what an update of the calculation concerns. The members of sets are not kept a second time:
//! [`Rendering::ruleset`] puts them in.

mod chains;
mod hosts;
mod rules;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use model::IpVersion;

use crate::calculation::{Calculation, EndpointId, EndpointKind, SetUpdate, Update};
use crate::record::{PolicyId, SetSource};
use crate::ruleset::{Change, Element, Name, Need, Ruleset, Set, SetKind, Table};
use chains::{FROM_WORKLOADS, Part, TO_WORKLOADS, Writer};
use rules::{Contents, Wanted};

pub use hosts::HostFacts;
pub use settings::{DenyAction, EndpointToHost, Failsafe, Settings};

/// What is written as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    /// What depends on settings only, or on all host endpoints together.
    Frame,
    Policy(PolicyId),
    Profile(Arc<str>),
    /// The device of a workload.
    Workload(Arc<str>),
}

#[derive(Debug)]
struct KernelSet {
    contents: Contents,
    /// Rules that refer to it.
    uses: usize,
    /// Of a set of networks: what the kernel has, which is the outermost.
    networks: BTreeSet<IpNet>,
}

#[derive(Debug)]
pub struct Rendering {
    settings: Settings,
    facts: HostFacts,
    is_started: bool,
    has_new_facts: bool,
    parts: BTreeMap<Unit, Part>,
    sets: BTreeMap<Name, KernelSet>,
    counters: BTreeMap<Name, usize>,
    /// Units whose rules refer to a calculated set, and whether they look for networks in it.
    users: BTreeMap<Arc<SetSource>, BTreeSet<Unit>>,
    shapes: BTreeMap<Arc<SetSource>, [bool; 2]>,
    /// Endpoints that claim a device. The first governs it.
    claims: BTreeMap<Arc<str>, BTreeSet<EndpointId>>,
    device_of: BTreeMap<EndpointId, Arc<str>>,
}

const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

impl Rendering {
    pub fn new(settings: Settings) -> Rendering {
        Rendering {
            settings,
            facts: HostFacts::default(),
            is_started: false,
            has_new_facts: false,
            parts: BTreeMap::new(),
            sets: BTreeMap::new(),
            counters: BTreeMap::new(),
            users: BTreeMap::new(),
            shapes: BTreeMap::new(),
            claims: BTreeMap::new(),
            device_of: BTreeMap::new(),
        }
    }

    /// What is known of this node and the others now. The next update takes it into account.
    pub fn set_host_facts(&mut self, facts: HostFacts) {
        self.has_new_facts |= self.facts != facts;
        self.facts = facts;
    }

    /// What follows from an update of the calculation, which it has to come from. The first time, that is everything, into an empty table.
    pub fn update(&mut self, calculation: &Calculation, update: &Update) -> Vec<Change> {
        let mut changed = Changed::default();
        let is_first = !std::mem::replace(&mut self.is_started, true);
        let mut units = self.concerned(calculation, update);
        let has_new_hosts = update.endpoints.iter().any(|id| id.kind == EndpointKind::Host);
        if is_first || has_new_hosts || std::mem::take(&mut self.has_new_facts) {
            units.insert(Unit::Frame);
        }
        for unit in units {
            let new = self.write(calculation, &unit);
            let old = self.parts.remove(&unit).unwrap_or_default();
            if old != new {
                changed.exchange(&old, &new);
                self.count(&old, &new, &unit, &mut changed);
            }
            if new != Part::default() {
                self.parts.insert(unit, new);
            }
        }
        self.settle_sets(calculation, update, &mut changed);
        changed.into_changes(&self.settings.table, is_first)
    }

    /// The whole ruleset, as all changes together have made it.
    pub fn ruleset(&self, calculation: &Calculation) -> Ruleset {
        let mut table = Table { counters: self.counters.keys().cloned().collect(), ..Table::default() };
        if self.is_started {
            table.maps = maps();
        }
        for part in self.parts.values() {
            table.chains.extend(part.chains.clone());
            for ((map, device), verdict) in &part.elements {
                table.maps.entry(Arc::clone(map)).or_default().insert(Arc::clone(device), verdict.clone());
            }
        }
        for (name, set) in &self.sets {
            let elements = match set.contents.kind() {
                SetKind::Networks(_) if matches!(set.contents, Contents::Members(..)) => {
                    set.networks.iter().copied().map(Element::Network).collect()
                }
                _ => elements(calculation, &set.contents),
            };
            table.sets.insert(Arc::clone(name), Set { kind: set.contents.kind(), elements });
        }
        match self.is_started {
            true => Ruleset { tables: BTreeMap::from([(Arc::clone(&self.settings.table), table)]) },
            false => Ruleset::default(),
        }
    }

    /// The policies whose rules a change writes, or whose sets. Not those of other changes that only follow from it.
    pub fn policies_behind(&self, change: &Change) -> Vec<PolicyId> {
        let is_behind = |part: &Part| match change {
            Change::AddChain { chain, .. } | Change::AddRules { chain, .. } => {
                part.chains.contains_key(chain)
            }
            Change::AddSet { set, .. }
            | Change::AddElements { set, .. }
            | Change::DeleteElements { set, .. } => part.sets.contains_key(set),
            _ => false,
        };
        let behind =
            self.parts.iter().filter(|(_, part)| is_behind(part)).filter_map(|(unit, _)| match unit {
                Unit::Policy(id) => Some(id.clone()),
                Unit::Frame | Unit::Profile(_) | Unit::Workload(_) => None,
            });
        behind.collect()
    }

    /// What has to be written again.
    fn concerned(&mut self, calculation: &Calculation, update: &Update) -> BTreeSet<Unit> {
        let mut units: BTreeSet<Unit> = update.policies.iter().cloned().map(Unit::Policy).collect();
        units.extend(update.profiles.iter().cloned().map(Unit::Profile));
        for id in &update.endpoints {
            units.extend(self.claim(calculation, id));
        }
        for source in update.sets.keys() {
            let set = calculation.set(source);
            let shape = VERSIONS.map(|version| set.is_some_and(|set| set.has_networks(version)));
            let old = match set {
                Some(_) => self.shapes.insert(Arc::clone(source), shape),
                None => self.shapes.remove(source),
            };
            if old.unwrap_or_default() != shape {
                units.extend(self.users.get(source).into_iter().flatten().cloned());
            }
        }
        units
    }

    /// Notes which device an endpoint has now, and gives the devices that this concerns.
    fn claim(&mut self, calculation: &Calculation, id: &EndpointId) -> Vec<Unit> {
        if id.kind != EndpointKind::Workload {
            return Vec::new();
        }
        let new = calculation
            .locals()
            .get(id)
            .map(|local| Arc::clone(&local.device))
            .filter(|device| !device.is_empty());
        let old = match &new {
            Some(device) => self.device_of.insert(id.clone(), Arc::clone(device)),
            None => self.device_of.remove(id),
        };
        if let Some(device) = old.as_ref().filter(|old| new.as_ref() != Some(old))
            && let Some(claims) = self.claims.get_mut(device)
        {
            claims.remove(id);
            if claims.is_empty() {
                self.claims.remove(device);
            }
        }
        if let Some(device) = &new {
            self.claims.entry(Arc::clone(device)).or_default().insert(id.clone());
        }
        old.into_iter().chain(new).map(Unit::Workload).collect()
    }

    fn write(&self, calculation: &Calculation, unit: &Unit) -> Part {
        let writer = Writer { calculation, settings: &self.settings, marks: self.settings.marks() };
        match unit {
            Unit::Frame => {
                let mut part = writer.frame();
                writer.hooks(&self.facts, &mut part);
                part
            }
            Unit::Policy(id) => match calculation.policy(id) {
                Some(policy) if id.kind.is_rendered() => writer.policy(policy),
                _ => Part::default(),
            },
            Unit::Profile(name) => match calculation.profile(name) {
                Some(profile) => writer.profile(name, profile.map(|profile| &**profile)),
                None => Part::default(),
            },
            Unit::Workload(device) => {
                let governing = self.claims.get(device).and_then(BTreeSet::first);
                let local = governing.and_then(|id| calculation.locals().get(id));
                local.map_or_else(Part::default, |local| writer.workload(local))
            }
        }
    }

    /// Counts what rules refer to. What nothing refers to any more goes, and what is referred to for the first time comes.
    fn count(&mut self, old: &Part, new: &Part, unit: &Unit, changed: &mut Changed) {
        for (part, is_added) in [(new, true), (old, false)] {
            for rule in part.chains.values().flat_map(|chain| &chain.rules) {
                for need in rule.needs() {
                    match need {
                        Need::Counter(name) => changed.count_counter(&mut self.counters, name, is_added),
                        Need::Set(name) => self.count_set(name, &part.sets, is_added, changed),
                        Need::Chain(_) | Need::Map(_) => {}
                    }
                }
            }
        }
        for source in members_of(&old.sets) {
            if let Some(users) = self.users.get_mut(source) {
                users.remove(unit);
                if users.is_empty() {
                    self.users.remove(source);
                }
            }
        }
        for source in members_of(&new.sets) {
            self.users.entry(Arc::clone(source)).or_default().insert(unit.clone());
        }
    }

    fn count_set(&mut self, name: &Name, wanted: &Wanted, is_added: bool, changed: &mut Changed) {
        if is_added {
            if let Some(set) = self.sets.get_mut(name) {
                set.uses += 1;
            } else if let Some(contents) = wanted.get(name) {
                let set = KernelSet { contents: contents.clone(), uses: 1, networks: BTreeSet::new() };
                self.sets.insert(Arc::clone(name), set);
                changed.new_sets.insert(Arc::clone(name));
            }
        } else if let Some(set) = self.sets.get_mut(name) {
            set.uses -= 1;
            if set.uses == 0 {
                changed.idle_sets.insert(Arc::clone(name));
            }
        }
    }

    /// Removes sets that nothing refers to, fills new ones, and changes the members of the rest.
    fn settle_sets(&mut self, calculation: &Calculation, update: &Update, changed: &mut Changed) {
        for name in std::mem::take(&mut changed.idle_sets) {
            if self.sets.get(&name).is_none_or(|set| set.uses > 0) {
                continue;
            }
            let Some(set) = self.sets.remove(&name) else { continue };
            if !changed.new_sets.remove(&name) {
                changed.old.sets.insert(name, Set::new(set.contents.kind()));
            }
        }
        for name in &changed.new_sets {
            let Some(set) = self.sets.get_mut(name) else { continue };
            let mut elements = elements(calculation, &set.contents);
            if let (Contents::Members(..), SetKind::Networks(_)) = (&set.contents, set.contents.kind()) {
                set.networks = outermost(elements.iter());
                elements = set.networks.iter().copied().map(Element::Network).collect();
            }
            changed.new.sets.insert(Arc::clone(name), Set { kind: set.contents.kind(), elements });
        }
        for (source, update) in &update.sets {
            let SetUpdate::Changed { added, removed } = update else { continue };
            for kind in kinds(source) {
                let name = rules::member_set_name(source, kind);
                if changed.new_sets.contains(&name) {
                    continue;
                }
                let Some(set) = self.sets.get_mut(&name) else { continue };
                let (added, removed) = match kind {
                    SetKind::Networks(_) => set.change_networks(calculation, source, added, removed),
                    _ => (fitting(added, kind), fitting(removed, kind)),
                };
                if !added.is_empty() || !removed.is_empty() {
                    changed.old.sets.insert(Arc::clone(&name), Set { kind, elements: removed });
                    changed.new.sets.insert(name, Set { kind, elements: added });
                }
            }
        }
    }
}

impl KernelSet {
    /// Keeps the outermost networks only. One that goes may uncover others.
    fn change_networks(
        &mut self,
        calculation: &Calculation,
        source: &SetSource,
        added: &[Element],
        removed: &[Element],
    ) -> (BTreeSet<Element>, BTreeSet<Element>) {
        let kind = self.contents.kind();
        let networks = |elements: &[Element]| {
            fitting(elements, kind).into_iter().filter_map(network).collect::<Vec<_>>()
        };
        let mut before = BTreeMap::new();
        let mut candidates = networks(added);
        for gone in networks(removed) {
            if self.networks.remove(&gone) {
                before.insert(gone, true);
                candidates
                    .extend(calculation.set(source).into_iter().flat_map(|set| set.networks_within(gone)));
            }
        }
        candidates.sort();
        for network in candidates {
            let is_covered = around(network).any(|outer| self.networks.contains(&outer));
            if is_covered {
                continue;
            }
            let inner: Vec<IpNet> = self
                .networks
                .range(network..)
                .take_while(|inner| network.contains(*inner))
                .copied()
                .collect();
            for inner in inner {
                self.networks.remove(&inner);
                before.entry(inner).or_insert(true);
            }
            self.networks.insert(network);
            before.entry(network).or_insert(false);
        }
        let mut changes = (BTreeSet::new(), BTreeSet::new());
        for (network, was_there) in before {
            match (was_there, self.networks.contains(&network)) {
                (false, true) => drop(changes.0.insert(Element::Network(network))),
                (true, false) => drop(changes.1.insert(Element::Network(network))),
                _ => {}
            }
        }
        changes
    }
}

/// A network and all around it.
fn around(network: IpNet) -> impl Iterator<Item = IpNet> {
    std::iter::successors(Some(network), |inner| inner.supernet())
}

fn network(element: Element) -> Option<IpNet> {
    match element {
        Element::Network(network) => Some(network),
        _ => None,
    }
}

fn outermost<'a>(elements: impl Iterator<Item = &'a Element>) -> BTreeSet<IpNet> {
    let mut last: Option<IpNet> = None;
    // Sorted, so that an outer network comes right before those in it.
    let all: BTreeSet<IpNet> = elements.copied().filter_map(network).collect();
    let mut is_outermost = |network: &IpNet| {
        let is_covered = last.is_some_and(|last| last.contains(network));
        if !is_covered {
            last = Some(*network);
        }
        !is_covered
    };
    all.into_iter().filter(|network| is_outermost(network)).collect()
}

fn fitting<'a>(elements: impl IntoIterator<Item = &'a Element>, kind: SetKind) -> BTreeSet<Element> {
    elements.into_iter().filter(|element| element.fits(kind)).copied().collect()
}

fn elements(calculation: &Calculation, contents: &Contents) -> BTreeSet<Element> {
    match contents {
        Contents::Constant(set) => set.elements.clone(),
        Contents::Members(source, kind) => {
            calculation.members(source).map_or_else(BTreeSet::new, |members| fitting(members, *kind))
        }
    }
}

/// What sets of the kernel the members of one may be in.
fn kinds(source: &SetSource) -> Vec<SetKind> {
    let of = |version| match source.has_ports() {
        true => vec![SetKind::AddressPorts(version)],
        false => vec![SetKind::Addresses(version), SetKind::Networks(version)],
    };
    VERSIONS.into_iter().flat_map(of).collect()
}

fn members_of(sets: &Wanted) -> impl Iterator<Item = &Arc<SetSource>> {
    sets.values().filter_map(|contents| match contents {
        Contents::Members(source, _) => Some(source),
        Contents::Constant(_) => None,
    })
}

fn maps() -> BTreeMap<Name, BTreeMap<Name, crate::ruleset::Verdict>> {
    [FROM_WORKLOADS, TO_WORKLOADS]
        .into_iter()
        .chain(hosts::map_names())
        .map(|map| (map.into(), BTreeMap::new()))
        .collect()
}

/// Both states of everything that an update touches, and of nothing else.
#[derive(Debug, Default)]
struct Changed {
    old: Table,
    new: Table,
    new_sets: BTreeSet<Name>,
    idle_sets: BTreeSet<Name>,
}

impl Changed {
    fn exchange(&mut self, old: &Part, new: &Part) {
        for (table, part) in [(&mut self.old, old), (&mut self.new, new)] {
            table.chains.extend(part.chains.clone());
            for map in old.elements.keys().chain(new.elements.keys()).map(|(map, _)| map) {
                table.maps.entry(Arc::clone(map)).or_default();
            }
            for ((map, device), verdict) in &part.elements {
                table.maps.entry(Arc::clone(map)).or_default().insert(Arc::clone(device), verdict.clone());
            }
        }
    }

    fn count_counter(&mut self, counters: &mut BTreeMap<Name, usize>, name: &Name, is_added: bool) {
        let count = counters.entry(Arc::clone(name)).or_insert(0);
        if *count == 0 && is_added && !self.old.counters.remove(name) {
            self.new.counters.insert(Arc::clone(name));
        }
        if is_added {
            *count += 1;
            return;
        }
        *count -= 1;
        if *count == 0 {
            counters.remove(name);
            if !self.new.counters.remove(name) {
                self.old.counters.insert(Arc::clone(name));
            }
        }
    }

    fn into_changes(mut self, name: &Name, is_first: bool) -> Vec<Change> {
        let held = match is_first {
            true => Ruleset::default(),
            false => Ruleset { tables: BTreeMap::from([(Arc::clone(name), self.old)]) },
        };
        if is_first {
            for (map, elements) in maps() {
                self.new.maps.entry(map).or_insert(elements);
            }
        }
        held.changes_to(&Ruleset { tables: BTreeMap::from([(Arc::clone(name), self.new)]) })
    }
}
