//! What of a repair is still to be done: steps that lost a race against pods that come and go, and are planned anew.

use std::collections::BTreeMap;

use doctor::NotJudged;
use mend::{Happened, Outcome, StepOutcome};
use model::FindingCode;
use repair::{Dropped, Plan, Step, Still};

/// Findings that a plan was to mend and that are not mended yet, each with the step that was to do it and why it did not.
#[derive(Debug, Default)]
pub(super) struct Pending {
    open: BTreeMap<(FindingCode, String), (Step, Why)>,
    /// What was decided otherwise meanwhile: not found any more, or left to people.
    pub(super) settled: Vec<Dropped>,
    /// How the steps went that were tried, without those that are open.
    pub(super) outcome: Outcome,
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
                    for (code, subject) in step.fixes() {
                        self.open.remove(&(code, subject.to_owned()));
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
        for (code, subject) in step.fixes() {
            self.open.insert((code, subject.to_owned()), (step.clone(), why.clone()));
        }
    }

    /// What a new plan has about the open findings, in its order, which is that of danger. What it does not find, or leaves to people,
    /// is open no more.
    pub(super) fn taken_up(&mut self, now: &Plan, too_new: &[NotJudged]) -> Vec<Step> {
        let mut done_with = Vec::new();
        for ((code, subject), (step, _)) in &self.open {
            // It is found, but the observation before did not find it: the next one decides.
            let is_new = too_new.iter().any(|new| new.code == *code && new.subject.to_string() == *subject);
            let still = now.still(*code, subject);
            match still {
                Still::Fixable { .. } => continue,
                Still::Gone if is_new => continue,
                Still::Gone | Still::Left { .. } => {}
            }
            let dropped = Dropped { step: step.clone(), why: still.to_string() };
            done_with.push(((*code, subject.clone()), dropped));
        }
        for (key, dropped) in done_with {
            self.open.remove(&key);
            if !self.settled.iter().any(|known| known.step == dropped.step) {
                self.settled.push(dropped);
            }
        }
        let is_open = |step: &&Step| {
            step.fixes().any(|(code, subject)| self.open.contains_key(&(code, subject.to_owned())))
        };
        now.steps.iter().filter(is_open).cloned().collect()
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
            needs_second_look,
            edits: vec![repair::Edit::Count {
                handle: title.into(),
                block: "10.0.0.0/26".parse().unwrap(),
                from: 0,
                to: 1,
            }],
            ..Step::new(FindingCode::AddressUsedButFree, subject, title)
        }
    }

    fn plan(steps: Vec<Step>) -> Plan {
        Plan { steps, ..Plan::default() }
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
            code: FindingCode::AddressUsedButFree,
            subject: "10.0.0.1".parse::<std::net::IpAddr>().unwrap().into(),
            summary: String::new(),
            why: String::new(),
        };
        assert!(pending.taken_up(&plan(Vec::new()), &[new]).is_empty() && !pending.is_empty());
        assert!(pending.taken_up(&plan(Vec::new()), &[]).is_empty() && pending.is_empty());
    }
}
