//! Whatever is asked of it, the SQLite store answers as the memory store does: errors, records, revisions, pages at
//! past moments, events. Where history was forgotten under a watch, either may tell what it still has or say that it is
//! gone; each is then compared with a store that forgets nothing.

use std::sync::Arc;
use std::time::Duration;

use model::{Cidr, IpVersion, Key, KeyRange, Kind};
use proptest::prelude::*;
use store::{Change, Continuation, Event, ListRequest, MemoryStore, OpenMode, Revision, Store, Watch};

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Wanted>),
    Get(usize),
    List {
        range: usize,
        limit: usize,
    },
    /// The next page of one of the lists begun before.
    More(usize),
    Watch {
        range: usize,
        back: u64,
    },
    /// All that one of the watches has to tell.
    Read(usize),
    Forget,
    Reopen,
}

/// A change, with its revision still to be chosen.
#[derive(Clone, Debug)]
struct Wanted {
    key: usize,
    verb: Verb,
    revision: Believed,
    value: String,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    /// Creates or updates, whichever fits: most commits should succeed, or there is nothing to watch.
    Put,
    Create,
    Update,
    Delete,
    Require,
    RequireAbsent,
}

#[derive(Clone, Copy, Debug)]
enum Believed {
    Current,
    /// This many revisions ago.
    Older(u64),
    Nonsense,
}

fn keys() -> Vec<Key> {
    let block: Cidr = "10.0.0.0/26".parse().unwrap();
    vec![
        handle("a"),
        handle("a/b"),
        handle("ä"),
        Key::cluster(Kind::IpPool, "p"),
        Key::cluster(Kind::IpPool, "p1"),
        Key::namespaced(Kind::NetworkSet, "blue", "s"),
        Key::namespaced(Kind::NetworkSet, "green", "s"),
        Key::Block(block),
        Key::IpamConfig,
        Key::cluster(Kind::IpPool, "not/spelled"),
    ]
}

fn ranges() -> Vec<KeyRange> {
    vec![
        KeyRange::Everything,
        KeyRange::Handles,
        KeyRange::Kind(Kind::IpPool),
        KeyRange::Kind(Kind::NetworkSet),
        KeyRange::Namespace(Kind::NetworkSet, "blue".into()),
        KeyRange::NamePrefix { kind: Kind::IpPool, namespace: None, prefix: "p1".into() },
        KeyRange::Blocks(IpVersion::V4),
        KeyRange::VirtualAffinities,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let verb = prop_oneof![
        20 => Just(Verb::Put),
        2 => Just(Verb::Create),
        4 => Just(Verb::Update),
        3 => Just(Verb::Delete),
        1 => Just(Verb::Require),
        1 => Just(Verb::RequireAbsent),
    ];
    let believed = prop_oneof![
        12 => Just(Believed::Current),
        1 => (1_u64..5).prop_map(Believed::Older),
        1 => Just(Believed::Nonsense),
    ];
    // The last key cannot be spelled; it should not spoil every commit.
    let key = prop_oneof![40 => 0..keys().len() - 1, 1 => Just(keys().len() - 1)];
    let wanted = (key, verb, believed, "[a-z]{0,6}").prop_map(|(key, verb, revision, value)| Wanted {
        key,
        verb,
        revision,
        value,
    });
    let range = || prop_oneof![3 => Just(0), 5 => 0..ranges().len()];
    prop_oneof![
        12 => prop::collection::vec(wanted, 0..4).prop_map(Step::Commit),
        2 => (0..keys().len()).prop_map(Step::Get),
        4 => (range(), 0_usize..4).prop_map(|(range, limit)| Step::List { range, limit }),
        6 => (0_usize..8).prop_map(Step::More),
        3 => (range(), 0_u64..6).prop_map(|(range, back)| Step::Watch { range, back }),
        8 => (0_usize..8).prop_map(Step::Read),
        1 => Just(Step::Forget),
        1 => Just(Step::Reopen),
    ]
}

/// Both stores, and what is under way on both.
struct Pair {
    scratch: Scratch,
    memory: Arc<MemoryStore>,
    /// The same as `memory`, but it forgets nothing.
    truth: Arc<MemoryStore>,
    /// What happened up to this revision was forgotten.
    forgotten: u64,
    sqlite: Arc<dyn Store>,
    lists: Vec<(ListRequest, Continuation)>,
    watches: Vec<Watched>,
}

/// The same watch on each store.
struct Watched {
    truth: Watch,
    /// Those that go on: one may end with the loss of history, and the other not.
    others: Vec<(&'static str, Watch)>,
}

impl Pair {
    fn new() -> Pair {
        let scratch = Scratch::new();
        let sqlite = open(&scratch.db(), OpenMode::CreateIfMissing);
        let (memory, truth) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
        Pair { scratch, memory, truth, forgotten: 1, sqlite, lists: vec![], watches: vec![] }
    }

    fn model(&self) -> &dyn Store {
        &*self.memory
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Commit(wanted) => self.commit(wanted).await,
            Step::Get(key) => {
                let key = &keys()[*key];
                same(self.model().get(key).await, self.sqlite.get(key).await);
            }
            Step::List { range, limit } => {
                self.list(ListRequest::new(ranges()[*range].clone()).with_limit(*limit)).await;
            }
            Step::More(which) => {
                if !self.lists.is_empty() {
                    let (request, next) = self.lists[which % self.lists.len()].clone();
                    self.list(request.continued(next)).await;
                }
            }
            Step::Watch { range, back } => self.watch(ranges()[*range].clone(), *back).await,
            Step::Read(which) => {
                if !self.watches.is_empty() {
                    let which = which % self.watches.len();
                    self.read(which).await;
                }
            }
            Step::Forget => {
                self.memory.forget_history();
                self.forgotten = number(&self.ago(0).await);
                raw(&self.scratch.db())
                    .execute_batch(
                        "BEGIN IMMEDIATE; DELETE FROM history;
                         UPDATE store SET floor = revision, history_bytes = 0; COMMIT",
                    )
                    .unwrap();
            }
            Step::Reopen => self.sqlite = open(&self.scratch.db(), OpenMode::Existing),
        }
    }

    async fn commit(&self, wanted: &[Wanted]) {
        let mut changes = Vec::new();
        for wanted in wanted {
            let key = keys()[wanted.key].clone();
            // A key that cannot be spelled has no record; the commit has to say so.
            let current = self.model().get(&key).await.ok().flatten().map(|record| record.revision);
            let revision = self.believed(wanted.revision, current.clone()).await;
            changes.push(match wanted.verb {
                Verb::Put if current.is_none() => Change::create(key, wanted.value.clone()),
                Verb::Put => Change::update(key, wanted.value.clone(), revision),
                Verb::Create => Change::create(key, wanted.value.clone()),
                Verb::Update => Change::update(key, wanted.value.clone(), revision),
                Verb::Delete => Change::delete(key, revision),
                Verb::Require => Change::require(key, revision),
                Verb::RequireAbsent => Change::require_absent(key),
            });
        }
        self.commit_all(changes).await;
    }

    async fn commit_all(&self, changes: Vec<Change>) {
        let _ = self.truth.commit(changes.clone()).await;
        same(self.model().commit(changes.clone()).await, self.sqlite.commit(changes).await);
    }

    async fn believed(&self, believed: Believed, current: Option<Revision>) -> Revision {
        match (believed, current) {
            (Believed::Current, Some(current)) => current,
            (Believed::Current, None) => self.ago(0).await,
            (Believed::Older(back), _) => self.ago(back).await,
            (Believed::Nonsense, _) => Revision::new("yesterday"),
        }
    }

    async fn ago(&self, back: u64) -> Revision {
        let now = number(&self.model().list_all(KeyRange::Handles).await.unwrap().1);
        Revision::new(now.saturating_sub(back).to_string())
    }

    async fn list(&mut self, request: ListRequest) {
        let page = self.model().list(request.clone()).await;
        let other = self.sqlite.list(request.clone()).await;
        if let Ok(page) = &page
            && let Some(next) = &page.next
        {
            self.lists.push((request, next.clone()));
        }
        same(page, other);
    }

    async fn watch(&mut self, range: KeyRange, back: u64) {
        let after = self.ago(back).await;
        let truth = self.truth.watch(range.clone(), after.clone()).await.unwrap();
        let model = self.model().watch(range.clone(), after.clone()).await.unwrap();
        let other = self.sqlite.watch(range, after).await.unwrap();
        self.watches.push(Watched { truth, others: vec![("memory", model), ("SQLite", other)] });
    }

    async fn read(&mut self, which: usize) {
        let Watched { truth, others } = &mut self.watches[which];
        let expected = all_told(truth).await;
        let mut going_on = Vec::new();
        for (name, mut watch) in others.drain(..) {
            if hear(name, &mut watch, &expected, truth.position(), self.forgotten).await {
                going_on.push((name, watch));
            }
        }
        *others = going_on;
        if others.is_empty() {
            self.watches.remove(which);
        }
    }

    /// Every watch tells all it has, and then nothing but what comes next.
    async fn finish(mut self) {
        let end = Change::create(Key::cluster(Kind::Node, "end"), "end");
        self.commit_all(vec![end]).await;
        for which in (0..self.watches.len()).rev() {
            self.read(which).await;
        }
        for range in ranges() {
            same(self.model().list_all(range.clone()).await, self.sqlite.list_all(range).await);
        }
    }
}

/// All that a watch of the store that forgets nothing has to tell, each with the position after it.
async fn all_told(watch: &mut Watch) -> Vec<(Event, Revision)> {
    let mut told = Vec::new();
    loop {
        // The memory store has all its events at once.
        let event = tokio::select! {
            biased;
            event = watch.next() => event,
            () = std::future::ready(()) => return told,
        };
        match event {
            None | Some(Ok(Event::HistoryGone)) => return told,
            Some(event) => told.push((event.unwrap(), watch.position().clone())),
        }
    }
}

/// Holds a watch to the contract: it tells all that is expected, and comes to `position`; or it says that history is gone, if some
/// of what it had not told was forgotten. Says whether it goes on.
async fn hear(
    name: &str,
    watch: &mut Watch,
    expected: &[(Event, Revision)],
    position: &Revision,
    forgotten: u64,
) -> bool {
    for (event, after) in expected {
        let before = number(watch.position());
        let heard = tokio::time::timeout(testkit::PATIENCE, watch.next()).await;
        let heard = heard.unwrap_or_else(|_| panic!("{name} stays silent about {event:?}")).unwrap().unwrap();
        if heard == Event::HistoryGone {
            return gone(name, watch, before, forgotten).await;
        }
        assert_eq!(&heard, event, "{name}");
        if Some(after) == event.revision() {
            assert_eq!(watch.position(), after, "{name}");
        }
    }
    // Time has passed without any event for it, which it may notice late.
    let deadline = std::time::Instant::now() + testkit::PATIENCE;
    while watch.position() != position || number(position) < forgotten {
        assert!(std::time::Instant::now() < deadline, "{name} stays at {} of {position}", watch.position());
        let before = number(watch.position());
        match tokio::time::timeout(Duration::from_millis(1), watch.next()).await {
            Ok(Some(Ok(Event::HistoryGone))) => return gone(name, watch, before, forgotten).await,
            Ok(event) => panic!("only {name} tells {event:?}"),
            Err(_) => {}
        }
    }
    true
}

async fn gone(name: &str, watch: &mut Watch, position: u64, forgotten: u64) -> bool {
    assert!(
        position < forgotten,
        "{name} knows what happened after {position}: forgotten is up to {forgotten}"
    );
    assert!(watch.next().await.is_none(), "nothing follows");
    false
}

fn number(revision: &Revision) -> u64 {
    revision.as_str().parse().unwrap()
}

fn same<T: std::fmt::Debug>(model: Result<T, StoreError>, other: Result<T, StoreError>) {
    assert_eq!(format!("{model:?}"), format!("{other:?}"));
}

#[test]
fn sqlite_answers_as_memory_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let steps = prop::collection::vec(step(), 1..60);
    for_random(testkit::count(60, 600), &steps, |steps| {
        runtime.block_on(async {
            let mut pair = Pair::new();
            for step in &steps {
                pair.step(step).await;
            }
            pair.finish().await;
        });
    });
}
