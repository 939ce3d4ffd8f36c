//! Doing what a plan says: what gives at once; what takes after a second look. What loses a race is planned anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use doctor::{Certainty, Examination, Next, Report, Rule};
use gather::LiveSources;
use jiff::Timestamp;
use mend::{AgentNodes, Outcome, Repair as Running};
use model::{FindingCode, ShellCommand};
use repair::{Dropped, Plan, Scope, Step, StepId};

use super::pending::{Finished, Pending};
use super::{history_folder, look, tell};
use crate::cli::Global;
use crate::cli::repair::Repair;
use crate::failure::{Failure, Failures};
use crate::{connect, progress};

/// A finding, as plans name it.
type Named = (FindingCode, String);

/// How often what lost a race is planned anew.
const ROUNDS_MAX: usize = 8;

/// So many steps are named one by one as they are done; of more, those on nodes and those that do not go.
const NAMED_MAX: usize = 200;

pub(super) async fn run(global: &Global, repair: &Repair, scope: &Scope) -> Result<(), Failures> {
    let unable = |failure: Failure| Failures::from(failure).unable();
    let sources = look::open(global, repair).await.map_err(unable)?;
    let (plan, scope, explained) = match &repair.plan {
        Some(path) => {
            let plan = look::read(path).map_err(unable)?;
            let scope = plan.scope.clone();
            (plan, scope, BTreeSet::new())
        }
        None => {
            let (plan, report) = look::plan(&sources, repair, scope).await.map_err(unable)?;
            (plan, scope.clone(), explained(&report))
        }
    };
    if plan.is_empty() {
        return Ok(tell::plan(repair, &plan)?);
    }
    tell::note(repair, &format!("{} planned.", tell::steps(plan.steps.len())));
    let mut apply = Apply {
        global,
        repair,
        sources: &sources,
        scope,
        pending: Pending::default(),
        confirmations: Examination::new(rule(repair)),
        running: None,
    };
    let last = apply.first(&plan).await?;
    match &repair.plan {
        None => {
            apply.rounds().await?;
            apply.what_remains(&explained).await?;
        }
        // A plan in a file is what somebody agreed to: nothing else is done.
        Some(_) => drop(apply.pending.taken_up(&last, &[])),
    }
    apply.finish(&plan)
}

/// A plan that is being carried out.
struct Apply<'a> {
    global: &'a Global,
    repair: &'a Repair,
    sources: &'a LiveSources,
    scope: Scope,
    pending: Pending,
    /// Which steps the plans so far agree on: what removes something must be planned twice, a grace apart.
    confirmations: Examination<StepId>,
    /// As soon as there is something to do.
    running: Option<Running>,
}

impl Apply<'_> {
    /// What gives comes at once: until then an address in use may be given out again. What takes waits for its second observation.
    /// Returns the plan of the last one.
    async fn first(&mut self, plan: &Plan) -> Result<Plan, Failures> {
        let mut last = Plan::default();
        self.observe(plan);
        let (taking, giving): (Vec<Step>, Vec<Step>) =
            plan.steps.iter().cloned().partition(|step| step.needs_second_look);
        for steps in [giving, taking] {
            if steps.is_empty() {
                continue;
            }
            let mut part = Plan { steps, ..plan.clone() };
            if part.needs_second_look() {
                self.wait().await;
            }
            let (dropped, now) = agree(self.sources, self.repair, &self.scope, &mut part).await?;
            self.pending.dropped(dropped);
            self.observe(&now);
            let (ready, unconfirmed): (Vec<Step>, Vec<Step>) =
                part.steps.into_iter().partition(|step| self.confirmations.is_confirmed(&step.id()));
            self.pending.dropped(unconfirmed.into_iter().map(unconfirmed_step).collect());
            last = now;
            self.carry_out(plan, ready).await?;
        }
        Ok(last)
    }

    /// What lost a race is planned again at once, and done, as often as it takes within a bound.
    async fn rounds(&mut self) -> Result<(), Failures> {
        let mut has_waited = false;
        for _ in 0..ROUNDS_MAX {
            if self.pending.is_empty() {
                return Ok(());
            }
            let (now, report) = look::plan(self.sources, self.repair, &self.scope).await?;
            self.observe(&now);
            let mut steps = self.pending.taken_up(&now, &report.not_judged);
            if steps.is_empty() {
                continue;
            }
            steps.retain(|step| self.confirmations.is_confirmed(&step.id()));
            if steps.is_empty() && has_waited {
                return Ok(());
            }
            if steps.is_empty() {
                has_waited = true;
                self.wait().await;
                continue;
            }
            tell::note(
                self.repair,
                &format!("{} planned again: the state changed since planning.", tell::steps(steps.len())),
            );
            if !self.carry_out(&now, steps).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What the findings explained does not always go away with them: a route that was missing beside a wrong address is missing
    /// still, unless an agent adds it. What is found now is planned and applied as what lost a race.
    async fn what_remains(&mut self, explained: &BTreeSet<Named>) -> Result<(), Failures> {
        if self.running.is_none() || explained.is_empty() {
            return Ok(());
        }
        let (now, _) = look::plan(self.sources, self.repair, &self.scope).await?;
        let is_of_it = |(code, subject): (FindingCode, &str)| explained.contains(&(code, subject.to_owned()));
        let steps = now.steps.into_iter().filter(|step| step.fixes().any(is_of_it));
        let why = "its cause was repaired, and it is still found".to_owned();
        self.pending.dropped(steps.map(|step| Dropped { step, why: why.clone() }).collect());
        self.rounds().await
    }

    fn observe(&mut self, plan: &Plan) {
        let certainty = |step: &Step| match step.needs_second_look {
            true => Certainty::MayBeChurn,
            false => Certainty::Certain,
        };
        let steps = plan.steps.iter().map(|step| (step.id(), certainty(step)));
        // A plan in a file may have any time. One that is still to come would be waited for.
        let now = Timestamp::now();
        self.confirmations.observe(since_epoch(plan.looked_at.unwrap_or(now).min(now)), steps);
    }

    /// What goes must be gone in two observations that are some time apart.
    async fn wait(&self) {
        let Next::Wait(left) = self.confirmations.poll(since_epoch(Timestamp::now())) else { return };
        tell::note(
            self.repair,
            &format!(
                "Waiting {} s: anything to be removed must be gone in two observations {} s apart.",
                left.as_secs() + 1,
                self.repair.grace
            ),
        );
        tokio::time::sleep(left).await;
    }

    /// Whether anything was tried: what depends on a step that failed is not.
    async fn carry_out(&mut self, plan: &Plan, steps: Vec<Step>) -> Result<bool, Failures> {
        if steps.is_empty() {
            return Ok(false);
        }
        match &mut self.running {
            Some(running) => running.replan(steps).map_err(explain)?,
            None => {
                let plan = Plan { steps, ..plan.clone() };
                self.running = Some(begin(self.global, self.repair, self.sources, plan).await?);
            }
        }
        let running = self.running.as_mut().expect("it was begun");
        let steps: Vec<Step> = running.left().into_iter().cloned().collect();
        let outcome = go(self.repair, running).await?;
        let has_tried = !outcome.steps.is_empty();
        self.pending.ran(&steps, outcome);
        Ok(has_tried)
    }

    fn finish(self, plan: &Plan) -> Result<(), Failures> {
        let Finished { outcome, settled, lost, open } = self.pending.finish();
        let dropped = [settled, lost.clone()].concat();
        let Some(running) = self.running else {
            tell::nothing_agreed(self.repair, &dropped)?;
            return Err(Failure::new("the cluster changed since planning; nothing was applied")
                .hint("plumb repair shows a new plan")
                .into());
        };
        let mut done = Plan { left: plan.left.clone(), ..running.plan().clone() };
        let known: Vec<u32> = done.steps.iter().map(|step| step.number).collect();
        done.steps.extend(open.into_iter().filter(|step| !known.contains(&step.number)));
        tell::outcome(self.repair, &done, &outcome, &dropped)?;
        verdict(self.repair, &outcome, lost.len())
    }
}

/// What is reported only as a symptom of another finding, and so has no step of its own in a plan.
fn explained(report: &Report) -> BTreeSet<Named> {
    let symptoms = report.findings.iter().flat_map(|finding| &finding.symptoms);
    symptoms.map(|symptom| (symptom.code, symptom.subject.to_string())).collect()
}

/// Two plans, a grace apart. How often is bounded by the rounds.
fn rule(repair: &Repair) -> Rule {
    let settle = Duration::try_from(look::grace(repair)).unwrap_or_default();
    Rule { observations: u32::MAX, ..Rule::twice(settle) }
}

/// Of the wall clock, because a plan may come from a file.
fn since_epoch(time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default()
}

fn unconfirmed_step(step: Step) -> Dropped {
    Dropped { step, why: "two observations in a row have not confirmed it yet".to_owned() }
}

/// Observes right before acting. Only what a plan of now says, too, stays in the plan.
async fn agree(
    sources: &LiveSources,
    repair: &Repair,
    scope: &Scope,
    plan: &mut Plan,
) -> Result<(Vec<Dropped>, Plan), Failure> {
    let (now, _) = look::plan(sources, repair, scope).await?;
    if now.cluster_guid != plan.cluster_guid {
        return Err(Failure::new(format!(
            "the plan is for another cluster: its clusterGUID is {:?}, that of this cluster is {:?}",
            plan.cluster_guid, now.cluster_guid
        ))
        .hint("create a new plan for this cluster"));
    }
    Ok((plan.keep_agreed(&now), now))
}

async fn begin(
    global: &Global,
    repair: &Repair,
    sources: &LiveSources,
    mut plan: Plan,
) -> Result<Running, Failures> {
    let store = connect::open_for_changing(global).await?;
    let nodes = Arc::new(AgentNodes { sockets: sources.agents() });
    // A plan from a file may have been carried out before; each time is a repair of its own.
    if history_folder(repair).join(format!("{}.repair", plan.id)).exists() {
        plan.id = format!("{}-{}", plan.id, &uuid::Uuid::new_v4().simple().to_string()[..4]);
    }
    for (number, step) in (1..).zip(&mut plan.steps) {
        step.number = number;
    }
    Ok(Running::begin(&history_folder(repair), plan, store, nodes).map_err(explain)?)
}

async fn go(repair: &Repair, running: &mut Running) -> Result<Outcome, Failures> {
    running.keeps_going = repair.keep_going;
    if repair.one_by_one {
        running.steps_at_once = 1;
    }
    let (id, total) = (running.plan().id.clone(), running.left().len());
    tell::note(repair, &format!("Repair {id}: {}. To undo it: {}", tell::steps(total), past("undo", &id)));
    let bar = progress::bar(total);
    let start = Instant::now();
    let names = repair.all || repair.one_by_one || total <= NAMED_MAX;
    let outcome = running.run(&|progress| tell::progress(repair, &bar, progress, names)).await;
    bar.finish_and_clear();
    let outcome = outcome.map_err(|error| {
        let (resume, undo) = (past("resume", &id), past("undo", &id));
        explain(error).hint(format!("fix the cause, then continue with {resume} or undo with {undo}"))
    })?;
    if repair.timings {
        eprintln!("timings: applying_ms={} changes={}", start.elapsed().as_millis(), outcome.changes);
    }
    Ok(outcome)
}

pub(super) async fn resume(global: &Global, repair: &Repair, id: &str) -> Result<(), Failures> {
    let sources = look::open(global, repair).await.map_err(|failure| Failures::from(failure).unable())?;
    // Only to learn which agent is whose.
    sources.of_nodes().await;
    let store = connect::open_for_changing(global).await?;
    let nodes = Arc::new(AgentNodes { sockets: sources.agents() });
    let mut running = Running::resume(&history_folder(repair), id, store, nodes).map_err(explain)?;
    if running.left().is_empty() {
        tell::note(repair, &format!("Repair {id} is complete; nothing is left to do."));
        return Ok(());
    }
    running.unconfirmed = unconfirmed(&sources, repair, &running).await?;
    let outcome = go(repair, &mut running).await?;
    tell::outcome(repair, running.plan(), &outcome, &[])?;
    verdict(repair, &outcome, 0)
}

/// What a stopped repair would still do, and a plan of right now would not. Steps that were done without a word being left of it
/// are among them: nothing is found there any more.
async fn unconfirmed(
    sources: &LiveSources,
    repair: &Repair,
    running: &Running,
) -> Result<BTreeMap<u32, String>, Failure> {
    let mut left = running.plan().clone();
    left.steps = running.left().into_iter().cloned().collect();
    let scope = left.scope.clone();
    let (dropped, _) = agree(sources, repair, &scope, &mut left).await?;
    Ok(dropped.into_iter().map(|dropped| (dropped.step.number, dropped.why)).collect())
}

/// What to do with this repair later.
fn past(verb: &'static str, id: &str) -> ShellCommand {
    ShellCommand::new("plumb repair").plain(verb).value(id)
}

pub(super) fn explain(error: mend::MendError) -> Failure {
    Failure::of(&error)
}

/// `lost`: steps that could have been done, and that no look confirmed.
fn verdict(repair: &Repair, outcome: &Outcome, lost: usize) -> Result<(), Failures> {
    if outcome.is_complete() && lost == 0 {
        return Ok(());
    }
    let failure = Failure::new(format!(
        "{} could not be applied as planned, {} not tried",
        tell::steps(lost + outcome.troubles().count()),
        tell::steps(outcome.not_tried)
    ));
    let hint = match repair.keep_going || outcome.not_tried == 0 {
        true => "plumb repair shows a new plan",
        false => "plumb repair shows a new plan; --keep-going also tries steps that depend on a failed one",
    };
    Err(failure.hint(hint).into())
}
