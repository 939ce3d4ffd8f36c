//! What runs in the simulation. A process that crashes loses all but what its durable state holds.
//!
//! A process goes on until its next pause, or until it waits for an event; between two of those nothing else
//! happens. So pauses stand exactly where a real process could be overtaken or die.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use model::{Key, KeyRange, Kind};
use serde_json::{Value, json};
use store::{Change, Record, Revision};

use crate::ledger::{Records, Rule, Violation, broken};
use crate::observed::Observed;
use crate::rng::Rng;

/// Processes never end by themselves.
pub(crate) type Verdict = Result<Infallible, Violation>;

/// Lets the others run.
pub(crate) async fn pause() {
    let mut paused = false;
    poll_fn(|_| if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// A process's own stream of random numbers. It goes on across crashes.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Rc<RefCell<Rng>>);

impl Dice {
    pub(crate) fn new(seed: u64, process: &str) -> Dice {
        Dice(Rc::new(RefCell::new(Rng::stream(seed, process))))
    }

    fn below(&self, end: usize) -> usize {
        self.0.borrow_mut().below(end)
    }

    fn one_of<'a, T>(&self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    fn coin(&self) -> bool {
        self.below(2) == 0
    }
}

/// The records that writers fight over: of two kinds, so that some watches must pass over some of them.
pub(crate) fn counters(count: usize) -> Vec<Key> {
    let handles = (0..count).map(|index| Key::Handle(format!("counter-{index}").into()));
    let pools = (0..count).map(|index| Key::cluster(Kind::IpPool, format!("counter-{index}")));
    handles.chain(pools).collect()
}

fn ranges() -> [KeyRange; 3] {
    [KeyRange::Everything, KeyRange::Handles, KeyRange::Kind(Kind::IpPool)]
}

/// What the writers have been told they added to each counter, less what they removed with it.
pub(crate) type Sums = RefCell<BTreeMap<Key, i64>>;

/// Adds to counters, moves between them, removes them; each in one commit that relies on what it has read.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) counters: Vec<Key>,
    pub(crate) sums: Rc<Sums>,
}

impl Writer {
    pub(crate) async fn run(self, store: Observed, dice: Dice) -> Verdict {
        for operation in 0u64.. {
            let stamp = format!("{}/{operation}", store.process());
            match dice.below(10) {
                0..6 => self.attempt(&store, &[(dice.one_of(&self.counters), 1)], None, &stamp).await?,
                6..8 => {
                    let [from, to] = self.two(&dice);
                    self.attempt(&store, &[(from, -1), (to, 1)], None, &stamp).await?;
                }
                8 => {
                    let [changed, relied_on] = self.two(&dice);
                    self.attempt(&store, &[(changed, 1)], Some(relied_on), &stamp).await?;
                }
                _ => self.remove(&store, dice.one_of(&self.counters)).await?,
            }
            pause().await;
        }
        unreachable!("no process gets that far")
    }

    fn two(&self, dice: &Dice) -> [&Key; 2] {
        let first = dice.below(self.counters.len());
        let second = (first + 1 + dice.below(self.counters.len() - 1)) % self.counters.len();
        [&self.counters[first], &self.counters[second]]
    }

    async fn attempt(
        &self,
        store: &Observed,
        additions: &[(&Key, i64)],
        relied_on: Option<&Key>,
        stamp: &str,
    ) -> Result<(), Violation> {
        let mut changes = Vec::new();
        for (key, addition) in additions {
            let before = store.get(key).await?;
            pause().await;
            changes.push(added(key, before, *addition, stamp)?);
        }
        if let Some(key) = relied_on {
            changes.push(match store.get(key).await? {
                Some(record) => Change::require(record.key, record.revision),
                None => Change::require_absent(key.clone()),
            });
            pause().await;
        }
        if store.commit(changes).await? {
            for (key, addition) in additions {
                self.add((*key).clone(), *addition);
            }
        }
        Ok(())
    }

    async fn remove(&self, store: &Observed, key: &Key) -> Result<(), Violation> {
        let Some(record) = store.get(key).await? else { return Ok(()) };
        pause().await;
        let removed = count(&record)?;
        if store.commit(vec![Change::delete(record.key, record.revision)]).await? {
            self.add(key.clone(), -removed);
        }
        Ok(())
    }

    fn add(&self, key: Key, addition: i64) {
        *self.sums.borrow_mut().entry(key).or_default() += addition;
    }
}

/// The change that adds to a counter as it was read.
fn added(key: &Key, before: Option<Record>, addition: i64, stamp: &str) -> Result<Change, Violation> {
    let value = |count: i64| json!({"count": count, "by": stamp}).to_string();
    Ok(match before {
        None => Change::create(key.clone(), value(addition)),
        Some(record) => Change::update(key.clone(), value(count(&record)? + addition), record.revision),
    })
}

/// What a counter stands at.
pub(crate) fn count(record: &Record) -> Result<i64, Violation> {
    let value: Option<Value> = serde_json::from_slice(&record.value).ok();
    match value.as_ref().and_then(|value| value["count"].as_i64()) {
        Some(count) => Ok(count),
        None => broken(Rule::WrongRead, format!("{record:?} is not what any process wrote")),
    }
}

/// What a watcher has, for others to look at.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub(crate) range: Option<KeyRange>,
    pub(crate) view: Records,
    /// What survives a crash: a view, and where to go on from it.
    journal: Option<(Records, Revision)>,
}

/// Keeps a copy of a range by listing it once and following its changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watcher {
    pub(crate) followed: Rc<RefCell<Followed>>,
}

impl Watcher {
    pub(crate) async fn run(self, store: Observed, dice: Dice) -> Verdict {
        let range =
            self.followed.borrow_mut().range.get_or_insert_with(|| dice.one_of(&ranges()).clone()).clone();
        let journal = self.followed.borrow().journal.clone();
        let mut start = journal.filter(|_| dice.coin());
        loop {
            let (mut view, revision) = match start.take() {
                Some(start) => start,
                None => store.list(&range, 1 + dice.below(4)).await?,
            };
            self.followed.borrow_mut().view = view.clone();
            pause().await;
            let mut watch = store.watch(&range, &revision).await?;
            while watch.follow(&mut view).await? {
                self.followed.borrow_mut().view = view.clone();
                if dice.coin() {
                    self.followed.borrow_mut().journal = Some((view.clone(), watch.position().clone()));
                }
                if dice.coin() {
                    pause().await;
                }
            }
        }
    }
}

/// Lists over and over, in small pages, while everything changes.
pub(crate) async fn auditor(store: Observed, dice: Dice) -> Verdict {
    loop {
        store.list(dice.one_of(&ranges()), 1 + dice.below(3)).await?;
        pause().await;
    }
}
