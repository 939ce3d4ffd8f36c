//! The members of the sets that rules refer to.
//!
//! A member is counted for each record that brings it: an address that two endpoints have stays until both are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use model::{IpVersion, Selector};

use crate::labels::{ClassId, LabelIndex, LabelMap, SelectorId};
use crate::record::{Endpoint, NamedPort, SetSource, Slice};
use crate::ruleset::{AddressPort, Element};

use super::EndpointId;

type ItemId = u32;
type SetId = u32;
type ServiceName = (Arc<str>, Arc<str>);

#[derive(Debug)]
struct Item {
    class: ClassId,
    nets: Box<[IpNet]>,
    ports: Box<[NamedPort]>,
}

#[derive(Debug)]
pub(crate) struct Members {
    counts: BTreeMap<Element, u32>,
    users: usize,
    selector: Option<SelectorId>,
    source: Arc<SetSource>,
}

/// What became of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetUpdate {
    Created,
    Changed { added: Vec<Element>, removed: Vec<Element> },
    Removed,
}

/// Since the last report.
#[derive(Debug)]
enum Pending {
    Created,
    /// Of each member that was touched: whether it was one before.
    Touched(BTreeMap<Element, bool>),
}

#[derive(Debug, Default)]
pub(super) struct Sets {
    index: LabelIndex,
    item_ids: BTreeMap<EndpointId, ItemId>,
    items: BTreeMap<ItemId, Item>,
    next_item: ItemId,
    items_of_class: BTreeMap<ClassId, BTreeSet<ItemId>>,
    slices: BTreeMap<(Arc<str>, Arc<str>), Slice>,
    slices_of_service: BTreeMap<ServiceName, BTreeSet<Arc<str>>>,
    set_ids: BTreeMap<Arc<SetSource>, SetId>,
    sets: BTreeMap<SetId, Members>,
    next_set: SetId,
    sets_of_selector: BTreeMap<SelectorId, BTreeSet<SetId>>,
    /// Without users. They go when it is reported, unless they are used again by then.
    idle: BTreeSet<SetId>,
    pending: BTreeMap<SetId, Pending>,
}

impl Members {
    pub(crate) fn elements(&self) -> impl Iterator<Item = &Element> {
        self.counts.keys()
    }

    pub(crate) fn contains(&self, element: &Element) -> bool {
        self.counts.contains_key(element)
    }

    /// Whether there are networks among the members, not only single addresses.
    pub(crate) fn has_networks(&self, version: IpVersion) -> bool {
        let (first, last) = match version {
            IpVersion::V4 => ([0; 4].into(), [0xFF; 4].into()),
            IpVersion::V6 => (IpAddr::from([0; 16]), IpAddr::from([0xFF; 16])),
        };
        let smallest = IpNet::new(first, 0).map(Element::Network);
        let largest = Element::Network(IpNet::from(last));
        smallest.is_ok_and(|smallest| self.counts.range(smallest..=largest).next().is_some())
    }

    /// Networks within another one, in order.
    pub(crate) fn networks_within(&self, outer: IpNet) -> impl Iterator<Item = IpNet> {
        let all = self.counts.range(Element::Network(outer)..).map(|(element, _)| *element);
        all.map_while(move |element| match element {
            Element::Network(inner) if outer.contains(&inner) => Some(inner),
            _ => None,
        })
    }

    /// The member that an address belongs to: itself, or the smallest network around it.
    pub(crate) fn member_of(&self, address: IpAddr) -> Option<Element> {
        let own = Element::Address(address);
        if self.contains(&own) {
            return Some(own);
        }
        let longest = if address.is_ipv4() { 31 } else { 127 };
        let around = (1..=longest).rev().filter_map(|length| IpNet::new(address, length).ok());
        around.map(|net| Element::Network(net.trunc())).find(|network| self.contains(network))
    }
}

impl Sets {
    pub(super) fn get(&self, source: &SetSource) -> Option<&Members> {
        self.sets.get(self.set_ids.get(source)?)
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = (&Arc<SetSource>, &Members)> {
        self.set_ids.iter().filter_map(|(source, id)| Some((source, self.sets.get(id)?)))
    }

    pub(super) fn put_item(&mut self, id: &EndpointId, endpoint: &Endpoint) {
        let class = self.index.enter(&endpoint.labels, &endpoint.profiles);
        // No record is in a class that is new, so its turns concern nothing.
        self.follow_turns();
        let item = Item { class, nets: endpoint.nets.clone().into(), ports: endpoint.ports.clone().into() };
        let old = self.item_ids.get(id).and_then(|number| self.items.get(number));
        if old.is_some_and(|old| old.class == class && old.nets == item.nets && old.ports == item.ports) {
            self.index.leave(class);
            return;
        }
        self.remove_item(id);
        let number = self.next_item;
        self.next_item += 1;
        self.count_item(&item, true);
        self.items_of_class.entry(class).or_default().insert(number);
        self.item_ids.insert(id.clone(), number);
        self.items.insert(number, item);
    }

    pub(super) fn remove_item(&mut self, id: &EndpointId) {
        let Some(number) = self.item_ids.remove(id) else { return };
        let Some(item) = self.items.remove(&number) else { return };
        self.count_item(&item, false);
        if let Some(items) = self.items_of_class.get_mut(&item.class) {
            items.remove(&number);
            if items.is_empty() {
                self.items_of_class.remove(&item.class);
            }
        }
        self.index.leave(item.class);
    }

    pub(super) fn set_profile(&mut self, name: &Arc<str>, labels: LabelMap) {
        self.index.set_parent(name, labels);
        self.follow_turns();
    }

    pub(super) fn put_slice(&mut self, slice: Slice) {
        let key = (Arc::clone(&slice.namespace), Arc::clone(&slice.name));
        self.remove_slice(&key.0, &key.1);
        self.count_slice(&slice, true);
        let service = (Arc::clone(&slice.namespace), Arc::clone(&slice.service));
        self.slices_of_service.entry(service).or_default().insert(Arc::clone(&slice.name));
        self.slices.insert(key, slice);
    }

    pub(super) fn remove_slice(&mut self, namespace: &Arc<str>, name: &Arc<str>) {
        let Some(slice) = self.slices.remove(&(Arc::clone(namespace), Arc::clone(name))) else { return };
        self.count_slice(&slice, false);
        let service = (Arc::clone(namespace), Arc::clone(&slice.service));
        if let Some(slices) = self.slices_of_service.get_mut(&service) {
            slices.remove(name);
            if slices.is_empty() {
                self.slices_of_service.remove(&service);
            }
        }
    }

    /// One more rule refers to the set.
    pub(super) fn acquire(&mut self, source: &Arc<SetSource>) {
        if let Some(id) = self.set_ids.get(source).copied() {
            if let Some(set) = self.sets.get_mut(&id) {
                set.users += 1;
                self.idle.remove(&id);
            }
            return;
        }
        let id = self.next_set;
        self.next_set += 1;
        let selector = match &**source {
            SetSource::Selector(text) | SetSource::NamedPorts { selector: text, .. } => {
                // It was printed by us, so it parses.
                Some(self.index.watch(&text.parse().unwrap_or_else(|_| Selector::all().negated())))
            }
            SetSource::Service { .. } | SetSource::ServicePorts { .. } => None,
        };
        // A selector that nobody watched before has no other sets.
        self.index.take_turns();
        let set = Members { counts: BTreeMap::new(), users: 1, selector, source: Arc::clone(source) };
        self.sets.insert(id, set);
        self.set_ids.insert(Arc::clone(source), id);
        self.pending.insert(id, Pending::Created);
        if let Some(selector) = selector {
            self.sets_of_selector.entry(selector).or_default().insert(id);
        }
        for element in self.members_now(source, selector) {
            self.count(id, element, true);
        }
    }

    pub(super) fn release(&mut self, source: &Arc<SetSource>) {
        let Some(id) = self.set_ids.get(source).copied() else { return };
        let Some(set) = self.sets.get_mut(&id) else { return };
        set.users -= 1;
        if set.users == 0 {
            self.idle.insert(id);
        }
    }

    /// What became of the sets since the last call.
    pub(super) fn report(&mut self) -> BTreeMap<Arc<SetSource>, SetUpdate> {
        let mut updates = BTreeMap::new();
        for id in std::mem::take(&mut self.idle) {
            let was_reported = !matches!(self.pending.remove(&id), Some(Pending::Created));
            let Some(set) = self.sets.remove(&id) else { continue };
            self.set_ids.remove(&set.source);
            if let Some(selector) = set.selector {
                if let Some(sets) = self.sets_of_selector.get_mut(&selector) {
                    sets.remove(&id);
                    if sets.is_empty() {
                        self.sets_of_selector.remove(&selector);
                    }
                }
                self.index.unwatch(selector);
            }
            if was_reported {
                updates.insert(set.source, SetUpdate::Removed);
            }
        }
        for (id, pending) in std::mem::take(&mut self.pending) {
            let Some(set) = self.sets.get(&id) else { continue };
            let update = match pending {
                Pending::Created => SetUpdate::Created,
                Pending::Touched(members) => {
                    let (mut added, mut removed) = (Vec::new(), Vec::new());
                    for (element, was_member) in members {
                        match (was_member, set.contains(&element)) {
                            (false, true) => added.push(element),
                            (true, false) => removed.push(element),
                            _ => {}
                        }
                    }
                    if added.is_empty() && removed.is_empty() {
                        continue;
                    }
                    SetUpdate::Changed { added, removed }
                }
            };
            updates.insert(Arc::clone(&set.source), update);
        }
        updates
    }

    fn members_now(&self, source: &SetSource, selector: Option<SelectorId>) -> Vec<Element> {
        let classes = selector.into_iter().flat_map(|selector| self.index.classes_of(selector));
        let items = classes.filter_map(|class| self.items_of_class.get(&class)).flatten();
        let of_items = items.filter_map(|item| self.items.get(item)).flat_map(|item| elements(item, source));
        let (SetSource::Service { namespace, name } | SetSource::ServicePorts { namespace, name }) = source
        else {
            return of_items.collect();
        };
        let slices =
            self.slices_of_service.get(&(Arc::clone(namespace), Arc::clone(name))).into_iter().flatten();
        let slices = slices.filter_map(|slice| self.slices.get(&(Arc::clone(namespace), Arc::clone(slice))));
        slices.flat_map(|slice| slice_elements(slice, source)).collect()
    }

    /// Members of an item, in each set of a selector that matches its class.
    fn count_item(&mut self, item: &Item, is_added: bool) {
        let selectors: Vec<SelectorId> = self.index.matched_by(item.class).collect();
        for selector in selectors {
            self.count_for_selector(selector, item, is_added);
        }
    }

    fn count_for_selector(&mut self, selector: SelectorId, item: &Item, is_added: bool) {
        for set in self.sets_of_selector.get(&selector).cloned().unwrap_or_default() {
            let Some(source) = self.sets.get(&set).map(|set| Arc::clone(&set.source)) else { continue };
            for element in elements(item, &source) {
                self.count(set, element, is_added);
            }
        }
    }

    fn count_slice(&mut self, slice: &Slice, is_added: bool) {
        let (namespace, name) = (Arc::clone(&slice.namespace), Arc::clone(&slice.service));
        let sources = [
            SetSource::Service { namespace: Arc::clone(&namespace), name: Arc::clone(&name) },
            SetSource::ServicePorts { namespace, name },
        ];
        for source in sources {
            let Some(id) = self.set_ids.get(&source).copied() else { continue };
            for element in slice_elements(slice, &source) {
                self.count(id, element, is_added);
            }
        }
    }

    fn follow_turns(&mut self) {
        for turn in self.index.take_turns() {
            for number in self.items_of_class.get(&turn.class).cloned().unwrap_or_default() {
                // Taken out for the moment, because counting changes the rest.
                let Some(item) = self.items.remove(&number) else { continue };
                self.count_for_selector(turn.selector, &item, turn.matches);
                self.items.insert(number, item);
            }
        }
    }

    fn count(&mut self, id: SetId, element: Element, is_added: bool) {
        let Some(set) = self.sets.get_mut(&id) else { return };
        let was_member = set.counts.contains_key(&element);
        if is_added {
            *set.counts.entry(element).or_insert(0) += 1;
        } else if let Some(count) = set.counts.get_mut(&element) {
            *count -= 1;
            if *count == 0 {
                set.counts.remove(&element);
            }
        }
        if was_member == set.counts.contains_key(&element) {
            return;
        }
        match self.pending.entry(id).or_insert_with(|| Pending::Touched(BTreeMap::new())) {
            Pending::Created => {}
            Pending::Touched(members) => drop(members.entry(element).or_insert(was_member)),
        }
    }
}

/// What an item brings into a set of this source.
fn elements(item: &Item, source: &SetSource) -> Vec<Element> {
    match source {
        SetSource::Selector(_) => item.nets.iter().map(element).collect(),
        SetSource::NamedPorts { protocol, names, .. } => {
            let is_meant = |port: &&NamedPort| {
                names.contains(&port.name) && protocol.is_none_or(|protocol| protocol == port.protocol)
            };
            let mut elements: Vec<Element> = Vec::new();
            for port in item.ports.iter().filter(is_meant) {
                for net in &item.nets {
                    let (protocol, port) = (port.protocol, port.port);
                    elements.push(Element::AddressPort(AddressPort { address: net.addr(), protocol, port }));
                }
            }
            elements
        }
        SetSource::Service { .. } | SetSource::ServicePorts { .. } => Vec::new(),
    }
}

fn slice_elements(slice: &Slice, source: &SetSource) -> Vec<Element> {
    match source {
        SetSource::Service { .. } => {
            slice.addresses.iter().map(|address| Element::Address(*address)).collect()
        }
        SetSource::ServicePorts { .. } => {
            slice.ports.iter().map(|port| Element::AddressPort(*port)).collect()
        }
        SetSource::Selector(_) | SetSource::NamedPorts { .. } => Vec::new(),
    }
}

fn element(net: &IpNet) -> Element {
    match net.prefix_len() == net.max_prefix_len() {
        true => Element::Address(net.addr()),
        false => Element::Network(*net),
    }
}
