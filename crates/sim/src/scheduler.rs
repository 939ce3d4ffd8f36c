//! Who runs when, who crashes, and what must be true at the end.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use model::KeyRange;
use store::{Record, Revision, Store};

use crate::ledger::{Ledger, Records, Rule, Violation, broken, in_range};
use crate::observed::{Observed, World};
use crate::processes::{Dice, Sums, Verdict, Watcher, Writer, auditor, count, counters};
use crate::rng::Rng;
use crate::trace::Trace;
use crate::{Options, Outcome};

/// A run that broke a rule, with what is needed to run it again and to see what led to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed} broke a rule in step {step}")]
pub struct Failure {
    pub seed: u64,
    pub step: u64,
    #[source]
    pub violation: Violation,
    /// The last lines of the trace.
    pub trace: Vec<String>,
}

pub(crate) struct Scheduler {
    options: Options,
    world: Rc<World>,
    rng: Rng,
    step: u64,
    processes: Vec<Process>,
    sums: Rc<Sums>,
}

impl Scheduler {
    pub(crate) fn new(store: Arc<dyn Store>, options: &Options) -> Result<Scheduler, Box<Failure>> {
        let listed = answered(store.list_all(KeyRange::Everything));
        let failure =
            |violation| Box::new(Failure { seed: options.seed, step: 0, violation, trace: Vec::new() });
        let (records, revision) = listed.map_err(failure)?;
        let world = World {
            store,
            ledger: RefCell::new(Ledger::new(records, revision)),
            trace: RefCell::new(Trace::new()),
            tally: RefCell::default(),
            history_may_go: options.history_may_go,
        };
        let mut scheduler = Scheduler {
            options: options.clone(),
            world: Rc::new(world),
            rng: Rng::stream(options.seed, "scheduler"),
            step: 0,
            processes: Vec::new(),
            sums: Rc::default(),
        };
        scheduler.populate().map_err(failure)?;
        Ok(scheduler)
    }

    fn populate(&mut self) -> Result<(), Violation> {
        let counters = counters(self.options.counters);
        for key in &counters {
            if let Some(record) = self.world.ledger.borrow().now().get(key) {
                self.sums.borrow_mut().insert(key.clone(), count(record)?);
            }
        }
        let writer = Writer { counters, sums: Rc::clone(&self.sums) };
        for index in 0..self.options.writers {
            self.add(format!("writer-{index}"), Role::Writer(writer.clone()));
        }
        for index in 0..self.options.watchers {
            self.add(format!("watcher-{index}"), Role::Watcher(Watcher::default()));
        }
        for index in 0..self.options.auditors {
            self.add(format!("auditor-{index}"), Role::Auditor);
        }
        Ok(())
    }

    fn add(&mut self, name: String, role: Role) {
        let dice = Dice::new(self.options.seed, &name);
        self.processes.push(Process { name, role, dice, lives: 0, running: None });
    }

    pub(crate) fn run(mut self) -> Result<Outcome, Box<Failure>> {
        match self.trouble().and_then(|()| self.calm()).and_then(|()| self.judge()) {
            Ok(()) => Ok(self.outcome()),
            Err(violation) => Err(Box::new(Failure {
                seed: self.options.seed,
                step: self.step,
                violation,
                trace: self.world.trace.borrow().tail(),
            })),
        }
    }

    fn trouble(&mut self) -> Result<(), Violation> {
        while self.step < self.options.steps && !self.processes.is_empty() {
            self.step += 1;
            let picked = self.rng.below(self.processes.len());
            let crash = self.rng.per_mille(self.options.crashes_per_mille);
            let process = &mut self.processes[picked];
            if crash {
                process.crash(&self.world);
            } else {
                process.go_on(&self.world)?;
            }
        }
        Ok(())
    }

    /// Nobody writes, nobody crashes: watchers go on until none of them has anything left to do.
    fn calm(&mut self) -> Result<(), Violation> {
        // Between two lines of the trace a process pauses at most twice.
        const QUIET_ROUNDS: u64 = 3;
        let rounds_max = 1000 + self.options.steps * 10;
        let mut quiet = 0;
        for _ in 0..rounds_max {
            let before = self.world.trace.borrow().hash();
            for process in &mut self.processes {
                if matches!(process.role, Role::Watcher(_)) {
                    process.go_on(&self.world)?;
                }
            }
            quiet = if self.world.trace.borrow().hash() == before { quiet + 1 } else { 0 };
            if quiet == QUIET_ROUNDS {
                return Ok(());
            }
        }
        broken(Rule::Failed, format!("the watchers did not come to rest in {rounds_max} rounds"))
    }

    /// What must be true when all is quiet, looked at afresh.
    fn judge(&self) -> Result<(), Violation> {
        let (records, _) = answered(self.world.store.list_all(KeyRange::Everything))?;
        let listed: Records = records.into_iter().map(|record| (record.key.clone(), record)).collect();
        if listed != *self.world.ledger.borrow().now() {
            return broken(Rule::WrongRead, "the store does not list what it accepted");
        }
        for (key, sum) in self.sums.borrow().iter() {
            let found = listed.get(key).map_or(Ok(0), count)?;
            if found != *sum {
                return broken(Rule::WrongSum, format!("{key} stands at {found}, the writers added {sum}"));
            }
        }
        self.processes.iter().try_for_each(|process| process.check_view(&listed))
    }

    fn outcome(&self) -> Outcome {
        Outcome { trace_hash: self.world.trace.borrow().hash(), ..self.world.tally.borrow().clone() }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("options", &self.options)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}

enum Role {
    Writer(Writer),
    Watcher(Watcher),
    Auditor,
}

struct Process {
    name: String,
    role: Role,
    dice: Dice,
    lives: u32,
    running: Option<Pin<Box<dyn Future<Output = Verdict>>>>,
}

impl Process {
    /// Runs to the next pause, from the beginning after a crash.
    fn go_on(&mut self, world: &Rc<World>) -> Result<(), Violation> {
        if self.running.is_none() {
            self.lives += 1;
            let store = Observed::new(Rc::clone(world), format!("{}.{}", self.name, self.lives));
            let dice = self.dice.clone();
            self.running = Some(match &self.role {
                Role::Writer(writer) => Box::pin(writer.clone().run(store, dice)),
                Role::Watcher(watcher) => Box::pin(watcher.clone().run(store, dice)),
                Role::Auditor => Box::pin(auditor(store, dice)),
            });
        }
        let running = self.running.as_mut().expect("started above");
        match running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(()),
            Poll::Ready(verdict) => verdict.map(|never| match never {}),
        }
    }

    fn crash(&mut self, world: &World) {
        if self.running.take().is_some() {
            world.tally.borrow_mut().crashes += 1;
            world.trace.borrow_mut().push(format!("{}.{} crashed", self.name, self.lives));
        }
    }

    /// Whether a watcher has exactly what its range lists.
    fn check_view(&self, listed: &Records) -> Result<(), Violation> {
        let Role::Watcher(watcher) = &self.role else { return Ok(()) };
        let followed = watcher.followed.borrow();
        let Some(range) = &followed.range else { return Ok(()) };
        let expected: Vec<&Record> = listed.values().filter(|record| in_range(range, &record.key)).collect();
        if followed.view.values().eq(expected.iter().copied()) {
            return Ok(());
        }
        let detail = format!("{} has {:?}, the store lists {expected:?}", self.name, followed.view);
        broken(Rule::EventLost, detail)
    }
}

type Listed = (Vec<Record>, Revision);

/// The answer to a list that nobody can overtake.
fn answered(list: impl Future<Output = Result<Listed, store::StoreError>>) -> Result<Listed, Violation> {
    match pin!(list).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(listed)) => Ok(listed),
        Poll::Ready(Err(error)) => broken(Rule::Failed, format!("listing everything failed: {error}")),
        Poll::Pending => broken(Rule::Failed, "the store does not answer within the call"),
    }
}

#[cfg(test)]
mod tests {
    use model::Key;
    use store::MemoryStore;

    use super::*;

    fn scheduler() -> Scheduler {
        Scheduler::new(Arc::new(MemoryStore::new()), &Options::new(1, 500)).unwrap()
    }

    #[test]
    fn counters_that_do_not_add_up_are_noticed_at_the_end() {
        let scheduler = scheduler();
        scheduler.sums.borrow_mut().insert(Key::Handle("counter-0".into()), 1_000);
        assert_eq!(scheduler.run().unwrap_err().violation.rule, Rule::WrongSum);
    }

    #[test]
    fn a_write_past_the_ledger_is_noticed_at_the_end() {
        let mut scheduler = scheduler();
        scheduler.trouble().unwrap();
        scheduler.calm().unwrap();
        assert_eq!(scheduler.judge(), Ok(()));
        let change = store::Change::create(Key::Handle("stranger".into()), "{}");
        let store = Arc::clone(&scheduler.world.store);
        let mut commit = store.commit(vec![change]);
        assert!(commit.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(scheduler.judge().unwrap_err().rule, Rule::WrongRead);
    }

    #[test]
    fn a_view_that_differs_is_noticed_at_the_end() {
        let mut scheduler = scheduler();
        scheduler.trouble().unwrap();
        scheduler.calm().unwrap();
        for process in &scheduler.processes {
            if let Role::Watcher(watcher) = &process.role {
                watcher.followed.borrow_mut().view.clear();
            }
        }
        assert_eq!(scheduler.judge().unwrap_err().rule, Rule::EventLost);
    }
}
