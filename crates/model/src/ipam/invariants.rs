//! What must hold inside one block, whoever wrote it.

use std::collections::BTreeSet;

use super::Block;

impl Block {
    /// Every way in which the block contradicts itself, in words. `ipam check` and the doctor both ask this.
    ///
    /// That no `releasedAt` lies in the future is not looked at here: it needs a clock.
    pub fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.check_length(&mut found);
        self.check_attributes(&mut found);
        self.check_free_list(&mut found);
        self.check_sequence_numbers(&mut found);
        found
    }

    fn check_length(&self, found: &mut Vec<String>) {
        let (listed, capacity) = (self.allocations.len(), self.capacity());
        if listed != capacity {
            found.push(format!("{} has {capacity} addresses, but allocations lists {listed}", self.cidr));
        }
    }

    fn check_attributes(&self, found: &mut Vec<String>) {
        let known = self.attributes.len();
        let mut is_referenced = vec![false; known];
        for (ordinal, index) in self.allocations.iter().enumerate() {
            let Some(index) = *index else { continue };
            match is_referenced.get_mut(index) {
                Some(is_referenced) => *is_referenced = true,
                None => found.push(format!("address {ordinal} refers to attribute {index} of {known}")),
            }
        }
        let unused =
            (0..known).filter(|index| !is_referenced.get(*index).is_some_and(|is_referenced| *is_referenced));
        found.extend(unused.map(|index| format!("attribute {index} is used by no address")));
    }

    fn check_free_list(&self, found: &mut Vec<String>) {
        // Offsets outside the block are few, if any: a list of flags is for the others.
        let (mut is_free, mut outside) = (vec![false; self.allocations.len()], BTreeSet::new());
        for ordinal in &self.unallocated {
            let is_listed = match is_free.get_mut(*ordinal) {
                Some(is_free) => std::mem::replace(is_free, true),
                None => !outside.insert(*ordinal),
            };
            if is_listed {
                found.push(format!("address {ordinal} is listed twice as unallocated"));
                continue;
            }
            match self.allocations.get(*ordinal) {
                None => found.push(format!("address {ordinal} is unallocated but not in the block")),
                Some(Some(_)) => found.push(format!("address {ordinal} is both allocated and unallocated")),
                Some(None) => {}
            }
        }
        for (ordinal, index) in self.allocations.iter().enumerate() {
            if index.is_none() && !is_free.get(ordinal).is_some_and(|is_free| *is_free) {
                found.push(format!("address {ordinal} is neither allocated nor unallocated"));
            }
        }
    }

    /// Calico's own check does not look at these; a number without allocation or from the future would let a
    /// release with a sequence number do the wrong thing.
    fn check_sequence_numbers(&self, found: &mut Vec<String>) {
        let block = self.sequence_number;
        for (ordinal, number) in &self.sequence_number_for_allocation {
            let allocation = ordinal.parse().ok().and_then(|ordinal: usize| self.allocations.get(ordinal));
            if !allocation.is_some_and(Option::is_some) {
                found.push(format!("address {ordinal} has a sequence number but is not allocated"));
            }
            if *number > block {
                found.push(format!(
                    "address {ordinal} has sequence number {number}, above the block's {block}"
                ));
            }
        }
    }
}
