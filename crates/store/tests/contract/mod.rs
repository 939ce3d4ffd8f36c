//! The contract of `store::Store` as checks that run against any backend.
//!
//! A backend's test gives a [`Backend`] and calls [`run_all`]. Each check starts from an empty store, so they run one
//! after another.

mod commits;
mod history;
mod lists;
mod races;
mod reads;
mod steps;
mod watches;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use model::{Key, KeyRange, Kind};
use store::{Event, Record, Revision, Store, StoreError, Watch};

/// What the checks need of a backend beyond its `Store`.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// Makes the store empty and gives a handle to it.
    async fn fresh(&self) -> Arc<dyn Store>;

    /// One more handle to what `fresh` gave last, as another client would have.
    async fn another(&self) -> Arc<dyn Store>;

    /// Makes the store forget everything before its current revision.
    async fn forget_history(&self);

    /// Writes a key that is not one of ours.
    async fn put_foreign(&self, key: &str, value: &str);

    /// Checks that make no sense here, each with the reason.
    fn excused(&self) -> &[(&'static str, &'static str)] {
        &[]
    }
}

type Check = for<'a> fn(&'a dyn Backend) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

macro_rules! checks {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), |backend| Box::pin($module::$name(backend)))),*]
    };
}

/// What every store promises.
const CHECKS: &[(&str, Check)] = checks![
    commits::an_empty_store_has_nothing,
    commits::create_get_update_delete,
    commits::create_of_what_exists_shows_what_is_there,
    commits::update_and_delete_need_the_current_revision,
    commits::a_revision_that_never_was_is_not_met,
    commits::commits_that_write_nothing_make_no_revision,
    commits::senseless_commits_are_refused,
    commits::values_are_kept_byte_by_byte,
    commits::unusual_names_are_kept,
    lists::every_range_holds_its_own_and_nothing_else,
    lists::empty_ranges_are_empty,
    lists::pages_follow_one_another_in_key_order,
    lists::pages_show_one_moment_while_records_change,
    lists::a_page_can_be_asked_for_again,
    reads::answers_come_in_the_order_of_the_lookups,
    reads::reads_pass_over_foreign_keys,
    reads::what_cannot_be_spelled_cannot_be_read,
    reads::many_lookups_are_answered,
    watches::a_watch_shows_every_later_change_once_in_order,
    watches::a_watch_may_start_in_the_past,
    watches::a_list_and_its_watch_meet_without_gap,
    watches::several_watchers_see_the_same,
    watches::a_dropped_watch_is_resumed_without_loss,
    watches::waiting_for_an_event_may_be_given_up,
    watches::a_slow_reader_loses_nothing,
    watches::another_client_sees_the_change,
    history::a_watch_into_lost_history_says_so,
    history::a_watch_overtaken_by_forgetting_tells_all_or_says_so,
    history::a_watch_that_has_told_all_outlives_forgetting,
    history::a_list_whose_moment_is_forgotten_says_so,
    history::forgetting_keeps_the_present,
    history::foreign_keys_are_passed_over,
    history::pages_are_filled_past_foreign_keys,
    races::increments_by_compare_and_swap_add_up,
    races::only_one_creator_wins,
];

/// What only stores with atomic commits promise.
const OF_ATOMIC_COMMITS: &[(&str, Check)] = checks![
    commits::a_refused_commit_leaves_no_trace,
    commits::the_first_unmet_precondition_is_reported,
    commits::requirements_guard_without_writing,
    commits::the_largest_commit_fits,
    reads::a_read_shows_one_moment,
    watches::the_events_of_a_commit_come_in_its_order,
    watches::large_commits_are_told_whole,
    watches::a_watch_sees_only_its_range,
    watches::a_commit_read_in_part_is_repeated,
    races::commits_of_several_records_are_never_seen_half,
];

/// What those without promise instead.
const OF_STEPS: &[(&str, Check)] =
    checks![steps::a_commit_stops_at_the_first_failure_and_says_how_far_it_came];

/// Holds a backend to the contract.
pub(crate) async fn run_all(backend: &dyn Backend) {
    let atomic = backend.fresh().await.capabilities().atomic_commits;
    let known: Vec<&str> =
        CHECKS.iter().chain(OF_ATOMIC_COMMITS).chain(OF_STEPS).map(|(name, _)| *name).collect();
    for (name, _) in backend.excused() {
        assert!(known.contains(name), "there is no check {name} to be excused from");
    }
    for (name, check) in CHECKS.iter().chain(if atomic { OF_ATOMIC_COMMITS } else { OF_STEPS }) {
        if let Some((_, reason)) = backend.excused().iter().find(|(excused, _)| excused == name) {
            eprintln!("contract: {name} does not apply: {reason}");
            continue;
        }
        eprintln!("contract: {name}");
        check(backend).await;
    }
}

fn pool(name: &str) -> Key {
    Key::cluster(Kind::IpPool, name)
}

fn handle(id: impl Into<String>) -> Key {
    Key::Handle(id.into().into())
}

fn pools() -> KeyRange {
    KeyRange::Kind(Kind::IpPool)
}

/// A small JSON value, as the store's users write.
fn value(text: &str) -> Vec<u8> {
    format!("{{\"note\":{text:?}}}").into_bytes()
}

async fn read(store: &dyn Store, key: &Key) -> Option<Record> {
    store.get(key).await.expect("get works")
}

async fn existing(store: &dyn Store, key: &Key) -> Record {
    read(store, key).await.unwrap_or_else(|| panic!("{key} is there"))
}

async fn create(store: &dyn Store, key: &Key, text: &str) -> Revision {
    store.create(key.clone(), value(text)).await.expect("create works")
}

/// The store as it is: everything in it, and the revision of that.
async fn everything(store: &dyn Store) -> (Vec<Record>, Revision) {
    store.list_all(KeyRange::Everything).await.expect("list works")
}

async fn now(store: &dyn Store) -> Revision {
    everything(store).await.1
}

async fn start(store: &dyn Store, range: KeyRange, after: &Revision) -> Watch {
    store.watch(range, after.clone()).await.expect("watch starts")
}

async fn next(watch: &mut Watch) -> Event {
    let event = tokio::time::timeout(testkit::PATIENCE, watch.next()).await.expect("an event arrives");
    event.expect("the watch goes on").expect("the watch is well")
}

async fn take(watch: &mut Watch, count: usize) -> Vec<Event> {
    let mut events = Vec::with_capacity(count);
    for _ in 0..count {
        events.push(next(watch).await);
    }
    events
}

/// Checks that nothing more is on its way: the very next event is the one this makes.
async fn nothing_before_a_marker(store: &dyn Store, watch: &mut Watch, marker: &Key) {
    let revision = create(store, marker, "marker").await;
    assert_eq!(next(watch).await, put(marker, "marker", &revision));
}

fn put(key: &Key, text: &str, revision: &Revision) -> Event {
    Event::Put(Record { key: key.clone(), value: value(text).into(), revision: revision.clone() })
}

fn deleted(key: &Key, revision: &Revision) -> Event {
    Event::Deleted { key: key.clone(), revision: revision.clone() }
}

fn assert_already_exists(result: Result<impl std::fmt::Debug, StoreError>, expected: &Record) {
    match result {
        Err(StoreError::AlreadyExists { existing }) => assert_eq!(&*existing, expected),
        other => panic!("expected AlreadyExists, got {other:?}"),
    }
}

fn assert_conflict(result: Result<impl std::fmt::Debug, StoreError>, expected: &Record) {
    match result {
        Err(StoreError::Conflict { current }) => assert_eq!(&*current, expected),
        other => panic!("expected Conflict, got {other:?}"),
    }
}

fn assert_not_found(result: Result<impl std::fmt::Debug, StoreError>, expected: &Key) {
    match result {
        Err(StoreError::NotFound { key }) => assert_eq!(&key, expected),
        other => panic!("expected NotFound, got {other:?}"),
    }
}
