//! Commits whose answer was lost, and how to find out whether they happened.

use std::collections::BTreeMap;

use ipam::{Answer, Granted, Step, Steps};
use model::ipam::Block;
use model::{HandleId, Key};
use store::StoreError;

use super::{Assigning, Planned};
use crate::Addition;
use crate::book::{Ground, Inner};
use crate::look::Reader;

/// What one commit was to give, each address with the number of its allocation.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) addresses: Vec<(Granted, u64)>,
    pub(super) additions: Vec<Addition>,
}

/// For each member, the commit that happened after all, if one did.
pub(super) async fn settled_plans(
    inner: &Inner,
    members: &[Assigning],
    ground: &Ground,
) -> Result<Vec<Option<Plan>>, StoreError> {
    let has_handle = |member: &Assigning| {
        matches!(ground.handles.get(&member.request.owner.handle), Some(Answer::Handle(_)))
    };
    let mut settled = Vec::new();
    let mut reader = Reader::new(&inner.store);
    for member in members {
        let mut found = None;
        for plan in member.plans.iter().filter(|_| has_handle(member)) {
            let keys = plan.addresses.iter().map(|(granted, _)| Key::Block(granted.block)).collect();
            let blocks: BTreeMap<Key, Answer> = reader.look(keys).await?.into_iter().collect();
            if plan.has_happened(&member.request.owner.handle, &blocks) {
                found = Some(plan.clone());
            }
        }
        settled.push(found);
    }
    Ok(settled)
}

impl Plan {
    /// What the commit was to give, read from the blocks that it was to write.
    pub(super) fn new(planned: &Planned, steps: &Steps) -> Plan {
        let mut blocks = BTreeMap::new();
        for step in steps.atomic() {
            if let (Key::Block(cidr), Step::Create { value, .. } | Step::Update { value, .. }) =
                (step.key().clone(), &step)
                && let Ok(block) = Block::decode(&cidr, value)
            {
                blocks.insert(cidr, block);
            }
        }
        let number = |granted: &Granted| {
            let block = blocks.get(&granted.block)?;
            Some((*granted, block.sequence_of(block.ordinal(granted.address)?)))
        };
        let addresses = planned.grant.addresses.iter().filter_map(number).collect();
        Plan { addresses, additions: planned.additions.clone() }
    }

    fn has_happened(&self, handle: &HandleId, blocks: &BTreeMap<Key, Answer>) -> bool {
        let is_there = |(granted, number): &(Granted, u64)| {
            let Some(Answer::Block(stored)) = blocks.get(&Key::Block(granted.block)) else { return false };
            let Some(ordinal) = stored.value.ordinal(granted.address) else { return false };
            let holder = stored.value.attribute(ordinal).and_then(|attribute| attribute.handle());
            holder == Some(handle) && stored.value.sequence_of(ordinal) == *number
        };
        !self.addresses.is_empty() && self.addresses.iter().all(is_there)
    }
}
