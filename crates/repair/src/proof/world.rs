//! A made-up cluster that can be repaired: its records as the texts that a store would hold, everything else as evidence.

use std::collections::BTreeMap;

use ipam::{Answer, Books};
use jiff::Timestamp;
use model::{Key, Kind, Resource};

use super::kernel;
use crate::{Edit, Edited, Page, Plan, Step};
use evidence::{Endpoint, Evidence, Origin, Records, Sighted};

#[derive(Clone)]
pub(super) struct World {
    texts: BTreeMap<Key, (Vec<u8>, String)>,
    /// Whatever is no record.
    rest: Evidence,
    writes: usize,
}

impl World {
    pub(super) fn new(evidence: &Evidence) -> World {
        let mut texts = BTreeMap::new();
        let ipam = evidence.ipam.as_ref().expect("the sample has books");
        for (cidr, stored) in &ipam.books.blocks {
            texts.insert(Key::Block(*cidr), (stored.value.encode(), stored.revision.clone()));
        }
        for (id, stored) in &ipam.books.handles {
            texts.insert(Key::Handle(id.clone()), (stored.value.encode(), stored.revision.clone()));
        }
        for ((owner, block), stored) in &ipam.books.affinities {
            let key = Key::Affinity { owner: owner.clone(), block: *block };
            texts.insert(key, (stored.value.encode(), stored.revision.clone()));
        }
        for corrupt in &ipam.books.unreadable {
            texts.insert(corrupt.key.clone(), (b"[".to_vec(), "1".to_owned()));
        }
        for kind in evidence.records.kinds() {
            for record in evidence.records.all(kind) {
                texts.insert(record.seen.key(), (record.seen.encode(), "1".to_owned()));
            }
        }
        for endpoint in evidence.endpoints.iter().flatten() {
            let record = record_of(&endpoint.seen);
            texts.insert(record.key(), (record.encode(), "1".to_owned()));
        }
        World { texts, rest: evidence.clone(), writes: 1 }
    }

    /// Somebody writes into a record what nobody can read.
    pub(super) fn spoil(&mut self, key: &Key) {
        self.writes += 1;
        self.texts.insert(key.clone(), (b"[".to_vec(), self.writes.to_string()));
    }

    /// A new look at everything.
    pub(super) fn look(&self) -> Evidence {
        let mut evidence = self.rest.clone();
        let kinds: Vec<Kind> = evidence.records.kinds().collect();
        evidence.records = Records::default();
        kinds.into_iter().for_each(|kind| evidence.records.looked_for(kind));
        let (mut books, mut endpoints) = (Books::default(), Vec::new());
        for (key, (text, revision)) in &self.texts {
            match key {
                Key::Resource { kind: Kind::WorkloadEndpoint, .. } => {
                    let record =
                        Resource::decode(key, Kind::WorkloadEndpoint, text, revision).expect("a record");
                    endpoints.push(Sighted::new(Endpoint::of_resource(&record), Origin::store(key)));
                }
                Key::Resource { kind, .. } => {
                    let record = Resource::decode(key, *kind, text, revision).expect("a record");
                    evidence.records.add(Sighted::in_store(record));
                }
                key => books.add(key, Answer::read(key, Some((text.as_slice(), revision.as_str())))),
            }
        }
        evidence.ipam.as_mut().expect("the sample has books").books = books;
        evidence.endpoints = Some(endpoints);
        evidence
    }

    /// Everything that a plan says. What was really done comes back as the edits that undo it, newest first.
    pub(super) fn carry_out(&mut self, plan: &Plan) -> Result<Vec<Vec<Edit>>, String> {
        let mut undo = Vec::new();
        for step in &plan.steps {
            undo.push(
                self.step(step).map_err(|said| format!("step {} ({}): {said}", step.number, step.title))?,
            );
        }
        undo.reverse();
        Ok(undo)
    }

    fn step(&mut self, step: &Step) -> Result<Vec<Edit>, String> {
        let undo = self.edit(&step.edits)?;
        for work in step.on_node.iter().flat_map(|on_node| &on_node.works) {
            let node = step.on_node.as_ref().expect("it has works").node.clone();
            kernel::work(&mut self.rest, &node.as_str().into(), work)
                .map_err(|said| format!("{work}: {said}"))?;
        }
        Ok(undo)
    }

    /// All of them, or none.
    pub(super) fn edit(&mut self, edits: &[Edit]) -> Result<Vec<Edit>, String> {
        let mut pages: BTreeMap<Key, Page> = BTreeMap::new();
        let mut undo = Vec::new();
        for edit in edits {
            let record = self.texts.get(&edit.key());
            let page = pages.entry(edit.key()).or_insert_with(|| {
                Page::new(edit.key(), record.map(|(text, revision)| (text.as_slice(), revision.as_str())))
            });
            let now: Timestamp = "2026-08-22T07:00:00Z".parse().expect("a time");
            match page.edit(edit, now).map_err(|surprise| surprise.to_string())? {
                Edited::Made(Some(back)) => undo.push(*back),
                Edited::Made(None) => undo.push(page.take_back()),
                Edited::Already => {}
            }
        }
        for (key, page) in pages {
            self.writes += 1;
            match page.written() {
                Some(Some(text)) => {
                    self.texts.insert(key, (text.to_vec(), self.writes.to_string()));
                }
                Some(None) => {
                    self.texts.remove(&key);
                }
                None => {}
            }
        }
        undo.reverse();
        Ok(undo)
    }

    /// All records, blocks without what counts their writes.
    pub(super) fn content(&self) -> BTreeMap<String, serde_json::Value> {
        let value = |(key, (text, _)): (&Key, &(Vec<u8>, String))| {
            let mut value =
                serde_json::from_slice(text).unwrap_or_else(|_| String::from_utf8_lossy(text).into());
            if matches!(key, Key::Block(_)) {
                forget_numbers(&mut value);
            }
            (key.etcd_text(), value)
        };
        self.texts.iter().map(value).collect()
    }
}

/// What counts a block's writes goes on counting; the order in which free addresses wait, and that of owners, means nothing here.
pub(super) fn forget_numbers(block: &mut serde_json::Value) {
    let Ok(mut known) = serde_json::from_value::<model::ipam::Block>(block.clone()) else { return };
    known.sequence_number = 0;
    known.sequence_number_for_allocation.clear();
    known.unallocated.sort_unstable();
    let owners = std::mem::take(&mut known.attributes);
    for held in known.allocations.iter_mut() {
        let Some(owner) = held.and_then(|index| owners.get(index)).cloned() else { continue };
        let place = known.attributes.iter().position(|other| *other == owner);
        *held = Some(place.unwrap_or(known.attributes.len()));
        if place.is_none() {
            known.attributes.push(owner);
        }
    }
    *block = serde_json::to_value(&known).expect("a block is JSON");
}

fn record_of(endpoint: &Endpoint) -> Resource {
    let namespace = endpoint.namespace.clone().unwrap_or_default();
    let mut record = Resource::new(Kind::WorkloadEndpoint, endpoint.name.clone());
    record.metadata.creation_timestamp = endpoint.created_at.map(|at| at.to_string());
    let spec = model::endpoint_spec(&model::EndpointSpec {
        node: endpoint.node.as_ref().map_or("", |node| node.as_str()),
        namespace: &namespace,
        orchestrator: &endpoint.orchestrator,
        workload: endpoint.pod.as_deref().unwrap_or_default(),
        container_id: endpoint.container_id.as_deref().unwrap_or_default(),
        interface: endpoint.interface.as_deref().unwrap_or_default(),
        addresses: &endpoint.addresses,
        device: endpoint.device.as_deref().unwrap_or_default(),
        mac: endpoint.mac,
    });
    record.metadata.namespace = Some(namespace);
    record.body.insert("spec".to_owned(), spec);
    record
}
