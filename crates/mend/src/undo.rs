//! A repair, taken back: the last step first, each record and each thing on a node only if nobody has changed it since.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use plan::task::TaskOutcome;
use repair::{Edit, Plan};
use store::Store;

use crate::history::{History, How, Told, Undo};
use crate::nodes::Nodes;
use crate::pace::Pace;
use crate::records::{self, Manner, Part};
use crate::repair::{MendError, Outcome, PATIENCE, Repair, StepOutcome};

/// What a history says of one step.
#[derive(Debug, Default)]
struct Known {
    undo: Undo,
    is_undone: bool,
}

impl Repair {
    /// Takes a repair back. What has changed since is left alone, and named in the outcome.
    pub async fn undo(
        folder: &Path,
        id: &str,
        store: Arc<dyn Store>,
        nodes: Arc<dyn Nodes>,
        shown: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Plan, Outcome), MendError> {
        let (mut history, told) = History::open(folder, id)?;
        let (plan, known) = sort(told);
        history.tell(&[Told::UndoBegun { at: Timestamp::now() }])?;
        let steps: Vec<(u32, Known)> =
            known.into_iter().rev().filter(|(_, known)| !known.is_undone).collect();
        let mut outcome = Outcome::default();
        let (mut at, mut pace) = (0, Pace::new(store::MAX_CHANGES));
        while at < steps.len() {
            let started = Instant::now();
            let done = match steps[at].1.undo.node {
                Some(_) => vec![on_node(&*nodes, steps[at].0, &steps[at].1.undo).await],
                None => in_records(&*store, &steps[at..], pace.steps()).await?,
            };
            at += done.len();
            shown(at, steps.len());
            let line =
                |done: &StepOutcome| Told::Undone { step: done.step, how: done.how, said: done.said.clone() };
            history.add(&done.iter().map(line).collect::<Vec<_>>())?;
            outcome.steps.extend(done);
            if at < steps.len() && steps[at].1.undo.node.is_none() {
                tokio::time::sleep(pace.rest_after(started.elapsed())).await;
            }
        }
        let left_alone = outcome.troubles().count();
        history.tell(&[Told::UndoEnded { at: Timestamp::now(), left_alone }])?;
        Ok((plan, outcome))
    }
}

/// The plan, and every step that was begun with what takes it back.
fn sort(told: Vec<Told>) -> (Plan, BTreeMap<u32, Known>) {
    let (mut plan, mut known) = (Plan::default(), BTreeMap::<u32, Known>::new());
    for line in told {
        match line {
            Told::Plan(found) => plan = *found,
            Told::Begun { step, undo } => known.entry(step).or_default().undo = undo,
            Told::Done { step, undo: Some(undo), .. } => known.entry(step).or_default().undo = undo,
            Told::Undone { step, how: How::Done | How::Already, .. } => {
                known.entry(step).or_default().is_undone = true;
            }
            _ => {}
        }
    }
    known.retain(|_, known| !known.undo.edits.is_empty() || !known.undo.works.is_empty());
    (plan, known)
}

async fn in_records(
    store: &dyn Store,
    steps: &[(u32, Known)],
    most: usize,
) -> Result<Vec<StepOutcome>, MendError> {
    let of_records = steps.iter().take_while(|(_, known)| known.undo.node.is_none()).take(most);
    let parts: Vec<Part<'_>> = of_records
        .map(|(step, known)| Part { step: *step, edits: &known.undo.edits, unconfirmed: None })
        .collect();
    // A whole record that is put back must not meet other edits of it: those were made in commits of their own.
    let is_whole = |part: &Part<'_>| part.edits.iter().any(|edit| matches!(edit, Edit::Record { .. }));
    let together = parts.iter().position(is_whole).map_or(parts.len(), |at| at.max(1));
    let batch = records::batch(&parts[..together]);
    let (made, _) =
        records::make(store, batch, Manner { keeps_going: true, patience: PATIENCE }, &mut |_| Ok(()))
            .await?;
    Ok(made.into_iter().map(|made| StepOutcome { step: made.step, how: made.how, said: made.said }).collect())
}

async fn on_node(nodes: &dyn Nodes, step: u32, undo: &Undo) -> StepOutcome {
    let node = undo.node.clone().unwrap_or_default();
    let mut outcome = StepOutcome { step, how: How::Already, said: None };
    let done = match nodes.work(&node, &undo.works).await {
        Ok(done) => done,
        Err(said) => return StepOutcome { how: How::Failed, said: Some(said), ..outcome },
    };
    for done in done {
        let (how, said) = match done {
            TaskOutcome::Done { .. } => (How::Done, None),
            TaskOutcome::Already => continue,
            TaskOutcome::Surprise { said } => (How::Surprise, Some(said)),
            TaskOutcome::Failed { said } => (How::Failed, Some(said)),
        };
        if !matches!(outcome.how, How::Surprise | How::Failed) {
            outcome = StepOutcome { step, how, said };
        }
    }
    outcome
}
