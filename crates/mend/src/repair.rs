//! A plan, carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use plan::task::TaskOutcome;
use repair::{Footing, Plan, Step};
use store::{Store, StoreError};

use crate::history::{Ended, History, HistoryError, How, Told, Undo};
use crate::nodes::Nodes;
use crate::pace::Pace;
use crate::records::{self, Made, Manner, Part};

/// How long a store may be away in the middle of a repair.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Why a repair ended in the middle.
#[derive(Debug, thiserror::Error)]
pub enum MendError {
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error("cannot write to the store")]
    Store(#[from] StoreError),
}

/// A repair: its plan, its history, and whom it works with.
pub struct Repair {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) nodes: Arc<dyn Nodes>,
    pub(crate) history: History,
    plan: Plan,
    /// What is done, by this process and earlier ones.
    settled: BTreeSet<u32>,
    /// Steps that were tried by this process and did not go.
    lost: Vec<Step>,
    /// What steps rest on, by number, where that was asked for.
    footings: BTreeMap<u32, Footing>,
    /// The highest number that a step ever had.
    numbered: u32,
    /// Steps that a look right before did not confirm, and why: they are not done, unless they turn out to be done already.
    pub unconfirmed: BTreeMap<u32, String>,
    /// How long a store may be away in the middle.
    pub patience: Duration,
    /// How many steps may share a commit at most.
    pub steps_at_once: usize,
    /// Goes on after a surprise or a failure with whatever is left, instead of with what does not depend on it.
    pub keeps_going: bool,
}

impl std::fmt::Debug for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repair").field("id", &self.plan.id).finish_non_exhaustive()
    }
}

/// How one step went.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutcome {
    pub step: u32,
    pub how: Happened,
    pub said: Option<String>,
}

pub use crate::history::How as Happened;

/// What whoever watches a repair is told.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// It is about to be done: the step, its place among those of this run, from 1, and how many there are.
    Begins { step: &'a Step, place: usize, of: usize },
    /// It is over. So many are behind us.
    Over { outcome: &'a StepOutcome, behind: usize },
    /// It is not tried, because it depends on another one, which did not go.
    Waits { step: &'a Step, for_step: u32, behind: usize },
}

/// How it all went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub steps: Vec<StepOutcome>,
    /// Steps that were not tried, because they depend on one that did not go.
    pub not_tried: usize,
    /// Records that were written or deleted.
    pub changes: usize,
}

impl Outcome {
    pub fn count(&self, how: Happened) -> usize {
        self.steps.iter().filter(|step| step.how == how).count()
    }

    /// Everything is as planned.
    pub fn is_complete(&self) -> bool {
        self.not_tried == 0 && self.steps.iter().all(|step| matches!(step.how, How::Done | How::Already))
    }

    /// What did not go as planned.
    pub fn troubles(&self) -> impl Iterator<Item = &StepOutcome> {
        self.steps.iter().filter(|step| matches!(step.how, How::Surprise | How::Failed))
    }
}

impl Repair {
    /// A new repair. Its plan is on disk before anything else happens.
    pub fn begin(
        folder: &Path,
        plan: Plan,
        store: Arc<dyn Store>,
        nodes: Arc<dyn Nodes>,
    ) -> Result<Repair, MendError> {
        let history = History::begin(folder, &plan)?;
        Ok(Repair {
            store,
            nodes,
            history,
            settled: BTreeSet::new(),
            lost: Vec::new(),
            footings: BTreeMap::new(),
            numbered: plan.steps.iter().map(|step| step.number).max().unwrap_or_default(),
            plan,
            unconfirmed: BTreeMap::new(),
            patience: PATIENCE,
            steps_at_once: store::MAX_CHANGES,
            keeps_going: false,
        })
    }

    /// One that was stopped or killed.
    pub fn resume(
        folder: &Path,
        id: &str,
        store: Arc<dyn Store>,
        nodes: Arc<dyn Nodes>,
    ) -> Result<Repair, MendError> {
        let (history, told) = History::open(folder, id)?;
        let mut repair = Repair {
            store,
            nodes,
            history,
            plan: Plan::default(),
            settled: BTreeSet::new(),
            lost: Vec::new(),
            footings: BTreeMap::new(),
            numbered: 0,
            unconfirmed: BTreeMap::new(),
            patience: PATIENCE,
            steps_at_once: store::MAX_CHANGES,
            keeps_going: false,
        };
        for line in told {
            match line {
                Told::Plan(plan) => {
                    let highest = plan.steps.iter().map(|step| step.number).max().unwrap_or_default();
                    repair.numbered = repair.numbered.max(highest);
                    repair.plan = *plan;
                }
                Told::Done { step, how: How::Done | How::Already, .. } => {
                    repair.settled.insert(step);
                }
                _ => {}
            }
        }
        Ok(repair)
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Takes up other steps in the place of those that are not done: the cluster has changed since they were planned. What is done
    /// stays on record and can be taken back with the rest.
    pub fn replan(&mut self, steps: Vec<Step>) -> Result<(), MendError> {
        let next = self.numbered + 1;
        self.plan.steps.retain(|step| self.settled.contains(&step.number));
        for (number, step) in (next..).zip(steps) {
            self.plan.steps.push(Step { number, ..step });
        }
        self.numbered = self.plan.steps.last().map_or(self.numbered, |last| last.number.max(self.numbered));
        self.unconfirmed.clear();
        Ok(self.history.tell(&[Told::Plan(Box::new(self.plan.clone()))])?)
    }

    /// Steps that are not done.
    pub fn left(&self) -> Vec<&Step> {
        self.plan.steps.iter().filter(|step| !self.settled.contains(&step.number)).collect()
    }

    /// Does what is left, in order. After a step that did not go, those that depend on it are left out. `shown` is told of each step.
    pub async fn run(&mut self, shown: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Outcome, MendError> {
        let mut left: Vec<Step> = self.left().into_iter().cloned().collect();
        let total = left.len();
        let mut outcome = Outcome::default();
        // What did not go before, and is not tried again in another form, still keeps from being done what rests on it.
        self.lost.retain(|lost| {
            !left.iter().any(|step| step.fixes().any(|mended| lost.fixes().any(|old| old == mended)))
        });
        for lost in self.lost.clone() {
            outcome.not_tried += self.leave_out(&mut left, &lost, total, shown);
        }
        let mut pace = Pace::new(self.steps_at_once);
        let mut named = BTreeSet::new();
        let mut begins = |step: &Step, place: usize| {
            // What comes after a surprise in its commit is tried again in the next.
            if named.insert(step.number) {
                shown(Progress::Begins { step, place, of: total });
            }
        };
        while !left.is_empty() {
            let started = Instant::now();
            let behind = total - left.len();
            let (done, changes) = match left[0].on_node {
                Some(_) => {
                    begins(&left[0], behind + 1);
                    (vec![self.on_node(&left[0]).await?], 0)
                }
                None => {
                    let steps = self.next_records(&left, pace.steps());
                    for (place, step) in (behind + 1..).zip(steps) {
                        begins(step, place);
                    }
                    self.records(steps).await?
                }
            };
            let rest = if changes > 0 { pace.rest_after(started.elapsed()) } else { Duration::ZERO };
            outcome.changes += changes;
            let behind_us: Vec<Step> = left.drain(..done.len()).collect();
            for (place, outcome) in (behind + 1..).zip(&done) {
                shown(Progress::Over { outcome, behind: place });
            }
            let settled = done.iter().filter(|step| matches!(step.how, How::Done | How::Already));
            self.settled.extend(settled.map(|step| step.step));
            let went_wrong = |outcome: &StepOutcome| matches!(outcome.how, How::Surprise | How::Failed);
            for (step, _) in behind_us.into_iter().zip(&done).filter(|(_, outcome)| went_wrong(outcome)) {
                outcome.not_tried += self.leave_out(&mut left, &step, total, shown);
                self.lost.push(step);
            }
            outcome.steps.extend(done);
            if !left.is_empty() {
                tokio::time::sleep(rest).await;
            }
        }
        let how = if outcome.is_complete() { Ended::Complete } else { Ended::Stopped };
        self.history.tell(&[Told::Ended { at: Timestamp::now(), how }])?;
        Ok(outcome)
    }

    /// Takes out of what is left all that rests on a step that did not go, also by way of others, unless that is wanted all the same.
    /// Says how many.
    fn leave_out(
        &mut self,
        left: &mut Vec<Step>,
        failed: &Step,
        total: usize,
        shown: &(dyn Fn(Progress<'_>) + Sync),
    ) -> usize {
        if self.keeps_going {
            return 0;
        }
        let (mut lost, mut kept) = (Vec::new(), Vec::new());
        let mut gone = vec![Footing::of(failed)];
        for step in left.drain(..) {
            let footing = self.footings.entry(step.number).or_insert_with(|| Footing::of(&step));
            if gone.iter().any(|gone| footing.rests_on(gone)) {
                gone.push(footing.clone());
                lost.push(step);
            } else {
                kept.push(step);
            }
        }
        *left = kept;
        let behind = total - left.len();
        for step in &lost {
            shown(Progress::Waits { step, for_step: failed.number, behind });
        }
        lost.len()
    }

    /// As many of the next steps as may go into one commit.
    fn next_records<'s>(&self, steps: &'s [Step], most: usize) -> &'s [Step] {
        let count = steps.iter().take_while(|step| step.on_node.is_none()).take(most).count();
        let parts: Vec<Part<'_>> = steps[..count].iter().map(|step| part(&self.unconfirmed, step)).collect();
        &steps[..records::batch(&parts).len()]
    }

    /// These in one commit; none after a surprise, unless that is wanted.
    async fn records(&mut self, steps: &[Step]) -> Result<(Vec<StepOutcome>, usize), MendError> {
        let parts: Vec<Part<'_>> = steps.iter().map(|step| part(&self.unconfirmed, step)).collect();
        let history = &mut self.history;
        let mut begun = |made: &[Made]| {
            let lines: Vec<Told> = made.iter().filter(|made| made.how == How::Done).map(begun_line).collect();
            history.tell(&lines)?;
            wire::failpoint::hit("repair.begun");
            Ok(())
        };
        let manner = Manner { keeps_going: self.keeps_going, patience: self.patience };
        let (made, changes) = records::make(&*self.store, &parts, manner, &mut begun).await?;
        wire::failpoint::hit("repair.made");
        let done: Vec<StepOutcome> = made
            .into_iter()
            .map(|made| StepOutcome { step: made.step, how: made.how, said: made.said })
            .collect();
        self.note(&done)?;
        Ok((done, changes))
    }

    async fn on_node(&mut self, step: &Step) -> Result<StepOutcome, MendError> {
        let Some(on_node) = &step.on_node else {
            return Ok(StepOutcome { step: step.number, how: How::Already, said: None });
        };
        if let Some(why) = self.unconfirmed.get(&step.number) {
            let said = Some(records::not_confirmed(why));
            let outcome = StepOutcome { step: step.number, how: How::Surprise, said };
            self.note(std::slice::from_ref(&outcome))?;
            return Ok(outcome);
        }
        let undo = |works: Vec<plan::task::RepairTask>| Undo {
            edits: Vec::new(),
            node: Some(on_node.node.clone()),
            works,
        };
        let expected = on_node.works.iter().rev().map(plan::task::RepairTask::undo).collect();
        self.history.tell(&[Told::Begun { step: step.number, undo: undo(expected) }])?;
        wire::failpoint::hit("repair.begun");
        let mut undoes = Vec::new();
        let mut outcome = StepOutcome { step: step.number, how: How::Already, said: None };
        // One after the other: the rest depends on what came before.
        for work in &on_node.works {
            let answer = self.nodes.work(&on_node.node, std::slice::from_ref(work)).await;
            let (how, said) = match answer.map(|mut done| done.pop()) {
                Ok(Some(TaskOutcome::Done { undo })) => {
                    undoes.insert(0, undo.map_or_else(|| work.undo(), |undo| *undo));
                    (How::Done, None)
                }
                Ok(Some(TaskOutcome::Already)) => (How::Already, None),
                Ok(Some(TaskOutcome::Surprise { said })) => (How::Surprise, Some(said)),
                Ok(Some(TaskOutcome::Failed { said })) => (How::Failed, Some(said)),
                Ok(None) => (How::Failed, Some("the agent did not answer".to_owned())),
                Err(said) => (How::Failed, Some(said)),
            };
            if how != How::Already {
                outcome = StepOutcome { step: step.number, how, said };
            }
            if matches!(how, How::Surprise | How::Failed) {
                break;
            }
        }
        let line = Told::Done {
            step: step.number,
            how: outcome.how,
            said: outcome.said.clone(),
            undo: Some(undo(undoes)),
        };
        wire::failpoint::hit("repair.made");
        self.history.tell(&[line])?;
        Ok(outcome)
    }

    fn note(&mut self, done: &[StepOutcome]) -> Result<(), MendError> {
        let line = |done: &StepOutcome| Told::Done {
            step: done.step,
            how: done.how,
            said: done.said.clone(),
            undo: None,
        };
        let lines: Vec<Told> = done.iter().map(line).collect();
        Ok(self.history.add(&lines)?)
    }
}

fn part<'s>(unconfirmed: &'s BTreeMap<u32, String>, step: &'s Step) -> Part<'s> {
    let unconfirmed = unconfirmed.get(&step.number).map(String::as_str);
    Part { step: step.number, edits: &step.edits, unconfirmed }
}

fn begun_line(made: &Made) -> Told {
    Told::Begun { step: made.step, undo: Undo { edits: made.undo.clone(), ..Undo::default() } }
}
