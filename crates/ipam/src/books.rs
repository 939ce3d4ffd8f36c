//! All records of address management at once, for those who look at the whole.

use std::collections::BTreeMap;

use model::ipam::{Affinity, Block, Handle};
use model::{AffinityOwner, Cidr, HandleId};

use crate::block::{is_cooling_down, tidy};
use crate::{Corrupt, Stored};

/// What a store holds, as it was read. The parts need not have been read at the same moment: everything that is
/// decided on them carries the revisions it relies on.
#[derive(Clone, Debug, Default)]
pub struct Books {
    pub blocks: BTreeMap<Cidr, Stored<Block>>,
    pub handles: BTreeMap<HandleId, Stored<Handle>>,
    pub affinities: BTreeMap<(AffinityOwner, Cidr), Stored<Affinity>>,
    /// Records that could not be read.
    pub unreadable: Vec<Corrupt>,
}

impl Books {
    /// Takes in what was read under a key of these records.
    pub fn add(&mut self, key: &model::Key, answer: crate::Answer) {
        use crate::Answer;
        match (key, answer) {
            (model::Key::Block(cidr), Answer::Block(stored)) => {
                self.blocks.insert(*cidr, stored);
            }
            (model::Key::Handle(id), Answer::Handle(stored)) => {
                self.handles.insert(id.clone(), stored);
            }
            (model::Key::Affinity { owner, block }, Answer::Affinity(stored)) => {
                self.affinities.insert((owner.clone(), *block), stored);
            }
            (key, Answer::Unreadable(reason)) => {
                self.unreadable.push(Corrupt { key: key.clone(), contradictions: vec![reason] });
            }
            (_, Answer::Absent) => {}
            (key, _) => {
                let contradictions = vec!["it is a record of another kind".to_owned()];
                self.unreadable.push(Corrupt { key: key.clone(), contradictions });
            }
        }
    }
}

/// What is wrong inside a block, apart from what any next write puts right by itself.
pub(crate) fn contradictions(cidr: &Cidr, block: &Block) -> Vec<String> {
    if block.cidr != *cidr {
        return vec![format!("it says it is {}", block.cidr)];
    }
    let found = block.contradictions();
    if found.is_empty() {
        return found;
    }
    let mut tidied = block.clone();
    tidy(&mut tidied);
    tidied.contradictions()
}

/// How many addresses of a block each handle holds.
pub(crate) fn count_by_handle(block: &Block) -> BTreeMap<&HandleId, i64> {
    let mut by_attribute = vec![0i64; block.attributes.len()];
    for &index in block.allocations.iter().flatten() {
        if let Some(count) = by_attribute.get_mut(index) {
            *count += 1;
        }
    }
    let mut counts = BTreeMap::new();
    for (attribute, count) in block.attributes.iter().zip(by_attribute) {
        if let (Some(handle), true, false) = (attribute.handle(), count > 0, is_cooling_down(attribute)) {
            *counts.entry(handle).or_default() += count;
        }
    }
    counts
}
