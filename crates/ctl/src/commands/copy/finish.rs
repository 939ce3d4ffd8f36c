//! The end of a copy: what was written is read back, and the source must still say what was copied.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::kube::is_custom_resource;
use model::transfer::{Destination, Likeness, Meeting, Obstacle, Rule, information};
use model::{Key, Kind};
use store::{Record, Revision};

use super::scan::Met;
use super::side::Opened;
use super::{Job, begin, existing};
use crate::cli::copy::Copy;
use crate::failure::{Failure, Failures, Problems};

const STAYS_LOCKED: &str = "the destination stays locked; run the same command again to continue";

/// How the destination differs from the plan.
#[derive(Debug, Default)]
struct Check {
    seen: BTreeSet<Key>,
    /// Fields that the API server did not keep.
    lacking: Vec<(Key, Vec<String>)>,
    strange: Vec<(Key, Obstacle)>,
}

impl Job {
    pub(super) async fn finish(
        &mut self,
        copy: &Copy,
        opened: &Opened,
        lock: Revision,
    ) -> Result<(), Failures> {
        let check = self.read_back(copy, opened).await.map_err(|failure| failure.hint(STAYS_LOCKED))?;
        self.summary.lacks(&check.lacking);
        self.explain(check)?;
        let losses = self.summary.losses_of_writing();
        if !losses.is_empty() && !copy.partial {
            return Err(lost(losses));
        }
        self.check_source(copy).await?;
        Ok(begin::release(&*opened.store, &self.survey.to, &lock, !copy.keep_locked).await?)
    }

    async fn read_back(&self, copy: &Copy, opened: &Opened) -> Result<Check, Failure> {
        let rule = Rule { existing: existing(copy.existing), is_unfinished: false };
        let to = &self.survey.to;
        let add = |check: &mut Check, record: &Record| {
            let key = || record.key.clone();
            if matches!(self.there.get(&record.key), Some(Met::Kept(_))) || record.key == information::key() {
                return;
            }
            match self.plan.compare(to, &record.key, &record.value) {
                None => match self.plan.meet(to, rule, &record.key, &record.value) {
                    Meeting::Ignore => return,
                    _ => check.strange.push((key(), Obstacle::NotInSource)),
                },
                Some(Likeness::Same) => {}
                // Defaults of its definitions.
                Some(Likeness::Adds(_)) if matches!(to, Destination::Kubernetes(_)) => {}
                Some(Likeness::Lacks(fields)) if matches!(to, Destination::Kubernetes(_)) => {
                    check.lacking.push((key(), fields));
                }
                Some(Likeness::Lacks(fields) | Likeness::Adds(fields) | Likeness::Differs(fields)) => {
                    check.strange.push((key(), Obstacle::Differs { fields }));
                }
            }
            check.seen.insert(key());
        };
        Ok(self.survey.gather(&*opened.store, add).await?)
    }

    /// What cannot come from this copy, another program must have done.
    fn explain(&self, check: Check) -> Result<(), Failures> {
        let mut problems = Problems::default();
        for (key, obstacle) in check.strange {
            problems.push(Failure::new(format!("{key} in the destination {obstacle} after the copy")));
        }
        for key in self.plan.writes.keys().filter(|key| !check.seen.contains(*key)) {
            let is_kept = matches!(self.there.get(key), Some(Met::Kept(_)));
            // A Pod may have ended since.
            if !is_kept && !self.summary.is_refused(key) && key.kind() != Kind::WorkloadEndpoint {
                problems.push(Failure::new(format!("{key} is missing in the destination after the copy")));
            }
        }
        problems.finish().map_err(|failures| {
            failures.and(
                Failure::new("another program changed the destination during the copy")
                    .hint("stop what uses the destination, then run the same command again"),
            )
        })
    }

    /// Compares the source with what was read of it. Kubernetes' own objects change whatever is locked.
    async fn check_source(&self, copy: &Copy) -> Result<(), Failures> {
        let mut before: BTreeMap<Key, &Bytes> =
            self.source.records.iter().map(|record| (record.key.clone(), &record.value)).collect();
        let now = super::scan::everything(&*self.source.store.store)
            .await
            .map_err(|error| Failure::from(error).hint(STAYS_LOCKED))?;
        let mut changed: BTreeSet<Key> = BTreeSet::new();
        for record in now {
            if before.remove(&record.key).is_none_or(|value| *value != record.value) {
                changed.insert(record.key);
            }
        }
        changed.extend(before.into_keys());
        if self.source.store.layout.is_some() {
            changed.retain(|key| is_custom_resource(key.kind()));
        }
        let Some(first) = changed.first() else { return Ok(()) };
        let said = format!("{} in the source changed during the copy, {first} first", records(changed.len()));
        if copy.while_unlocked {
            eprintln!("warning: {said}; the destination has them as they were before");
            return Ok(());
        }
        Err(Failure::new(said).hint(STAYS_LOCKED).into())
    }
}

fn lost(losses: Vec<String>) -> Failures {
    let mut problems = Problems::default();
    losses.into_iter().for_each(|loss| problems.push(Failure::new(loss)));
    let last = Failure::new("not everything could be written; the destination stays locked")
        .hint("change these records in the source and run the same command again, or accept the losses with --partial");
    match problems.finish() {
        Err(failures) => failures.and(last),
        Ok(()) => last.into(),
    }
}

pub(super) fn records(count: usize) -> String {
    if count == 1 { "1 record".to_owned() } else { format!("{count} records") }
}
