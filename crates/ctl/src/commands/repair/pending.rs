//! What of a repair is still to be done: steps that lost a race against pods that come and go, and are planned anew.

use std::collections::BTreeMap;

use doctor::NotJudged;
use doctor::repair::{Dropped, Plan, Step, Still};
use jiff::{SignedDuration, Timestamp};
use mend::{Happened, Outcome, StepOutcome};

/// Findings that a plan was to mend and that are not mended yet, each with the step that was to do it and why it did not.
#[derive(Debug, Default)]
pub(super) struct Pending {
    open: BTreeMap<(String, String), (Step, Why)>,
    /// What was decided otherwise meanwhile: not found any more, or left to people.
    pub(super) settled: Vec<Dropped>,
    /// How the steps went that were tried, without those that are open.
    pub(super) outcome: Outcome,
    /// Plans so far: what is taken away must have been planned just the same some time before.
    plans: Vec<(Option<Timestamp>, Vec<Step>)>,
}

#[derive(Clone, Debug)]
enum Why {
    /// A look right before did not confirm it.
    Dropped(String),
    /// The records were not as planned.
    Surprised(StepOutcome),
    NotTried,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Notes what a plan says, before anything of it is done.
    pub(super) fn planned(&mut self, plan: &Plan) {
        self.plans.push((plan.looked_at, plan.steps.clone()));
    }

    pub(super) fn dropped(&mut self, dropped: Vec<Dropped>) {
        for Dropped { step, why } in dropped {
            self.add(&step, &Why::Dropped(why));
        }
    }

    /// Takes in how steps went. What failed is not tried again: it lost no race.
    pub(super) fn ran(&mut self, steps: &[Step], outcome: Outcome) {
        let by_number: BTreeMap<u32, &Step> = steps.iter().map(|step| (step.number, step)).collect();
        self.outcome.changes += outcome.changes;
        let mut tried = Vec::new();
        for went in outcome.steps {
            tried.push(went.step);
            let Some(step) = by_number.get(&went.step) else { continue };
            match went.how {
                Happened::Surprise => self.add(step, &Why::Surprised(went)),
                Happened::Done | Happened::Already | Happened::Failed => {
                    for (code, subject) in step.mends() {
                        self.open.remove(&(code.to_owned(), subject.to_owned()));
                    }
                    self.outcome.steps.push(went);
                }
            }
        }
        for step in steps.iter().filter(|step| !tried.contains(&step.number)).take(outcome.not_tried) {
            self.add(step, &Why::NotTried);
        }
    }

    fn add(&mut self, step: &Step, why: &Why) {
        for (code, subject) in step.mends() {
            self.open.insert((code.to_owned(), subject.to_owned()), (step.clone(), why.clone()));
        }
    }

    /// What a new plan has about the open findings, in its order, which is that of danger. What it does not find, or leaves to people,
    /// is open no more.
    pub(super) fn taken_up(&mut self, now: &Plan, too_new: &[NotJudged]) -> Vec<Step> {
        let mut done_with = Vec::new();
        for ((code, subject), (step, _)) in &self.open {
            let why = match now.still(code, subject) {
                Still::Mendable => continue,
                // It is there, and was not at the observation before: the next one tells.
                Still::Gone
                    if too_new.iter().any(|new| new.code == code && new.subject.to_string() == *subject) =>
                {
                    continue;
                }
                Still::Gone => "it is not found any more".to_owned(),
                Still::Left(why) => format!("it is left now: {why}"),
            };
            done_with.push(((code.clone(), subject.clone()), Dropped { step: step.clone(), why }));
        }
        for (key, dropped) in done_with {
            self.open.remove(&key);
            if !self.settled.iter().any(|known| known.step == dropped.step) {
                self.settled.push(dropped);
            }
        }
        let is_open = |step: &&Step| {
            step.mends().any(|(code, subject)| self.open.contains_key(&(code.to_owned(), subject.to_owned())))
        };
        now.steps.iter().filter(is_open).cloned().collect()
    }

    /// Whether a step may be done now: what takes nothing away may; what does must have been planned just the same, long enough ago.
    pub(super) fn may_go(&self, step: &Step, now: Timestamp, grace: SignedDuration) -> bool {
        let is_old = |at: &Option<Timestamp>| at.is_some_and(|at| now.duration_since(at) >= grace);
        !step.needs_second_look
            || self
                .plans
                .iter()
                .any(|(at, steps)| is_old(at) && steps.iter().any(|known| known.is_same(step)))
    }

    /// How it all went. What is still open lost every race.
    pub(super) fn finish(self) -> Finished {
        let Pending { open, settled, outcome, .. } = self;
        let mut finished = Finished { outcome, settled, ..Finished::default() };
        for (step, why) in open.into_values() {
            if finished.open.contains(&step) {
                continue;
            }
            match why {
                Why::Dropped(why) => finished.lost.push(Dropped { step: step.clone(), why }),
                Why::Surprised(went) => finished.outcome.steps.push(went),
                Why::NotTried => finished.outcome.not_tried += 1,
            }
            finished.open.push(step);
        }
        let Finished { settled, open, .. } = &mut finished;
        settled.retain(|dropped| !open.contains(&dropped.step));
        finished
    }
}

/// How it all went.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) outcome: Outcome,
    /// Steps that are not needed any more, or not allowed.
    pub(super) settled: Vec<Dropped>,
    /// Steps that could have been done, and that no look right before confirmed.
    pub(super) lost: Vec<Dropped>,
    /// All that could have been done and was not.
    pub(super) open: Vec<Step>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: u32, subject: &str, title: &str, needs_second_look: bool) -> Step {
        Step {
            number,
            code: "address-used-but-free".to_owned(),
            subject: subject.to_owned(),
            title: title.to_owned(),
            needs_second_look,
            edits: vec![doctor::repair::Edit::Count {
                handle: title.to_owned(),
                block: "10.0.0.0/26".parse().unwrap(),
                from: 0,
                to: 1,
            }],
            ..Step::default()
        }
    }

    fn plan(steps: Vec<Step>) -> Plan {
        Plan { looked_at: Some(Timestamp::UNIX_EPOCH), steps, ..Plan::default() }
    }

    fn went(step: u32, how: Happened) -> StepOutcome {
        StepOutcome { step, how, said: Some("it has changed".to_owned()) }
    }

    #[test]
    fn what_lost_a_race_is_taken_up_again_until_it_is_done() {
        let mut pending = Pending::default();
        let first = vec![
            step(1, "10.0.0.1", "a", false),
            step(2, "10.0.0.2", "b", false),
            step(3, "10.0.0.3", "c", false),
        ];
        let outcome = Outcome {
            steps: vec![went(1, Happened::Done), went(2, Happened::Surprise)],
            not_tried: 1,
            changes: 1,
        };
        pending.ran(&first, outcome);
        let again = plan(vec![step(1, "10.0.0.2", "otherwise", false), step(2, "10.0.0.9", "new", false)]);
        let taken_up = pending.taken_up(&again, &[]);
        assert_eq!(taken_up.iter().map(|step| step.title.as_str()).collect::<Vec<_>>(), ["otherwise"]);
        assert_eq!(pending.settled[0].step.subject, "10.0.0.3", "it is not found any more");
        pending.ran(&taken_up, Outcome { steps: vec![went(1, Happened::Done)], not_tried: 0, changes: 1 });
        assert!(pending.is_empty());
        let Finished { outcome, open, .. } = pending.finish();
        assert_eq!((outcome.count(Happened::Done), outcome.is_complete(), open.len()), (2, true, 0));
    }

    #[test]
    fn what_is_never_done_is_told() {
        let mut pending = Pending::default();
        let wanted = step(1, "10.0.0.1", "a", false);
        pending.dropped(vec![Dropped { step: wanted.clone(), why: "changed".to_owned() }]);
        assert_eq!(pending.taken_up(&plan(vec![wanted.clone()]), &[]).len(), 1);
        let outcome = Outcome { steps: vec![went(1, Happened::Surprise)], ..Outcome::default() };
        pending.ran(std::slice::from_ref(&wanted), outcome);
        let Finished { outcome, open, .. } = pending.finish();
        assert_eq!((outcome.troubles().count(), outcome.is_complete(), open), (1, false, vec![wanted]));
    }

    #[test]
    fn what_is_too_new_to_be_judged_stays_open() {
        let mut pending = Pending::default();
        let wanted = step(1, "10.0.0.1", "a", false);
        pending.dropped(vec![Dropped { step: wanted, why: "changed".to_owned() }]);
        let new = NotJudged {
            code: "address-used-but-free",
            subject: "10.0.0.1".parse::<std::net::IpAddr>().unwrap().into(),
            summary: String::new(),
            why: String::new(),
        };
        assert!(pending.taken_up(&plan(Vec::new()), &[new]).is_empty() && !pending.is_empty());
        assert!(pending.taken_up(&plan(Vec::new()), &[]).is_empty() && pending.is_empty());
    }

    #[test]
    fn what_takes_something_away_must_have_been_planned_before() {
        let mut pending = Pending::default();
        let taking = step(1, "10.0.0.1", "a", true);
        let (grace, later) = (SignedDuration::from_secs(60), Timestamp::from_second(60).unwrap());
        assert!(pending.may_go(&step(1, "10.0.0.1", "a", false), later, grace));
        assert!(!pending.may_go(&taking, later, grace));
        pending.planned(&plan(vec![taking.clone()]));
        assert!(pending.may_go(&taking, later, grace));
        assert!(!pending.may_go(&taking, Timestamp::from_second(59).unwrap(), grace));
        assert!(!pending.may_go(&step(1, "10.0.0.1", "otherwise", true), later, grace));
    }
}
