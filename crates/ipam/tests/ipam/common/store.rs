//! Records under keys, with compare-and-swap.

use std::collections::BTreeMap;

use ipam::{Answer, Ordered, Step, Steps};
use model::Key;

/// Revisions count the writes of each key, and go on when a record is deleted and made again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Store {
    records: BTreeMap<Key, (Vec<u8>, u64)>,
    writes: BTreeMap<Key, u64>,
    /// As Kubernetes does: a write that changes nothing makes no new revision.
    pub(crate) takes_same_for_none: bool,
}

/// The record whose precondition did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interrupted(pub(crate) Key);

impl Store {
    pub(crate) fn get(&self, key: &Key) -> Option<(&[u8], String)> {
        self.records.get(key).map(|(value, revision)| (&value[..], revision.to_string()))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.records.keys()
    }

    pub(crate) fn answer(&self, key: &Key) -> Answer {
        let record = self.get(key);
        Answer::read(key, record.as_ref().map(|(value, revision)| (*value, revision.as_str())))
    }

    pub(crate) fn put(&mut self, key: Key, value: Vec<u8>) {
        if self.takes_same_for_none && self.records.get(&key).is_some_and(|(known, _)| *known == value) {
            return;
        }
        let writes = self.writes.entry(key.clone()).or_default();
        *writes += 1;
        self.records.insert(key, (value, *writes));
    }

    pub(crate) fn delete(&mut self, key: &Key) {
        if self.records.remove(key).is_some() {
            *self.writes.entry(key.clone()).or_default() += 1;
        }
    }

    /// All steps or none.
    pub(crate) fn commit(&mut self, steps: &Steps) -> Result<(), Interrupted> {
        self.commit_all(steps.atomic())
    }

    pub(crate) fn commit_all(&mut self, steps: Vec<Step>) -> Result<(), Interrupted> {
        let mut keys: Vec<&Key> = steps.iter().map(Step::key).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "a record twice in one commit: {steps:?}");
        for step in &steps {
            self.check(step)?;
        }
        steps.into_iter().for_each(|step| self.carry_out(step));
        Ok(())
    }

    /// One step of a list. `own` remembers the revisions that this list's writes made.
    pub(crate) fn apply(
        &mut self,
        ordered: &Ordered,
        own: &mut BTreeMap<Key, String>,
    ) -> Result<(), Interrupted> {
        let key = ordered.key().clone();
        let as_left = |own: &BTreeMap<Key, String>| own.get(&key).cloned().expect("written before");
        let step = match ordered {
            Ordered::Step(step) => step.clone(),
            Ordered::Touch { value, revision, .. } => {
                Step::Update { key: key.clone(), value: value.clone(), revision: revision.clone() }
            }
            Ordered::Again { value, .. } => {
                Step::Update { key: key.clone(), value: value.clone(), revision: as_left(own) }
            }
            Ordered::Remove { .. } => Step::Delete { key: key.clone(), revision: as_left(own) },
        };
        self.check(&step)?;
        self.carry_out(step);
        if let Some((_, revision)) = self.get(&key) {
            own.insert(key, revision);
        }
        Ok(())
    }

    /// The first `count` steps of a list, as if whoever did them died then.
    pub(crate) fn apply_prefix(&mut self, steps: &Steps, count: usize) -> Result<(), Interrupted> {
        let mut own = BTreeMap::new();
        steps.in_order().iter().take(count).try_for_each(|ordered| self.apply(ordered, &mut own))
    }

    fn check(&self, step: &Step) -> Result<(), Interrupted> {
        let found = self.get(step.key()).map(|(_, revision)| revision);
        let wanted = match step {
            Step::Create { .. } | Step::RequireAbsent { .. } => None,
            Step::Update { revision, .. }
            | Step::Delete { revision, .. }
            | Step::Require { revision, .. } => Some(revision.clone()),
        };
        if found == wanted { Ok(()) } else { Err(Interrupted(step.key().clone())) }
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Create { key, value } | Step::Update { key, value, .. } => self.put(key, value),
            Step::Delete { key, .. } => self.delete(&key),
            Step::Require { .. } | Step::RequireAbsent { .. } => {}
        }
    }
}
