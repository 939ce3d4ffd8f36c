//! What leads from one ruleset to another, as one ordered list.
//!
//! The order is the kernel's: nothing is deleted while something refers to it, and nothing is referred to before it exists. So first go rules and
//! map elements, then what they referred to, then everything new is made empty, and then filled.

use std::collections::BTreeSet;
use std::fmt;

use super::{Base, Chain, Element, Name, Need, Rule, Ruleset, Set, SetKind, Table, Verdict};

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    AddTable {
        table: Name,
    },
    /// With all it holds.
    DeleteTable {
        table: Name,
    },
    AddCounter {
        table: Name,
        counter: Name,
    },
    DeleteCounter {
        table: Name,
        counter: Name,
    },
    AddSet {
        table: Name,
        set: Name,
        kind: SetKind,
    },
    DeleteSet {
        table: Name,
        set: Name,
    },
    AddElements {
        table: Name,
        set: Name,
        elements: Vec<Element>,
    },
    DeleteElements {
        table: Name,
        set: Name,
        elements: Vec<Element>,
    },
    AddMap {
        table: Name,
        map: Name,
    },
    DeleteMap {
        table: Name,
        map: Name,
    },
    AddMapElements {
        table: Name,
        map: Name,
        elements: Vec<(Name, Verdict)>,
    },
    /// The verdicts are those that the map holds.
    DeleteMapElements {
        table: Name,
        map: Name,
        elements: Vec<(Name, Verdict)>,
    },
    AddChain {
        table: Name,
        chain: Name,
        base: Option<Base>,
    },
    /// The chain has no rules any more.
    DeleteChain {
        table: Name,
        chain: Name,
    },
    /// Deletes all rules of a chain.
    FlushChain {
        table: Name,
        chain: Name,
    },
    /// Adds rules at the end.
    AddRules {
        table: Name,
        chain: Name,
        rules: Vec<Rule>,
    },
}

/// A change that does not fit the ruleset, as the kernel would refuse it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub change: Change,
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.change, self.reason)
    }
}

impl std::error::Error for Refusal {}

impl Ruleset {
    /// What makes this ruleset the other one, in an order that can be applied as one transaction.
    pub fn changes_to(&self, wanted: &Ruleset) -> Vec<Change> {
        let mut changes = Vec::new();
        for table in self.tables.keys().filter(|table| !wanted.tables.contains_key(*table)) {
            changes.push(Change::DeleteTable { table: table.clone() });
        }
        let empty = Table::default();
        for (name, table) in &wanted.tables {
            let old = self.tables.get(name);
            if old.is_none() {
                changes.push(Change::AddTable { table: name.clone() });
            }
            Difference::of(name, old.unwrap_or(&empty), table).list(&mut changes);
        }
        changes
    }

    /// Makes the changes, or stops at the first that the kernel would refuse.
    pub fn apply<'a>(&mut self, changes: impl IntoIterator<Item = &'a Change>) -> Result<(), Refusal> {
        changes.into_iter().try_for_each(|change| {
            self.apply_one(change).map_err(|reason| Refusal { change: change.clone(), reason })
        })
    }

    fn apply_one(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::AddTable { table } => {
                let old = self.tables.insert(table.clone(), Table::default());
                return must(old.is_none(), "the table exists");
            }
            Change::DeleteTable { table } => {
                return must(self.tables.remove(table).is_some(), "there is no such table");
            }
            _ => {}
        }
        let table = self.tables.get_mut(change.table()).ok_or("there is no such table")?;
        table.apply(change)
    }
}

impl Change {
    pub fn table(&self) -> &Name {
        match self {
            Change::AddTable { table }
            | Change::DeleteTable { table }
            | Change::AddCounter { table, .. }
            | Change::DeleteCounter { table, .. }
            | Change::AddSet { table, .. }
            | Change::DeleteSet { table, .. }
            | Change::AddElements { table, .. }
            | Change::DeleteElements { table, .. }
            | Change::AddMap { table, .. }
            | Change::DeleteMap { table, .. }
            | Change::AddMapElements { table, .. }
            | Change::DeleteMapElements { table, .. }
            | Change::AddChain { table, .. }
            | Change::DeleteChain { table, .. }
            | Change::FlushChain { table, .. }
            | Change::AddRules { table, .. } => table,
        }
    }
}

fn must(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

impl Table {
    fn apply(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::AddTable { .. } | Change::DeleteTable { .. } => Ok(()),
            Change::AddCounter { counter, .. } => {
                must(self.counters.insert(counter.clone()), "the counter exists")
            }
            Change::DeleteCounter { counter, .. } => {
                self.refuse_if_needed(&Need::Counter(counter))?;
                must(self.counters.remove(counter), "there is no such counter")
            }
            Change::AddMap { map, .. } => {
                must(self.maps.insert(map.clone(), Default::default()).is_none(), "the map exists")
            }
            Change::DeleteMap { map, .. } => {
                self.refuse_if_needed(&Need::Map(map))?;
                must(self.maps.remove(map).is_some(), "there is no such map")
            }
            Change::AddMapElements { map, elements, .. } => self.add_map_elements(map, elements),
            Change::DeleteMapElements { map, elements, .. } => {
                let map = self.maps.get_mut(map).ok_or("there is no such map")?;
                elements.iter().try_for_each(|(device, verdict)| {
                    must(map.remove(device).as_ref() == Some(verdict), "the map does not hold this element")
                })
            }
            Change::AddSet { .. }
            | Change::DeleteSet { .. }
            | Change::AddElements { .. }
            | Change::DeleteElements { .. } => self.apply_to_set(change),
            Change::AddChain { .. }
            | Change::DeleteChain { .. }
            | Change::FlushChain { .. }
            | Change::AddRules { .. } => self.apply_to_chain(change),
        }
    }

    fn apply_to_set(&mut self, change: &Change) -> Result<(), String> {
        const NO_SET: &str = "there is no such set";
        match change {
            Change::AddSet { set, kind, .. } => {
                must(self.sets.insert(set.clone(), Set::new(*kind)).is_none(), "the set exists")
            }
            Change::DeleteSet { set, .. } => {
                self.refuse_if_needed(&Need::Set(set))?;
                must(self.sets.remove(set).is_some(), NO_SET)
            }
            Change::AddElements { set, elements, .. } => {
                let set = self.sets.get_mut(set).ok_or(NO_SET)?;
                elements.iter().try_for_each(|element| {
                    must(element.fits(set.kind), "an element does not fit the set")?;
                    let before = set.elements.range(..element).next_back();
                    let after = set.elements.range(element..).next();
                    let overlaps = before.into_iter().chain(after).any(|other| element.overlaps(other));
                    must(!overlaps, "an element overlaps with one that the set holds")?;
                    must(set.elements.insert(*element), "the set holds the element")
                })
            }
            Change::DeleteElements { set, elements, .. } => {
                let set = self.sets.get_mut(set).ok_or(NO_SET)?;
                elements.iter().try_for_each(|element| {
                    must(set.elements.remove(element), "the set does not hold the element")
                })
            }
            _ => Ok(()),
        }
    }

    fn apply_to_chain(&mut self, change: &Change) -> Result<(), String> {
        const NO_CHAIN: &str = "there is no such chain";
        match change {
            Change::AddChain { chain, base, .. } => {
                let new = Chain { base: *base, rules: Vec::new() };
                must(self.chains.insert(chain.clone(), new).is_none(), "the chain exists")
            }
            Change::DeleteChain { chain, .. } => {
                self.refuse_if_needed(&Need::Chain(chain))?;
                let old = self.chains.remove(chain).ok_or(NO_CHAIN)?;
                must(old.rules.is_empty(), "the chain has rules")
            }
            Change::FlushChain { chain, .. } => {
                self.chains.get_mut(chain).ok_or(NO_CHAIN)?.rules.clear();
                Ok(())
            }
            Change::AddRules { chain, rules, .. } => {
                for need in rules.iter().flat_map(Rule::needs) {
                    must(self.has(&need), &format!("{need} does not exist"))?;
                }
                self.chains.get_mut(chain).ok_or(NO_CHAIN)?.rules.extend(rules.iter().cloned());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add_map_elements(&mut self, map: &Name, elements: &[(Name, Verdict)]) -> Result<(), String> {
        for chain in elements.iter().filter_map(|(_, verdict)| verdict.chain()) {
            must(self.chains.contains_key(chain), &format!("chain {chain} does not exist"))?;
        }
        let map = self.maps.get_mut(map).ok_or("there is no such map")?;
        elements.iter().try_for_each(|(device, verdict)| {
            must(map.insert(device.clone(), verdict.clone()).is_none(), "the map holds the element")
        })
    }

    fn refuse_if_needed(&self, need: &Need<'_>) -> Result<(), String> {
        let by_rule =
            self.chains.iter().find(|(_, chain)| chain.rules.iter().any(|rule| rule.needs().contains(need)));
        if let Some((name, _)) = by_rule {
            return Err(format!("a rule of chain {name} refers to it"));
        }
        let Need::Chain(chain) = need else { return Ok(()) };
        let by_map =
            self.maps.iter().find(|(_, map)| map.values().any(|verdict| verdict.chain() == Some(*chain)));
        by_map.map_or(Ok(()), |(name, _)| Err(format!("an element of map {name} refers to it")))
    }
}

/// Two states of one table.
struct Difference<'a> {
    table: &'a Name,
    old: &'a Table,
    new: &'a Table,
    /// Sets of another kind than before: they are made again, and so are the rules that refer to them.
    sets_made_again: BTreeSet<&'a Name>,
    /// The same for chains that are entered elsewhere than before.
    chains_made_again: BTreeSet<&'a Name>,
}

impl<'a> Difference<'a> {
    fn of(table: &'a Name, old: &'a Table, new: &'a Table) -> Difference<'a> {
        let has_other_kind =
            |(name, set): &(&'a Name, &'a Set)| old.sets.get(*name).is_some_and(|old| old.kind != set.kind);
        let is_entered_elsewhere = |(name, chain): &(&'a Name, &'a Chain)| {
            old.chains.get(*name).is_some_and(|old| old.base != chain.base)
        };
        let sets_made_again = new.sets.iter().filter(has_other_kind).map(|(name, _)| name).collect();
        let chains_made_again =
            new.chains.iter().filter(is_entered_elsewhere).map(|(name, _)| name).collect();
        Difference { table, old, new, sets_made_again, chains_made_again }
    }

    fn list(&self, changes: &mut Vec<Change>) {
        self.free(changes);
        self.delete(changes);
        self.add(changes);
        self.fill(changes);
    }

    /// Removes what refers to something that goes, or will be written again.
    fn free(&self, changes: &mut Vec<Change>) {
        for (map, elements) in &self.old.maps {
            let new = self.new.maps.get(map);
            let goes = |(device, verdict): &(&Name, &Verdict)| {
                new.and_then(|new| new.get(*device)) != Some(verdict) || self.leads_to_new_chain(verdict)
            };
            let elements: Vec<_> =
                elements.iter().filter(goes).map(|(name, verdict)| (name.clone(), verdict.clone())).collect();
            if !elements.is_empty() {
                changes.push(Change::DeleteMapElements {
                    table: self.table.clone(),
                    map: map.clone(),
                    elements,
                });
            }
        }
        for (name, chain) in &self.old.chains {
            if !chain.rules.is_empty() && self.is_rewritten(name, chain) {
                changes.push(Change::FlushChain { table: self.table.clone(), chain: name.clone() });
            }
        }
    }

    fn delete(&self, changes: &mut Vec<Change>) {
        let table = || self.table.clone();
        for chain in self.old.chains.keys() {
            if !self.new.chains.contains_key(chain) || self.chains_made_again.contains(chain) {
                changes.push(Change::DeleteChain { table: table(), chain: chain.clone() });
            }
        }
        for map in self.old.maps.keys().filter(|map| !self.new.maps.contains_key(*map)) {
            changes.push(Change::DeleteMap { table: table(), map: map.clone() });
        }
        for (name, set) in &self.old.sets {
            let new = self.new.sets.get(name).filter(|_| !self.sets_made_again.contains(name));
            let Some(new) = new else {
                changes.push(Change::DeleteSet { table: table(), set: name.clone() });
                continue;
            };
            let elements: Vec<Element> = set.elements.difference(&new.elements).copied().collect();
            if !elements.is_empty() {
                changes.push(Change::DeleteElements { table: table(), set: name.clone(), elements });
            }
        }
        for counter in self.old.counters.difference(&self.new.counters) {
            changes.push(Change::DeleteCounter { table: table(), counter: counter.clone() });
        }
    }

    fn add(&self, changes: &mut Vec<Change>) {
        let table = || self.table.clone();
        for counter in self.new.counters.difference(&self.old.counters) {
            changes.push(Change::AddCounter { table: table(), counter: counter.clone() });
        }
        for (name, set) in &self.new.sets {
            let old = self.old.sets.get(name).filter(|_| !self.sets_made_again.contains(name));
            if old.is_none() {
                changes.push(Change::AddSet { table: table(), set: name.clone(), kind: set.kind });
            }
            let is_new = |element: &&Element| old.is_none_or(|old| !old.elements.contains(*element));
            let elements: Vec<Element> = set.elements.iter().filter(is_new).copied().collect();
            if !elements.is_empty() {
                changes.push(Change::AddElements { table: table(), set: name.clone(), elements });
            }
        }
        for map in self.new.maps.keys().filter(|map| !self.old.maps.contains_key(*map)) {
            changes.push(Change::AddMap { table: table(), map: map.clone() });
        }
        for (name, chain) in &self.new.chains {
            if !self.old.chains.contains_key(name) || self.chains_made_again.contains(name) {
                changes.push(Change::AddChain { table: table(), chain: name.clone(), base: chain.base });
            }
        }
    }

    fn fill(&self, changes: &mut Vec<Change>) {
        for (name, chain) in &self.new.chains {
            let is_new = self.old.chains.get(name).is_none_or(|old| self.is_rewritten(name, old));
            if is_new && !chain.rules.is_empty() {
                changes.push(Change::AddRules {
                    table: self.table.clone(),
                    chain: name.clone(),
                    rules: chain.rules.clone(),
                });
            }
        }
        for (name, map) in &self.new.maps {
            let old = self.old.maps.get(name);
            let is_new = |(device, verdict): &(&Name, &Verdict)| {
                old.and_then(|old| old.get(*device)) != Some(verdict) || self.leads_to_new_chain(verdict)
            };
            let elements: Vec<_> =
                map.iter().filter(is_new).map(|(name, verdict)| (name.clone(), verdict.clone())).collect();
            if !elements.is_empty() {
                let table = self.table.clone();
                changes.push(Change::AddMapElements { table, map: name.clone(), elements });
            }
        }
    }

    fn leads_to_new_chain(&self, verdict: &Verdict) -> bool {
        verdict.chain().is_some_and(|chain| self.chains_made_again.contains(chain))
    }

    /// Whether the rules of a chain go, or change, or refer to something that is made again.
    fn is_rewritten(&self, name: &Name, old: &Chain) -> bool {
        let refers_to_new = |rule: &Rule| {
            rule.needs().iter().any(|need| match need {
                Need::Set(set) => self.sets_made_again.contains(set),
                Need::Chain(chain) => self.chains_made_again.contains(chain),
                Need::Map(_) | Need::Counter(_) => false,
            })
        };
        self.chains_made_again.contains(name)
            || self.new.chains.get(name).is_none_or(|new| new.rules != old.rules)
            || old.rules.iter().any(refers_to_new)
    }
}
