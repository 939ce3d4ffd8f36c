//! A good store passes, the same seed gives the same run, and every faulty store is caught.

use std::sync::Arc;

use async_trait::async_trait;
use model::{Key, KeyRange, Kind};
use sim::{Options, Outcome, Rule, run};
use store::{
    Capabilities, Change, Committed, ListPage, ListRequest, MemoryStore, Precondition, Record, Revision,
    Store, StoreError, Watch,
};

const STEPS: u64 = 3_000;

fn good(options: &Options) -> Outcome {
    let history = if options.history_may_go { 8 } else { MemoryStore::HISTORY };
    run(Arc::new(MemoryStore::with_history(history)), options).unwrap_or_else(|failure| {
        panic!("{}\n{failure}: {}", failure.trace.join("\n"), failure.violation);
    })
}

/// The seeds of this run: each test tries a few, a full run many.
fn seeds() -> impl Iterator<Item = u64> {
    let first = testkit::seed();
    (0..testkit::count(20, 500) as u64).map(move |offset| first.wrapping_add(offset))
}

#[test]
fn the_memory_store_keeps_every_rule() {
    for seed in seeds() {
        let outcome = good(&Options::new(seed, STEPS));
        assert!(outcome.accepted > 200, "seed {seed}: {outcome:?}");
        assert!(outcome.refused > 50, "seed {seed}: {outcome:?}");
        assert!(outcome.events > 200, "seed {seed}: {outcome:?}");
        assert!(outcome.crashes > 10, "seed {seed}: {outcome:?}");
        assert_eq!(outcome.histories_gone, 0);
    }
}

#[test]
fn the_memory_store_keeps_every_rule_while_it_forgets() {
    let gone: u64 = seeds()
        .map(|seed| good(&Options { history_may_go: true, ..Options::new(seed, STEPS) }).histories_gone)
        .sum();
    assert!(gone > 0, "no watcher was ever slow enough");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let seed = testkit::seed();
    let first = good(&Options::new(seed, STEPS));
    assert_eq!(good(&Options::new(seed, STEPS)), first);
    assert_ne!(good(&Options::new(seed.wrapping_add(1), STEPS)).trace_hash, first.trace_hash);
}

/// What a faulty store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Updates and deletes whatever is there now.
    IgnoresRevision,
    /// Creates over what is there.
    IgnoresExistence,
    /// Refuses now and then for no reason.
    RefusesAtWill,
    /// Does only the first change of a commit.
    HalfCommits,
    /// Watches from now instead of from where it was asked to.
    LosesEvents,
    /// Watches from the very beginning.
    RepeatsEvents,
    /// Watches, but tells nothing.
    FallsSilent,
    /// Tells of changes outside the range.
    WatchesTooMuch,
    /// Says that a list shows an older moment than it does.
    BackdatesLists,
    /// Leaves the last record out of a page.
    ShortensLists,
    /// Reads what was there before.
    ReadsStale,
}

#[derive(Debug)]
struct Faulty {
    inner: MemoryStore,
    fault: Fault,
}

impl Faulty {
    async fn revision_now(&self) -> Result<Revision, StoreError> {
        Ok(self.inner.list(ListRequest::new(KeyRange::Handles)).await?.revision)
    }

    async fn without_precondition(&self, mut change: Change) -> Result<Change, StoreError> {
        let current = self.inner.get(&change.key).await?;
        match (&change.precondition, current) {
            (Precondition::At(_), Some(record)) if self.fault == Fault::IgnoresRevision => {
                change.precondition = Precondition::At(record.revision);
            }
            (Precondition::Absent, Some(record)) if self.fault == Fault::IgnoresExistence => {
                change.precondition = Precondition::At(record.revision);
            }
            _ => {}
        }
        Ok(change)
    }
}

#[async_trait]
impl Store for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let record = self.inner.get(key).await?;
        Ok(record
            .filter(|record| self.fault != Fault::ReadsStale || !record.revision.as_str().ends_with("50")))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        let mut page = self.inner.list(request).await?;
        match self.fault {
            Fault::BackdatesLists => page.revision = Revision::from(1),
            Fault::ShortensLists if page.records.len() > 1 => {
                page.records.pop();
            }
            _ => {}
        }
        Ok(page)
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        let count = changes.len();
        let mut kept = Vec::new();
        for change in changes {
            kept.push(self.without_precondition(change).await?);
        }
        if self.fault == Fault::RefusesAtWill && self.revision_now().await?.as_str().ends_with('7') {
            return Err(StoreError::NotFound { key: kept[0].key.clone() });
        }
        if self.fault == Fault::HalfCommits {
            kept.truncate(1);
        }
        let mut committed = self.inner.commit(kept).await?;
        committed.revisions.resize(count, committed.revisions[0].clone());
        Ok(committed)
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        let (range, after) = match self.fault {
            Fault::LosesEvents => (range, self.revision_now().await?),
            Fault::RepeatsEvents => (range, Revision::from(1)),
            Fault::FallsSilent => (KeyRange::Kind(Kind::Node), after),
            Fault::WatchesTooMuch => (KeyRange::Everything, after),
            _ => (range, after),
        };
        self.inner.watch(range, after).await
    }
}

/// Every seed finds the fault, and says which rule it broke.
fn check_caught(fault: Fault, rules: &[Rule]) {
    check_caught_with(fault, rules, |seed| Options::new(seed, STEPS));
}

fn check_caught_with(fault: Fault, rules: &[Rule], options: fn(u64) -> Options) {
    for seed in seeds() {
        let store = Faulty { inner: MemoryStore::new(), fault };
        match run(Arc::new(store), &options(seed)) {
            Ok(outcome) => panic!("seed {seed} did not notice {fault:?}: {outcome:?}"),
            Err(failure) => {
                let rule = failure.violation.rule;
                assert!(rules.contains(&rule), "seed {seed}, {fault:?}: {}", failure.violation);
            }
        }
    }
}

#[test]
fn a_dropped_precondition_is_a_lost_update() {
    // In a commit of two changes the first may lose its precondition and the second then be the one refused.
    check_caught(Fault::IgnoresRevision, &[Rule::LostUpdate, Rule::FalseRefusal]);
    check_caught(Fault::IgnoresExistence, &[Rule::LostUpdate, Rule::FalseRefusal]);
}

#[test]
fn a_refusal_without_reason_is_caught() {
    check_caught(Fault::RefusesAtWill, &[Rule::FalseRefusal]);
}

#[test]
fn a_commit_done_by_half_is_caught() {
    check_caught(
        Fault::HalfCommits,
        &[Rule::LostUpdate, Rule::WrongRead, Rule::FalseRefusal, Rule::EventLost],
    );
}

#[test]
fn a_lost_event_is_caught() {
    check_caught(Fault::LosesEvents, &[Rule::EventLost]);
    check_caught(Fault::FallsSilent, &[Rule::EventLost]);
}

#[test]
fn a_phantom_event_is_caught() {
    // A watcher that watches everything anyway does not notice: one of the many does not.
    let options = |seed| Options { watchers: 12, ..Options::new(seed, STEPS) };
    check_caught_with(Fault::WatchesTooMuch, &[Rule::EventPhantom], options);
}

#[test]
fn a_repeated_event_is_caught() {
    check_caught(Fault::RepeatsEvents, &[Rule::EventRepeated]);
}

#[test]
fn a_list_of_another_moment_is_caught() {
    check_caught(Fault::BackdatesLists, &[Rule::WrongRead, Rule::EventRepeated]);
    check_caught(Fault::ShortensLists, &[Rule::WrongRead]);
}

#[test]
fn a_stale_read_is_caught() {
    check_caught(Fault::ReadsStale, &[Rule::WrongRead]);
}
