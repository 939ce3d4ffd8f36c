//! Which selectors match which labels, kept up to date.
//!
//! Records with equal labels and profiles form a **class**, and selectors are matched with classes: the thousand pods of a deployment cost as
//! much as one. A class is compared only with selectors that ask for a label which it has, and with those that ask for none in particular.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Selector;
use model::selector::Labels;

pub(crate) type ClassId = u32;
pub(crate) type SelectorId = u32;
pub(crate) type LabelMap = BTreeMap<Arc<str>, Arc<str>>;

/// A selector begins or ceases to match a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub(crate) selector: SelectorId,
    pub(crate) class: ClassId,
    pub(crate) matches: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClassKey {
    labels: Vec<(Arc<str>, Arc<str>)>,
    /// Profiles, in order: the first that has a label gives its value.
    parents: Vec<Arc<str>>,
}

#[derive(Debug)]
struct Class {
    key: Arc<ClassKey>,
    records: usize,
    matched: BTreeSet<SelectorId>,
}

#[derive(Debug)]
struct Watched {
    selector: Selector,
    users: usize,
    /// Where it stands in the index.
    places: Vec<Place>,
    matched: BTreeSet<ClassId>,
}

/// A label with a value or with any. None stands for selectors that any class may match.
type Place = Option<(Arc<str>, Option<Arc<str>>)>;
type ByValue<T> = BTreeMap<Arc<str>, BTreeMap<Arc<str>, BTreeSet<T>>>;

#[derive(Debug, Default)]
pub(crate) struct LabelIndex {
    classes: BTreeMap<ClassId, Class>,
    class_ids: BTreeMap<Arc<ClassKey>, ClassId>,
    next_class: ClassId,
    classes_by_label: ByValue<ClassId>,
    classes_by_parent: BTreeMap<Arc<str>, BTreeSet<ClassId>>,
    parents: BTreeMap<Arc<str>, LabelMap>,
    parents_by_label: ByValue<Arc<str>>,
    selectors: BTreeMap<SelectorId, Watched>,
    selector_ids: BTreeMap<Arc<str>, SelectorId>,
    next_selector: SelectorId,
    selectors_by_place: BTreeMap<Place, BTreeSet<SelectorId>>,
    turns: Vec<Turn>,
}

/// The labels of a class, with those of its profiles.
struct Effective<'a> {
    key: &'a ClassKey,
    parents: &'a BTreeMap<Arc<str>, LabelMap>,
}

impl Labels for Effective<'_> {
    fn value_of(&self, label: &str) -> Option<&str> {
        if let Some((_, value)) = self.key.labels.iter().find(|(name, _)| **name == *label) {
            return Some(value);
        }
        self.key.parents.iter().find_map(|parent| self.parents.get(parent)?.get(label).map(|value| &**value))
    }
}

impl LabelIndex {
    /// What began or ceased to match since the last call, in order. A selector that nobody watches any more, and a class without records,
    /// match nothing without saying so.
    pub(crate) fn take_turns(&mut self) -> Vec<Turn> {
        std::mem::take(&mut self.turns)
    }

    /// Enters one more record of these labels.
    pub(crate) fn enter(&mut self, labels: &LabelMap, parents: &[Arc<str>]) -> ClassId {
        let labels = labels.iter().map(|(name, value)| (Arc::clone(name), Arc::clone(value))).collect();
        let key = Arc::new(ClassKey { labels, parents: parents.to_vec() });
        if let Some(id) = self.class_ids.get(&key).copied() {
            if let Some(class) = self.classes.get_mut(&id) {
                class.records += 1;
            }
            return id;
        }
        let id = self.next_class;
        self.next_class += 1;
        for (name, value) in &key.labels {
            add(&mut self.classes_by_label, name, value, id);
        }
        for parent in &key.parents {
            self.classes_by_parent.entry(Arc::clone(parent)).or_default().insert(id);
        }
        self.class_ids.insert(Arc::clone(&key), id);
        self.classes.insert(id, Class { key, records: 1, matched: BTreeSet::new() });
        self.compare(id);
        id
    }

    pub(crate) fn leave(&mut self, id: ClassId) {
        let Some(class) = self.classes.get_mut(&id) else { return };
        class.records -= 1;
        if class.records > 0 {
            return;
        }
        let Some(class) = self.classes.remove(&id) else { return };
        self.class_ids.remove(&class.key);
        for (name, value) in &class.key.labels {
            remove(&mut self.classes_by_label, name, value, &id);
        }
        for parent in &class.key.parents {
            take_from(&mut self.classes_by_parent, parent, &id);
        }
        for selector in class.matched {
            if let Some(watched) = self.selectors.get_mut(&selector) {
                watched.matched.remove(&id);
            }
        }
    }

    /// The labels that a profile hands on; none if the profile is gone.
    pub(crate) fn set_parent(&mut self, name: &Arc<str>, labels: LabelMap) {
        if self.parents.get(name).map_or(labels.is_empty(), |old| *old == labels) {
            return;
        }
        for (label, value) in self.parents.remove(name).unwrap_or_default() {
            remove(&mut self.parents_by_label, &label, &value, name);
        }
        for (label, value) in &labels {
            add(&mut self.parents_by_label, label, value, Arc::clone(name));
        }
        if !labels.is_empty() {
            self.parents.insert(Arc::clone(name), labels);
        }
        for class in self.classes_by_parent.get(name).cloned().unwrap_or_default() {
            self.compare(class);
        }
    }

    pub(crate) fn watch(&mut self, selector: &Selector) -> SelectorId {
        let text: Arc<str> = selector.to_string().into();
        if let Some(id) = self.selector_ids.get(&text).copied() {
            if let Some(watched) = self.selectors.get_mut(&id) {
                watched.users += 1;
            }
            return id;
        }
        let id = self.next_selector;
        self.next_selector += 1;
        let places = self.places(selector);
        for place in &places {
            self.selectors_by_place.entry(place.clone()).or_default().insert(id);
        }
        let mut candidates = BTreeSet::new();
        for place in &places {
            self.candidates_at(place, &mut |class| candidates.extend([class]));
        }
        self.selector_ids.insert(text, id);
        self.selectors
            .insert(id, Watched { selector: selector.clone(), users: 1, places, matched: BTreeSet::new() });
        for class in candidates {
            self.compare_one(id, class);
        }
        id
    }

    pub(crate) fn unwatch(&mut self, id: SelectorId) {
        let Some(watched) = self.selectors.get_mut(&id) else { return };
        watched.users -= 1;
        if watched.users > 0 {
            return;
        }
        let Some(watched) = self.selectors.remove(&id) else { return };
        self.selector_ids.remove(watched.selector.to_string().as_str());
        for place in &watched.places {
            take_from(&mut self.selectors_by_place, place, &id);
        }
        for class in watched.matched {
            if let Some(class) = self.classes.get_mut(&class) {
                class.matched.remove(&id);
            }
        }
    }

    pub(crate) fn matched_by(&self, class: ClassId) -> impl Iterator<Item = SelectorId> {
        self.classes.get(&class).into_iter().flat_map(|class| class.matched.iter().copied())
    }

    pub(crate) fn classes_of(&self, selector: SelectorId) -> impl Iterator<Item = ClassId> {
        self.selectors.get(&selector).into_iter().flat_map(|watched| watched.matched.iter().copied())
    }

    /// Compares a class with every selector that might match it.
    fn compare(&mut self, id: ClassId) {
        let Some(class) = self.classes.get(&id) else { return };
        let mut candidates = class.matched.clone();
        let mut at =
            |place: &Place| candidates.extend(self.selectors_by_place.get(place).into_iter().flatten());
        at(&None);
        let inherited = class.key.parents.iter().filter_map(|parent| self.parents.get(parent)).flatten();
        let own = class.key.labels.iter().map(|(name, value)| (name, value));
        for (name, value) in own.chain(inherited) {
            at(&Some((Arc::clone(name), Some(Arc::clone(value)))));
            at(&Some((Arc::clone(name), None)));
        }
        for selector in candidates {
            self.compare_one(selector, id);
        }
    }

    fn compare_one(&mut self, selector: SelectorId, id: ClassId) {
        let (Some(watched), Some(class)) = (self.selectors.get_mut(&selector), self.classes.get_mut(&id))
        else {
            return;
        };
        let matches = watched.selector.matches(&Effective { key: &class.key, parents: &self.parents });
        let has_turned = match matches {
            true => class.matched.insert(selector) && watched.matched.insert(id),
            false => class.matched.remove(&selector) && watched.matched.remove(&id),
        };
        if has_turned {
            self.turns.push(Turn { selector, class: id, matches });
        }
    }

    /// The requirement that the fewest classes meet: each of them stands for a place. Which one it is makes no difference to what is matched.
    fn places(&self, selector: &Selector) -> Vec<Place> {
        let mut best: Option<(usize, Vec<Place>)> = None;
        for found in selector.requirements() {
            let label: Arc<str> = found.label.into();
            let places: Vec<Place> = match found.values.is_empty() {
                true => vec![Some((label, None))],
                false => {
                    let values = found.values.iter();
                    values.map(|value| Some((Arc::clone(&label), Some((*value).into())))).collect()
                }
            };
            let mut count = 0;
            for place in &places {
                self.candidates_at(place, &mut |_| count += 1);
            }
            if best.as_ref().is_none_or(|(least, _)| count < *least) {
                best = Some((count, places));
            }
        }
        best.map_or_else(|| vec![None], |(_, places)| places)
    }

    fn candidates_at(&self, place: &Place, visit: &mut impl FnMut(ClassId)) {
        let Some((label, value)) = place else {
            self.classes.keys().for_each(|class| visit(*class));
            return;
        };
        let classes = values(&self.classes_by_label, label, value.as_ref());
        classes.for_each(|class| visit(*class));
        for parent in values(&self.parents_by_label, label, value.as_ref()) {
            self.classes_by_parent.get(parent).into_iter().flatten().for_each(|class| visit(*class));
        }
    }
}

fn values<'a, T: Ord>(
    index: &'a ByValue<T>,
    label: &str,
    value: Option<&Arc<str>>,
) -> Box<dyn Iterator<Item = &'a T> + 'a> {
    let Some(by_value) = index.get(label) else { return Box::new(std::iter::empty()) };
    match value {
        Some(value) => Box::new(by_value.get(value).into_iter().flatten()),
        None => Box::new(by_value.values().flatten()),
    }
}

fn add<T: Ord>(index: &mut ByValue<T>, label: &Arc<str>, value: &Arc<str>, item: T) {
    let by_value = index.entry(Arc::clone(label)).or_default();
    by_value.entry(Arc::clone(value)).or_default().insert(item);
}

fn remove<T: Ord>(index: &mut ByValue<T>, label: &Arc<str>, value: &Arc<str>, item: &T) {
    let Some(by_value) = index.get_mut(label) else { return };
    take_from(by_value, value, item);
    if by_value.is_empty() {
        index.remove(label);
    }
}

/// Removes an item from the set of a key, and the key with its last item.
fn take_from<K: Ord, T: Ord>(index: &mut BTreeMap<K, BTreeSet<T>>, key: &K, item: &T) {
    let Some(items) = index.get_mut(key) else { return };
    items.remove(item);
    if items.is_empty() {
        index.remove(key);
    }
}
