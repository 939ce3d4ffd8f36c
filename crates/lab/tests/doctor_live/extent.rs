//! How far faults reach: what they changed of records, and whose pods they have to do with. A repair that goes beyond mends what
//! nobody broke.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Result, ensure};
use model::ipam::Block;
use model::{Cidr, Key};
use repair::{Edit, Plan};
use serde_json::Value;

use crate::injection::{Injection, Takes};
use crate::scene::{NODES, Scene};

type Records = BTreeMap<Key, Vec<u8>>;

/// What faults have changed.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    /// Records that were written or deleted. Of blocks that were there before, only some parts may be at fault.
    records: BTreeSet<Key>,
    /// Blocks that were there before and still are: which addresses have other owners, and whether the block itself does.
    blocks: BTreeMap<Cidr, BTreeSet<IpAddr>>,
    disowned: BTreeSet<Cidr>,
    /// Devices, sandboxes and addresses of pods to which nothing happened.
    bystanders: BTreeMap<String, String>,
}

impl Extent {
    /// To be asked when everything is injected and nothing is repaired.
    pub(crate) fn of(scene: &Scene, injections: &[Injection<'_>]) -> Result<Extent> {
        let (before, now) = (scene.healthy(), scene.records()?);
        let mut extent = Extent { bystanders: bystanders(scene, injections), ..Extent::default() };
        for key in injections.iter().flat_map(Injection::touched) {
            match &key {
                Key::Block(cidr) => extent.add_block(*cidr, before, &now)?,
                _ => {
                    extent.records.insert(key);
                }
            }
        }
        Ok(extent)
    }

    fn add_block(&mut self, cidr: Cidr, before: &Records, now: &Records) -> Result<()> {
        let key = Key::Block(cidr);
        let (Some(before), Some(now)) = (before.get(&key), now.get(&key)) else {
            self.records.insert(key);
            return Ok(());
        };
        let (before, now) = (Block::decode(&cidr, before)?, Block::decode(&cidr, now)?);
        let differs = |ordinal: &usize| before.attribute(*ordinal) != now.attribute(*ordinal);
        let ordinals = (0..now.allocations.len()).filter(differs);
        self.blocks.entry(cidr).or_default().extend(ordinals.filter_map(|ordinal| now.address(ordinal)));
        if before.affinity != now.affinity {
            self.disowned.insert(cidr);
        }
        Ok(())
    }

    /// Nothing that a plan changes is without a fault.
    pub(crate) fn see_that_it_holds(&self, plan: &Plan) -> Result<()> {
        for step in &plan.steps {
            let beyond = step.edits.iter().find(|edit| !self.allows(edit));
            ensure!(
                beyond.is_none(),
                "step {} ({}) changes what no fault has changed: {}",
                step.number,
                step.title,
                beyond.map(ToString::to_string).unwrap_or_default()
            );
            for work in step.on_node.iter().flat_map(|on_node| &on_node.works) {
                let hit = words(&serde_json::to_value(work)?)
                    .into_iter()
                    .find_map(|word| self.bystanders.get(&word).map(|pod| (word, pod)));
                ensure!(
                    hit.is_none(),
                    "step {} ({}) has to do with a pod to which nothing happened: {hit:?}",
                    step.number,
                    step.title
                );
            }
        }
        Ok(())
    }

    fn allows(&self, edit: &Edit) -> bool {
        let is_part = match edit {
            Edit::Allocation { block, address, .. } => {
                self.blocks.get(block).is_some_and(|addresses| addresses.contains(address))
            }
            Edit::Owner { block, .. } => self.disowned.contains(block),
            // Lists that contradict each other, and addresses whose owner is lost by that.
            Edit::Lists { block, .. } => self.blocks.contains_key(block),
            Edit::Count { .. } | Edit::NewBlock { .. } | Edit::Field { .. } | Edit::Record { .. } => false,
        };
        is_part || self.records.contains(&edit.key())
    }
}

/// By what the pods are known to which no fault happened.
fn bystanders(scene: &Scene, injections: &[Injection<'_>]) -> BTreeMap<String, String> {
    let is_at_fault = |node: &str, number: usize| {
        injections.iter().any(|injection| match injection.takes {
            Takes::Pod => injection.node == node && injection.number == number,
            Takes::Setup => injection.node == node && injection.takes_pods_along,
            Takes::Node => injection.node == node,
            Takes::Cluster => true,
        })
    };
    let mut marks = BTreeMap::new();
    for node in NODES {
        for number in (0..scene.pods_of(node)).filter(|number| !is_at_fault(node, *number)) {
            let pod = scene.pod(node, number);
            let own = [&pod.device, &pod.container_id, &pod.name].into_iter().chain(&pod.addresses);
            marks.extend(own.map(|mark| (mark.clone(), pod.name.clone())));
        }
    }
    marks
}

/// Every word in every text of a value: the parts of a setting's path, the address of `10.0.0.1/32`. A network with more addresses is no
/// pod's, although a pod may have its first one.
fn words(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => match text.split_once('/') {
            Some((address, "32" | "128")) => vec![address.to_owned()],
            Some((address, _)) if address.parse::<IpAddr>().is_ok() => Vec::new(),
            _ => text.split(['/', ' ']).map(str::to_owned).collect(),
        },
        Value::Array(values) => values.iter().flat_map(words).collect(),
        Value::Object(fields) => fields.values().flat_map(words).collect(),
        _ => Vec::new(),
    }
}
