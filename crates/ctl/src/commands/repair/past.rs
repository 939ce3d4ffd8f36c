//! Past repairs: listed, shown, taken back.

use std::io::Write as _;
use std::sync::Arc;

use mend::{AgentNodes, History, Repair as Running, Summary, Told};
use render::harmless;

use super::{history_folder, look, tell};
use crate::cli::Global;
use crate::cli::repair::{Repair, RepairFormat};
use crate::connect;
use crate::failure::{Failure, Failures};
use crate::progress;

/// A bar whose length is told when it is known.
const BAR: usize = 1000;

pub(super) async fn undo(global: &Global, repair: &Repair, id: &str) -> Result<(), Failures> {
    let folder = history_folder(repair);
    let sources = look::open(global, repair).await.map_err(|failure| Failures::from(failure).unable())?;
    // Only to learn which agent is whose.
    sources.of_nodes().await;
    let store = connect::open_for_changing(global).await?;
    let nodes = Arc::new(AgentNodes { sockets: sources.agents() });
    let bar = progress::bar(BAR);
    let shown = |done: usize, total: usize| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    };
    let (plan, outcome) =
        Running::undo(&folder, id, store, nodes, &shown).await.map_err(super::apply::explain)?;
    bar.finish_and_clear();
    tell::undone(repair, &plan, &outcome)?;
    match outcome.troubles().count() {
        0 => Ok(()),
        count => Err(Failure::new(format!("{} could not be undone", tell::steps(count)))
            .hint("each is listed with its reason; what has changed since the repair is not touched")
            .into()),
    }
}

pub(super) fn list(repair: &Repair) -> Result<(), Failures> {
    let repairs = History::list(&history_folder(repair)).map_err(|error| Failure::of(&error))?;
    let mut out = std::io::stdout().lock();
    if repair.output == RepairFormat::Json {
        writeln!(out, "{}", serde_json::json!({"repairs": repairs}))?;
        return Ok(());
    }
    if repairs.is_empty() {
        eprintln!("No repairs are recorded in {}.", history_folder(repair).display());
        return Ok(());
    }
    writeln!(out, "{:<28} {:<20} {:>6} {:>6}  STATE", "ID", "SCOPE", "STEPS", "DONE")?;
    for Summary { id, scope, planned, done, state, .. } in repairs {
        writeln!(
            out,
            "{:<28} {:<20} {planned:>6} {done:>6}  {state}",
            harmless(&id),
            harmless(&scope.to_string())
        )?;
    }
    Ok(())
}

pub(super) fn show(repair: &Repair, id: &str) -> Result<(), Failures> {
    let (_, told) = History::open(&history_folder(repair), id).map_err(|error| Failure::of(&error))?;
    let mut out = std::io::stdout().lock();
    if repair.output == RepairFormat::Json {
        writeln!(out, "{}", serde_json::json!({"summary": Summary::of(&told), "history": told}))?;
        return Ok(());
    }
    let summary = Summary::of(&told);
    writeln!(
        out,
        "Repair {id} ({}): {}, {} of {} steps applied",
        harmless(&summary.scope.to_string()),
        summary.state,
        summary.done,
        summary.planned
    )?;
    let Some(Told::Plan(plan)) = told.first() else { return Ok(()) };
    for step in &plan.steps {
        let state = tell::state_of(&told, step.number);
        writeln!(out, "{:>5}. {} [{}] {state}", step.number, harmless(&step.title), step.code)?;
    }
    Ok(())
}
