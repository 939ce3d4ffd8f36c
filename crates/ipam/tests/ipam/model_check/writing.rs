//! The writes of an operation, one at a time, and what becomes of it when one of them fails.

use std::collections::{BTreeMap, BTreeSet};

use ipam::{Ordered, Step, leave_free};
use model::{Cidr, Key};

use super::process::{Granted, Op, Process, Turn};
use super::scenario::{Fault, Scenario};
use crate::common::Store;

/// What is left to do: lists of steps, the first of them begun.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Writing {
    op: Op,
    lists: Vec<Vec<Ordered>>,
    /// Where the writes of the list have left their records.
    own: BTreeMap<Key, String>,
    /// Handles that were not there before.
    created: BTreeSet<Key>,
    addresses: Granted,
}

fn is_handle(ordered: &Ordered) -> bool {
    matches!(ordered.key(), Key::Handle(_))
}

/// The block that a step writes an allocation into, or frees one in.
fn block(ordered: &Ordered) -> Option<Cidr> {
    match ordered.key() {
        Key::Block(cidr) => Some(*cidr),
        _ => None,
    }
}

impl Writing {
    pub(crate) fn new(op: Op, lists: Vec<Vec<Ordered>>, addresses: Granted) -> Writing {
        let created = lists.iter().flatten().filter_map(|ordered| match ordered {
            Ordered::Step(Step::Create { key: key @ Key::Handle(_), .. }) => Some(key.clone()),
            _ => None,
        });
        Writing { created: created.collect(), op, lists, own: BTreeMap::new(), addresses }
    }

    pub(crate) fn op(&self) -> &Op {
        &self.op
    }

    /// How many steps may come next: handles are written beside each other.
    pub(crate) fn choices(&self, scenario: &Scenario) -> usize {
        let handles = self.lists[0].iter().take_while(|ordered| is_handle(ordered)).count();
        if scenario.is_atomic { 1 } else { handles.max(1) }
    }

    /// Whether the store may refuse this step for reasons of its own.
    pub(crate) fn can_be_refused(&self, choice: usize) -> bool {
        matches!(self.op, Op::Add(_)) && is_handle(&self.lists[0][choice])
    }

    pub(crate) fn describe(&self, choice: usize) -> String {
        let ordered = &self.lists[0][choice];
        let kind = match ordered {
            Ordered::Step(step) => format!("{step:?}").split(' ').next().unwrap_or_default().to_owned(),
            Ordered::Touch { .. } => "touch".to_owned(),
            Ordered::Again { .. } => "write again".to_owned(),
            Ordered::Remove { .. } => "remove".to_owned(),
        };
        format!("{:?} writes: {kind} {}", self.op, ordered.key())
    }

    /// One write.
    pub(crate) fn turn(mut self, choice: usize, store: &mut Store, scenario: &Scenario) -> Turn {
        if scenario.is_atomic {
            let steps = std::mem::take(&mut self.lists[0]);
            let written = store.commit_all(steps.into_iter().map(plain).collect());
            return match (written, &self.op) {
                // What was overtaken is left to the next pass.
                (Ok(()), _) | (Err(_), Op::Recover | Op::ReleaseHost(_)) => self.go_on(),
                (Err(_), op) => Turn::Goes(Process::start(op.clone())),
            };
        }
        let step = self.lists[0].remove(choice);
        match store.apply(&step, &mut self.own) {
            Ok(()) => self.go_on(),
            Err(_) => self.lost(&step, scenario),
        }
    }

    /// The store does not take one handle. That is its owner's trouble alone.
    pub(crate) fn refuse(mut self, choice: usize, scenario: &Scenario) -> Turn {
        let step = self.lists[0].remove(choice);
        self.drop_out(&step, scenario)
    }

    fn go_on(mut self) -> Turn {
        if self.lists[0].is_empty() {
            self.lists.remove(0);
            self.own.clear();
        }
        if self.lists.is_empty() {
            return Turn::Done(self.op, self.addresses);
        }
        Turn::Goes(Process::Writing(self))
    }

    fn lost(mut self, step: &Ordered, scenario: &Scenario) -> Turn {
        match &mut self.op {
            Op::Add(_) if is_handle(step) => self.drop_out(step, scenario),
            Op::Add(_) => self.add_lost(step, scenario),
            Op::TakeBack(batch) => Turn::Goes(Process::start(Op::Undo { batch: batch.clone(), done: 0 })),
            // What was overtaken is left to the next pass.
            Op::Recover | Op::ReleaseHost(_) => {
                self.lists[0].clear();
                self.go_on()
            }
            // Its addresses are free; its handle needs another look.
            Op::DelTogether { batch, careful } if is_handle(step) => {
                let is_its = |sandbox: &&usize| scenario.handle_key(**sandbox) == *step.key();
                careful.extend(batch.iter().find(is_its));
                self.go_on()
            }
            op => Turn::Goes(Process::start(op.clone())),
        }
    }

    /// One owner's handle cannot be written: its addresses stay free, and the others go on.
    fn drop_out(mut self, step: &Ordered, scenario: &Scenario) -> Turn {
        let Op::Add(batch) = &self.op else { unreachable!("only ADDs have such handles") };
        for (sandbox, addresses) in batch.iter().zip(&mut self.addresses) {
            if scenario.handle_key(*sandbox) == *step.key() {
                let free = std::mem::take(addresses);
                if scenario.fault != Some(Fault::AddressKept) {
                    self.lists[0].iter_mut().for_each(|ordered| leave_free(ordered, &free));
                }
            }
        }
        if self.addresses.iter().all(Vec::is_empty) {
            return Turn::Done(self.op, self.addresses);
        }
        self.go_on()
    }

    /// A write of an ADD has failed. Owners whose blocks are all written have their addresses; the others take back what they
    /// wrote and start over.
    fn add_lost(self, step: &Ordered, scenario: &Scenario) -> Turn {
        let Op::Add(batch) = &self.op else { unreachable!("this is about ADDs") };
        if self.lists[0].iter().any(is_handle) {
            return Turn::Goes(Process::start(self.op));
        }
        let unwritten: BTreeSet<Cidr> = [step].into_iter().chain(&self.lists[0]).filter_map(block).collect();
        if unwritten.is_empty() {
            return Turn::Done(self.op, self.addresses);
        }
        let is_unwritten = |address| unwritten.iter().any(|block| block.contains(address));
        let (mut settled, mut left, mut is_simple) = (Vec::new(), Vec::new(), true);
        for (sandbox, addresses) in batch.iter().zip(&self.addresses) {
            if !addresses.iter().any(|address| is_unwritten(*address)) {
                settled.push((*sandbox, addresses.clone()));
                continue;
            }
            left.push(*sandbox);
            is_simple &= addresses.iter().all(|address| is_unwritten(*address));
            is_simple &= self.created.contains(&scenario.handle_key(*sandbox));
        }
        if left.is_empty() {
            return Turn::Done(self.op, self.addresses);
        }
        let process = if is_simple {
            let delete = |sandbox: &usize| {
                let key = scenario.handle_key(*sandbox);
                Ordered::Step(Step::Delete { revision: self.own[&key].clone(), key })
            };
            let deletions = left.iter().map(delete).collect();
            Process::Writing(Writing::new(Op::TakeBack(left), vec![deletions], Vec::new()))
        } else {
            Process::start(Op::Undo { batch: left, done: 0 })
        };
        Turn::Partly { settled, process }
    }
}

fn plain(ordered: Ordered) -> Step {
    match ordered {
        Ordered::Step(step) => step,
        other => unreachable!("folded before: {other:?}"),
    }
}
