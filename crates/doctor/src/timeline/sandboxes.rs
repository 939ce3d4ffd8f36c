//! Sandboxes by number. Logs cut their IDs, so two that begin alike are one.

use std::collections::BTreeMap;

use evidence::same_id;

/// Those that were seen, in the order in which they appear.
#[derive(Debug, Default)]
pub(super) struct Sandboxes<'a> {
    pub(super) ids: Vec<&'a str>,
    /// No two of these are one, so whoever is the same as another one stands beside it in the order of letters.
    numbers: BTreeMap<&'a str, usize>,
}

impl<'a> Sandboxes<'a> {
    /// The number of a sandbox, which is a new one if nobody spoke of it before.
    pub(super) fn number(&mut self, id: &'a str) -> usize {
        let before = self.numbers.range(..=id).next_back();
        let after = self.numbers.range(id..).next();
        let known = [before, after].into_iter().flatten().find(|(known, _)| same_id(known, id));
        if let Some((_, number)) = known {
            return *number;
        }
        let number = self.ids.len();
        self.ids.push(id);
        self.numbers.insert(id, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One by one, as it is meant.
    fn slowly<'a>(ids: &[&'a str]) -> Vec<&'a str> {
        let mut found: Vec<&str> = Vec::new();
        for id in ids {
            if !found.iter().any(|known| same_id(known, id)) {
                found.push(id);
            }
        }
        found
    }

    proptest! {
        #[test]
        fn it_is_the_same_as_comparing_all(ids in prop::collection::vec("[ab]{6,12}|[ab]{8}", 0..40)) {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let mut sandboxes = Sandboxes::default();
            for id in &ids {
                let number = sandboxes.number(id);
                prop_assert!(same_id(sandboxes.ids[number], id));
            }
            prop_assert_eq!(sandboxes.ids, slowly(&ids));
        }
    }
}
