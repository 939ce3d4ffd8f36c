//! Doing what a plan says: wait, look again, keep what both looks agree on, and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doctor::repair::{Dropped, Plan, Scope};
use jiff::{SignedDuration, Timestamp};
use mend::{AgentNodes, Outcome, Repair as Running};

use super::super::doctor::Sources;
use super::{history_folder, look, tell};
use crate::cli::Global;
use crate::cli::repair::Repair;
use crate::failure::{Failure, Failures};
use crate::{connect, progress};

pub(super) async fn run(global: &Global, repair: &Repair, scope: &Scope) -> Result<(), Failures> {
    let unable = |failure: Failure| Failures::from(failure).unable();
    let sources = look::open(global, repair).await.map_err(unable)?;
    let (mut plan, scope) = match &repair.plan {
        Some(path) => {
            let plan = look::read(path).map_err(unable)?;
            let scope = look::scope_of(&plan).map_err(unable)?;
            (plan, scope)
        }
        None => (look::plan(&sources, repair, scope).await.map_err(unable)?.0, scope.clone()),
    };
    if plan.is_empty() {
        return Ok(tell::plan(repair, &plan)?);
    }
    tell::note(repair, &format!("{} planned.", tell::steps(plan.steps.len())));
    wait_for_second_look(repair, &plan).await;
    let dropped = agree(&sources, repair, &scope, &mut plan).await?;
    if plan.is_empty() {
        tell::nothing_agreed(repair, &dropped)?;
        return Err(Failure::new("nothing of the plan is as it was: nothing was changed")
            .hint("plumb repair shows a new plan")
            .into());
    }
    let outcome = carry_out(global, repair, &sources, plan, &dropped).await?;
    verdict(repair, &outcome)
}

/// What goes must look gone in two looks that are some time apart.
async fn wait_for_second_look(repair: &Repair, plan: &Plan) {
    if !plan.needs_second_look() {
        return;
    }
    let grace = SignedDuration::try_from_secs_f64(repair.grace).unwrap_or(doctor::GRACE);
    let since = plan.looked_at.unwrap_or_else(Timestamp::now);
    let left = grace - Timestamp::now().duration_since(since);
    let Ok(left) = Duration::try_from(left) else { return };
    tell::note(
        repair,
        &format!(
            "Waiting {} s: what is taken away must look gone twice, {} s apart.",
            left.as_secs() + 1,
            repair.grace
        ),
    );
    tokio::time::sleep(left).await;
}

/// Looks right before acting. Only what a plan of now says, too, stays in the plan.
async fn agree(
    sources: &Sources,
    repair: &Repair,
    scope: &Scope,
    plan: &mut Plan,
) -> Result<Vec<Dropped>, Failure> {
    let (now, _) = look::plan(sources, repair, scope).await?;
    if now.cluster_guid != plan.cluster_guid {
        return Err(Failure::new(format!(
            "the plan is for another cluster: its clusterGUID is {:?}, this one's is {:?}",
            plan.cluster_guid, now.cluster_guid
        ))
        .hint("make a new plan here"));
    }
    Ok(plan.keep_agreed(&now))
}

async fn carry_out(
    global: &Global,
    repair: &Repair,
    sources: &Sources,
    mut plan: Plan,
    dropped: &[Dropped],
) -> Result<Outcome, Failures> {
    let store = connect::open_for_changing(global).await?;
    let nodes = Arc::new(AgentNodes { sockets: sources.agents() });
    // A plan from a file may have been carried out before; each time is a repair of its own.
    if history_folder(repair).join(format!("{}.repair", plan.id)).exists() {
        plan.id = format!("{}-{}", plan.id, &uuid::Uuid::new_v4().simple().to_string()[..4]);
    }
    let running = Running::begin(&history_folder(repair), plan, store, nodes).map_err(explain)?;
    go(repair, running, dropped).await
}

async fn go(repair: &Repair, mut running: Running, dropped: &[Dropped]) -> Result<Outcome, Failures> {
    running.keeps_going = repair.keep_going;
    if repair.one_by_one {
        running.steps_at_once = 1;
    }
    let (id, total) = (running.plan().id.clone(), running.left().len());
    tell::note(
        repair,
        &format!("Repair {id}: {}. To take it back: plumb repair undo {id}", tell::steps(total)),
    );
    let bar = progress::bar(total);
    let start = Instant::now();
    let outcome = running.run(&|done| bar.set_position(done as u64)).await;
    bar.finish_and_clear();
    let outcome = outcome.map_err(|error| explain(error).hint(format!("when that is mended, go on with plumb repair resume {id}, or take it back with plumb repair undo {id}")))?;
    if repair.timings {
        eprintln!("timings: applying_ms={} changes={}", start.elapsed().as_millis(), outcome.changes);
    }
    tell::outcome(repair, running.plan(), &outcome, dropped)?;
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
        tell::note(repair, &format!("Repair {id} is complete: nothing is left to do."));
        return Ok(());
    }
    running.unconfirmed = unconfirmed(&sources, repair, &running).await?;
    let outcome = go(repair, running, &[]).await?;
    verdict(repair, &outcome)
}

/// What a stopped repair would still do, and a plan of right now would not. Steps that were done without a word being left of it
/// are among them: nothing is found there any more.
async fn unconfirmed(
    sources: &Sources,
    repair: &Repair,
    running: &Running,
) -> Result<BTreeMap<u32, String>, Failure> {
    let mut left = running.plan().clone();
    left.steps = running.left().into_iter().cloned().collect();
    let scope = look::scope_of(&left)?;
    let dropped = agree(sources, repair, &scope, &mut left).await?;
    Ok(dropped.into_iter().map(|dropped| (dropped.step.number, dropped.why)).collect())
}

pub(super) fn explain(error: mend::MendError) -> Failure {
    Failure::of(&error)
}

fn verdict(repair: &Repair, outcome: &Outcome) -> Result<(), Failures> {
    if outcome.is_complete() {
        return Ok(());
    }
    let count = outcome.troubles().count();
    let failure = Failure::new(format!(
        "{} could not be done as planned, {} not tried",
        tell::steps(count),
        tell::steps(outcome.not_tried)
    ));
    Err(match repair.keep_going {
        true => failure.into(),
        false => failure
            .hint("plumb repair shows a new plan; with --keep-going the rest is done all the same")
            .into(),
    })
}
