//! Collecting: what has no owner is removed, by the checks of the doctor, the remedies of the repair, and two observations.
//!
//! Nothing is observed because of a single event. The cluster is observed as often as Calico's controller does it, again when something waits
//! for its second observation, and when a node is deleted. What is confirmed is applied for a minute at most, and then observed again: so what
//! is removed was seen without an owner shortly before.

mod rule;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use book::load::Progress;
use gather::LiveSources;
use jiff::Timestamp;
use mend::{AgentNodes, Happened, Repair, StepOutcome};
use model::text::on_one_line;
use model::{FindingCode, Kind, Resource};
use repair::{Plan, Step};
use store::kube::KubeObjects;
use store::{Revision, Store, StoreError};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use crate::configured::{self, Configured};
use crate::pages::Status;
use rule::{Collector, Verdict};

/// For how long at most is applied what one observation confirmed.
const APPLY_FOR: Duration = Duration::from_secs(60);
/// What a step costs in requests where each change is one: two for a record, and hardly any step has more than two records.
const REQUESTS_PER_STEP: u32 = 4;
/// Steps in one commit where commits are not atomic: requests come in bursts of this size.
const STEPS_AT_ONCE: usize = 4;
/// Histories that are kept. Each is of one minute's work at most.
const HISTORIES_MAX: usize = 500;
/// By which our histories are known among those of operators.
const HISTORY_SUFFIX: &str = "-controller.repair";
/// A failed observation is tried again after this time.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Kubelets renew their leases every ten seconds: observations closer than this could not tell whether one did.
const APART_MIN: Duration = Duration::from_secs(15);

/// What collecting needs.
pub(crate) struct Collecting {
    /// Limited, and changed only while this replica leads.
    pub(crate) store: Arc<dyn Store>,
    /// The cluster beside a store that is not Kubernetes.
    pub(crate) kubernetes: Option<KubeObjects>,
    pub(crate) status: Arc<Status>,
    pub(crate) grace: Duration,
    pub(crate) rate: u32,
    pub(crate) history: PathBuf,
    /// What the record of settings asks for, for others who go by it.
    pub(crate) configured: watch::Sender<Configured>,
    /// Settings that came from the environment, by their names.
    pub(crate) environment: BTreeMap<String, String>,
    /// Something happened that is worth an observation before its time.
    pub(crate) wake: Arc<Notify>,
}

impl Collecting {
    /// Observes and removes; never ends. Whoever runs it drops it when this replica does not lead any more.
    pub(crate) async fn run(&self) {
        let started = Instant::now();
        let mut collector = Collector::new(self.grace);
        loop {
            let pause = match self.pass(&mut collector, started).await {
                Ok(pause) => {
                    self.status.set_pass_problem(None);
                    pause
                }
                Err(error) => {
                    self.status.metrics.passes_failed.increment();
                    let words = format!("{error:#}");
                    warn!(error = %words, "an observation of the cluster failed; nothing was concluded from it");
                    self.status.set_pass_problem(Some(words));
                    RETRY_AFTER
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wake.notified() => tokio::time::sleep(pause.min(APART_MIN.min(self.grace))).await,
            }
        }
    }

    /// One observation, and what follows from it and those before. How long to wait for the next.
    async fn pass(&self, collector: &mut Collector, started: Instant) -> Result<Duration> {
        let record = self.configuration().await.context("cannot read KubeControllersConfiguration")?;
        let configured = Configured::of(record.as_ref());
        self.configured.send_replace(configured.clone());
        if let Some(record) = record {
            self.write_status(&record).await;
        }
        let sources =
            LiveSources::new(Ok(self.store.clone()), Vec::new()).with_kubernetes(self.kubernetes.clone());
        let evidence = sources.collect(&Progress::default()).await.context("cannot observe the cluster")?;
        let verdict =
            collector.observe(started.elapsed(), evidence, &configured).map_err(anyhow::Error::msg)?;
        self.status.metrics.passes.increment();
        let counts = |counts: &BTreeMap<FindingCode, usize>| {
            counts.iter().map(|(code, number)| ([code.as_str()], *number as u64)).collect::<Vec<_>>()
        };
        self.status.metrics.candidates.set(counts(&verdict.waiting));
        self.status.metrics.left.set(counts(&verdict.left));
        let has_more = self.apply(&verdict).await?;
        Ok(match (has_more, verdict.next) {
            (true, _) => Duration::ZERO,
            (false, Some(next)) => next.min(configured.look_every),
            (false, None) => configured.look_every,
        })
    }

    async fn configuration(&self) -> Result<Option<Resource>, StoreError> {
        let Some(found) = self.store.get(&configured::key()).await? else { return Ok(None) };
        let kind = Kind::KubeControllersConfiguration;
        let decoded = Resource::decode(&found.key, kind, &found.value, found.revision.as_str());
        Ok(decoded.inspect_err(|error| warn!(error = %on_one_line(error), "the defaults hold")).ok())
    }

    /// What Calico's controller says in the same place. That it cannot be written keeps nothing from being collected.
    async fn write_status(&self, record: &Resource) {
        let Some(new) = configured::with_status(record, &self.environment) else { return };
        let revision = record.metadata.resource_version.as_deref().unwrap_or_default();
        let written = self.store.update(record.key(), new.encode(), Revision::new(revision)).await;
        if let Err(error) = written {
            warn!(error = %on_one_line(&error), "cannot write the status of {}", record.key());
        }
    }

    /// Applies what is confirmed, for a while. Whether there is more.
    async fn apply(&self, verdict: &Verdict) -> Result<bool> {
        if verdict.ready.is_empty() {
            return Ok(false);
        }
        let is_atomic = self.store.capabilities().atomic_commits;
        let per_commit = if is_atomic { store::MAX_CHANGES } else { 1 };
        let requests = self.rate.saturating_mul(u32::try_from(APPLY_FOR.as_secs()).unwrap_or(u32::MAX));
        let most = (requests / REQUESTS_PER_STEP).max(1) as usize * per_commit;
        let steps: Vec<Step> = verdict.ready.iter().take(most).cloned().collect();
        let has_more = steps.len() < verdict.ready.len();
        let plan = Plan { id: new_id(), steps, left: Vec::new(), ..verdict.plan.clone() };
        let steps = plan.steps.clone();
        let nodes = Arc::new(AgentNodes::default());
        let begun = Repair::begin(&self.history, plan, self.store.clone(), nodes);
        let mut repair = begun.context("cannot write the history with which this could be undone")?;
        repair.keeps_going = false;
        if !is_atomic {
            repair.steps_at_once = STEPS_AT_ONCE;
        }
        let outcome = repair.run(&|_| {}).await.context("cannot apply what is confirmed")?;
        for done in &outcome.steps {
            if let Some(step) = steps.iter().find(|step| step.number == done.step) {
                self.report(step, done);
            }
        }
        self.forget_old_histories();
        Ok(has_more)
    }

    /// Each thing that was removed is a line of the log and a metric, both with the code of its finding.
    fn report(&self, step: &Step, done: &StepOutcome) {
        let (code, subject) = (step.code.as_str(), &step.subject);
        match done.how {
            Happened::Done => {
                let because = step.because.join("; ");
                info!(code, %subject, step = %step.title, %because, "removed what had no owner");
                step.fixes().for_each(|(code, _)| self.status.metrics.collected.count(code.as_str()));
            }
            Happened::Already => {}
            Happened::Surprise | Happened::Failed => {
                self.status.metrics.surprises.increment();
                let why = done.said.as_deref().unwrap_or_default();
                info!(code, %subject, step = %step.title, why, "left it: it changed at the same time");
            }
        }
    }

    /// The oldest histories, if there are too many. What cannot be removed is in nobody's way.
    fn forget_old_histories(&self) {
        let Ok(entries) = std::fs::read_dir(&self.history) else { return };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut ours: Vec<String> = names.filter(|name| name.ends_with(HISTORY_SUFFIX)).collect();
        // They begin with their time.
        ours.sort();
        let superfluous = ours.len().saturating_sub(HISTORIES_MAX);
        for name in ours.into_iter().take(superfluous) {
            if let Err(error) = std::fs::remove_file(self.history.join(&name)) {
                warn!(%error, name, "cannot remove an old history");
            }
        }
    }
}

/// `20261115-101500-3f2a-controller`: sorts by time, and two at once differ.
fn new_id() -> String {
    let lot = uuid::Uuid::new_v4().simple().to_string();
    let lot: String = lot.chars().take(4).collect();
    format!("{}-{lot}-controller", Timestamp::now().strftime("%Y%m%d-%H%M%S"))
}
