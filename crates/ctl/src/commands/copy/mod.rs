//! `plumb datastore copy`: all records of one store, written to another.
//!
//! What is carried, how, in which order and what is in the way is decided by `model::transfer`. Here both stores are read (`scan`), the
//! records are written (`write`) and read back (`finish`), and all of it is told (`tell`). `side` knows how stores are named.

mod begin;
mod finish;
mod scan;
mod side;
mod tell;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::cluster::is_locked;
use model::transfer::information;
use model::transfer::{Existing, Origin, Plan, plan, stages_of_removal};
use model::{Key, Resource};
use store::{Change, OpenMode, Record};

use self::begin::Beginning;
use self::scan::{Met, Survey, There};
use self::side::{Opened, Side};
use self::tell::Summary;
use self::write::{Outcome, Writer};
use crate::cli::Global;
use crate::cli::copy::{Copy, ExistingRule};
use crate::failure::{Failure, Failures};
use crate::{progress, records};

pub(super) async fn run(global: &Global, copy: &Copy) -> Result<(), Failures> {
    let from = Side::named(global, "--from", copy.from.as_deref(), copy.from_config.as_deref())?;
    let to = Side::named(global, "--to", copy.to.as_deref(), copy.to_config.as_deref())?;
    if from.is(&to) {
        return Err(Failure::usage(format!("source and destination are the same: {}", from.config())).into());
    }
    let source = Source::read(&from.look(false).await?, &from.config().to_string()).await?;
    source.check(copy)?;
    let there = to.look(true).await?;
    let mut job = Job::plan(copy, source, &there, &to.config().to_string()).await?;
    if to.is_told_by_revisions() && job.is_same_store() {
        return Err(Failure::usage(format!(
            "{} and {} hold the same ClusterInformation at the same revision: they are the same store, or one was restored from \
             the other's backup",
            from.config(),
            to.config()
        ))
        .into());
    }
    let refusals = job.summary.refusals();
    if copy.dry_run.dry_run || !refusals.is_empty() {
        job.summary.tell(copy)?;
        return Failures::collect(refusals);
    }
    let there = if job.has_work(copy) { to.open(OpenMode::CreateIfMissing).await? } else { there };
    let done = job.carry_out(copy, &there).await;
    job.summary.tell(copy)?;
    done
}

/// What is to be copied.
#[derive(Debug)]
struct Source {
    store: Opened,
    /// As messages show it.
    name: String,
    records: Vec<Record>,
    information: Option<(Resource, Record)>,
}

impl Source {
    async fn read(store: &Opened, name: &str) -> Result<Source, Failure> {
        let records = scan::everything(&*store.store).await?;
        let own = records.iter().find(|record| record.key == information::key()).cloned();
        let information =
            own.map(|record| records::to_resource(&record).map(|own| (own, record))).transpose()?;
        Ok(Source { store: store.clone(), name: name.to_owned(), records, information })
    }

    fn check(&self, copy: &Copy) -> Result<(), Failure> {
        if self.records.is_empty() {
            return Err(Failure::new(format!("{} holds no records", self.name))
                .hint("is this the right store? Nothing was written"));
        }
        if let Some(from) = self.information().and_then(information::unfinished) {
            return Err(Failure::new(format!("{} holds an unfinished copy of {from}", self.name))
                .hint("finish that copy first: run its plumb datastore copy again"));
        }
        if self.is_locked() || copy.while_unlocked {
            return Ok(());
        }
        if copy.dry_run.dry_run {
            eprintln!(
                "note: the source is not locked; lock it with plumb datastore migrate lock before the copy"
            );
            return Ok(());
        }
        Err(Failure::new(format!("{} is not locked: pods could start and stop during the copy", self.name)).hint(
            "lock it with plumb datastore migrate lock, or use --while-unlocked if what changes during the copy may be missing",
        ))
    }

    fn information(&self) -> Option<&Resource> {
        self.information.as_ref().map(|(information, _)| information)
    }

    fn is_locked(&self) -> bool {
        self.information().is_some_and(is_locked)
    }

    fn origin(&self) -> Origin {
        if self.store.layout.is_some() { Origin::Kubernetes } else { Origin::Records }
    }
}

/// A copy whose every step is decided.
#[derive(Debug)]
struct Job {
    source: Source,
    survey: Survey,
    plan: Arc<Plan<Bytes>>,
    beginning: Beginning,
    there: There,
    summary: Summary,
}

impl Job {
    async fn plan(copy: &Copy, source: Source, there: &Opened, name: &str) -> Result<Job, Failure> {
        let store = &*there.store;
        let survey = scan::survey(there, &source.records).await?;
        let values = source.records.iter().map(|record| (record.key.clone(), record.value.clone()));
        let plan = Arc::new(plan(values, source.origin(), &survey.to));
        let existing = existing(copy.existing);
        let mut beginning = Beginning::read(store, &survey.to, source.information(), existing).await?;
        let met = survey.meet(store, &plan, beginning.rule()).await?;
        beginning.consider(&survey.to, survey.is_bare(&met));
        let summary = Summary::new(copy, &source, name, &plan, &beginning, &met);
        Ok(Job { source, survey, plan, beginning, there: met, summary })
    }

    fn is_same_store(&self) -> bool {
        let source = self.source.information.as_ref().map(|(_, record)| record);
        match (source, &self.beginning.there) {
            (Some(one), Some((_, other))) => one.revision == other.revision && one.value == other.value,
            _ => false,
        }
    }

    /// Whether anything has to be written.
    fn has_work(&self, copy: &Copy) -> bool {
        !self.creations().is_empty()
            || self.there.values().any(|met| matches!(met, Met::Replaced { .. } | Met::Removed { .. }))
            || !self.beginning.is_final(!copy.keep_locked)
    }

    fn creations(&self) -> BTreeMap<&Key, &Bytes> {
        self.plan.writes.iter().filter(|(key, _)| !self.there.contains_key(*key)).collect()
    }

    async fn carry_out(&mut self, copy: &Copy, opened: &Opened) -> Result<(), Failures> {
        let done = match self.has_work(copy) {
            true => self.write(copy, opened).await,
            false => Ok(()),
        };
        match done {
            Ok(()) => self.summary.finish(!copy.keep_locked),
            Err(_) => self.summary.stop(),
        }
        done
    }

    async fn write(&mut self, copy: &Copy, opened: &Opened) -> Result<(), Failures> {
        let store = &opened.store;
        let locked = self.beginning.lock(&**store, &self.survey.to, &self.source.name).await;
        let lock = locked.inspect_err(|_| self.summary.wrote(None))?;
        let bar = progress::bar(self.changes());
        let writer = Writer {
            store: store.clone(),
            to: Arc::new(self.survey.to.clone()),
            plan: self.plan.clone(),
            lock: lock.clone(),
            bar: bar.clone(),
        };
        let mut outcome = Outcome::default();
        let made = self.make(&writer, &mut outcome).await;
        bar.finish_and_clear();
        self.summary.wrote(Some((&outcome, &self.there)));
        made?;
        self.finish(copy, opened, lock).await
    }

    fn changes(&self) -> usize {
        let met = self.there.values();
        self.creations().len()
            + met.filter(|met| matches!(met, Met::Replaced { .. } | Met::Removed { .. })).count()
    }

    async fn make(&self, writer: &Writer, outcome: &mut Outcome) -> Result<(), Failure> {
        let removals: BTreeMap<Key, Change> = self
            .there
            .iter()
            .filter_map(|(key, met)| match met {
                Met::Removed { revision } => {
                    Some((key.clone(), Change::delete(key.clone(), revision.clone())))
                }
                _ => None,
            })
            .collect();
        for stage in stages_of_removal(&removals) {
            writer.make(stage.iter().map(|key| removals[key].clone()).collect(), outcome).await?;
        }
        for stage in self.plan.stages() {
            let changes = stage.into_iter().filter_map(|key| match self.there.get(&key) {
                None => Some(Change::create(key.clone(), self.plan.writes[&key].clone())),
                Some(Met::Replaced { value, revision }) => {
                    Some(Change::update(key, value.clone(), revision.clone()))
                }
                Some(_) => None,
            });
            writer.make(changes.collect(), outcome).await?;
        }
        Ok(())
    }
}

fn existing(rule: ExistingRule) -> Existing {
    match rule {
        ExistingRule::Refuse => Existing::Refuse,
        ExistingRule::Keep => Existing::Keep,
        ExistingRule::Replace => Existing::Replace,
    }
}
