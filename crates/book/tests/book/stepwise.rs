//! Stores without transactions: every write may be the last, or its answer may be lost. What is left is harmless, and the
//! next pass puts it right.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use book::load::{Progress, books};
use book::{Addition, Additions, Book, BookError, GivenRequest, HandleRequest, Looks, Settings};
use ipam::ReleaseRule;
use jiff::{SignedDuration, Timestamp};
use model::ipam::AffinityState;
use model::{AffinityOwner, HandleId, Key, Kind, is_detached};
use serde_json::json;
use store::wrap::{FailingStore, Failure};
use store::{MemoryStore, Store};

use crate::common::{
    address, assert_clean, assign, cidr, holders, one, one_by_one, owner, put_pools, wait_for,
};
use crate::kubernetes::Pod;
use crate::places::Place;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    AssignFromOwnBlock,
    AssignWithNewBlocks,
    TakeOverABlock,
    Borrow,
    AssignGiven,
    AssignWithEndpoint,
    ReleaseHandle,
    ReleaseAddresses,
    ClaimBlocks,
    ReleaseHost,
    ReleaseBlockInUse,
}

const ALL: [Operation; 11] = [
    Operation::AssignFromOwnBlock,
    Operation::AssignWithNewBlocks,
    Operation::TakeOverABlock,
    Operation::Borrow,
    Operation::AssignGiven,
    Operation::AssignWithEndpoint,
    Operation::ReleaseHandle,
    Operation::ReleaseAddresses,
    Operation::ClaimBlocks,
    Operation::ReleaseHost,
    Operation::ReleaseBlockInUse,
];

fn is_release(operation: Operation) -> bool {
    matches!(operation, Operation::ReleaseHandle | Operation::ReleaseAddresses)
}

/// Where the clusters of these tests are made, one after the other.
enum Ground {
    /// A store that could write several records at once, and is not let.
    Memory,
    /// A store that cannot.
    Kubernetes(Place),
}

/// A cluster, and what an endpoint is there.
struct Cluster {
    store: Arc<dyn Store>,
    pod: Option<Pod>,
}

impl Ground {
    async fn kubernetes(test: &str) -> Option<Ground> {
        Place::kubernetes(test).await.map(Ground::Kubernetes)
    }

    /// Without any records.
    async fn empty(&self) -> Cluster {
        match self {
            Ground::Memory => Cluster { store: Arc::new(MemoryStore::new()), pod: None },
            Ground::Kubernetes(place) => {
                let api = place.clear();
                let pod = Pod::create(&api, "node-a", "web");
                Cluster { store: place.open().await, pod: Some(pod) }
            }
        }
    }
}

impl Cluster {
    fn endpoint(&self) -> Key {
        let record = || Key::namespaced(Kind::WorkloadEndpoint, "shop", "web");
        self.pod.as_ref().map_or_else(record, |pod| pod.key.clone())
    }

    fn additions(&self) -> Additions {
        let (pod, key) = (self.pod.clone(), self.endpoint());
        Additions::new(1, move |granted| {
            let record = || Addition::create(key.clone(), "{}");
            Ok(vec![pod.as_ref().map_or_else(record, |pod| pod.attach("new", granted))])
        })
    }

    async fn has_endpoint(&self) -> bool {
        let found = self.store.get(&self.endpoint()).await.unwrap();
        found.is_some_and(|record| !is_detached(&record.value))
    }

    async fn has_handle(&self, handle: &str) -> bool {
        self.store.get(&Key::Handle(handle.into())).await.unwrap().is_some()
    }
}

/// node-a holds a, b and c in two blocks, node-b d in one, and node-c has an empty one; one block is free.
async fn cluster(ground: &Ground, operation: Operation) -> Cluster {
    let cluster = ground.empty().await;
    let store = cluster.store.clone();
    let is_crowded = matches!(operation, Operation::Borrow | Operation::TakeOverABlock);
    let network = if is_crowded { "10.0.0.0/28" } else { "10.0.0.0/27" };
    put_pools(&store, &[json!({"cidr": network, "blockSize": 30})]).await;
    let book = Book::new(store.clone());
    let owner = |name: &str| AffinityOwner::Host(name.to_owned());
    for (block, node) in [("10.0.0.0/30", "node-a"), ("10.0.0.4/30", "node-b"), ("10.0.0.8/30", "node-c")] {
        book.claim_blocks(cidr(block), owner(node)).await.unwrap();
    }
    for (node, handle) in [("node-a", "a"), ("node-a", "b"), ("node-b", "d")] {
        assign(&book, node, handle).await;
    }
    if is_crowded {
        book.claim_blocks(cidr("10.0.0.12/30"), owner("node-b")).await.unwrap();
        let mut request = one("node-b", "fill");
        request.v4 = 4;
        book.assign(request).await.unwrap();
    }
    if operation == Operation::Borrow {
        assign(&book, "node-c", "f").await;
    }
    cluster
}

async fn run(operation: Operation, cluster: &Cluster, book: &Book) -> Result<(), BookError> {
    let mut request = one("node-a", "new");
    match operation {
        Operation::AssignFromOwnBlock => drop(book.assign(request).await?),
        Operation::AssignWithNewBlocks => {
            request.v4 = 9;
            book.assign(request).await?;
        }
        Operation::TakeOverABlock | Operation::Borrow => {
            request.v4 = 4;
            book.assign(request).await?;
        }
        Operation::AssignGiven => {
            let addresses = vec![address("10.0.0.3"), address("10.0.0.21")];
            book.assign_addresses(GivenRequest::new("node-a", owner("new"), addresses)).await?;
        }
        Operation::AssignWithEndpoint => {
            request.additions = cluster.additions();
            book.assign(request).await?;
        }
        Operation::ReleaseHandle => drop(book.release_handle(HandleRequest::all("a")).await?),
        Operation::ReleaseAddresses => {
            let item =
                |text| ipam::ReleaseItem { address: address(text), handle: None, sequence_number: None };
            book.release_addresses(["10.0.0.0", "10.0.0.4"].map(item)).await?;
        }
        Operation::ClaimBlocks => {
            book.claim_blocks(cidr("10.0.0.16/29"), AffinityOwner::Host("node-a".to_owned())).await?;
        }
        Operation::ReleaseHost => {
            let rule = ReleaseRule { must_be_empty: true, sequence_number: None };
            book.release_host("node-c", rule).await?;
        }
        Operation::ReleaseBlockInUse => drop(book.release_host("node-a", ReleaseRule::default()).await?),
    }
    Ok(())
}

/// Later than the cluster was made, so that blocks may be taken over.
fn settings() -> Settings {
    let later = || Timestamp::now().checked_add(SignedDuration::from_hours(1)).unwrap();
    Settings { clock: Arc::new(later), ..Settings::default() }
}

fn book_on(store: Arc<dyn Store>) -> Book {
    Book::with_settings(one_by_one(store), settings())
}

struct Outcome {
    cluster: Cluster,
    before: BTreeMap<IpAddr, HandleId>,
    result: Result<(), BookError>,
}

/// The operation with one write that fails; `None` if it has fewer writes.
async fn interrupted(
    ground: &Ground,
    operation: Operation,
    failure: Failure,
    at_write: u64,
) -> Option<Outcome> {
    let cluster = cluster(ground, operation).await;
    let before = holders(&cluster.store).await;
    let failing = Arc::new(FailingStore::new(cluster.store.clone(), failure, at_write));
    let result = run(operation, &cluster, &book_on(failing.clone())).await;
    failing.has_failed().then_some(Outcome { cluster, before, result })
}

/// What the operation does when nothing is in its way.
async fn undisturbed(ground: &Ground, operation: Operation) -> BTreeMap<IpAddr, HandleId> {
    let cluster = cluster(ground, operation).await;
    run(operation, &cluster, &book_on(cluster.store.clone())).await.unwrap();
    assert_clean(&cluster.store).await;
    holders(&cluster.store).await
}

async fn recover_all(store: &Arc<dyn Store>) {
    let recovery = book_on(store.clone()).recover(Looks::Once).await.unwrap();
    assert_eq!(recovery.left, []);
    assert_clean(store).await;
}

async fn whoever_dies_leaves_what_recovery_puts_right(ground: &Ground) {
    let mut points = 0;
    for operation in ALL {
        let after = undisturbed(ground, operation).await;
        for at_write in 0.. {
            let Some(Outcome { cluster, before, result }) =
                interrupted(ground, operation, Failure::End, at_write).await
            else {
                break;
            };
            points += 1;
            let store = cluster.store.clone();
            let name = format!("{operation:?}, write {at_write}: {result:?}");
            let left = holders(&store).await;
            for (address, handle) in before.iter().filter(|(address, _)| after.contains_key(*address)) {
                assert_eq!(left.get(address), Some(&handle.into()), "{name}");
            }
            recover_all(&store).await;
            assert_eq!(holders(&store).await, left, "recovery frees and gives nothing: {name}");
            // The runtime's DEL, and the owner's next try.
            book_on(store.clone()).release_handle(HandleRequest::all("new")).await.unwrap();
            let of_new = |held: BTreeMap<IpAddr, HandleId>| {
                held.into_values().filter(|handle| *handle == "new").count()
            };
            assert_eq!(of_new(holders(&store).await), 0, "{name}");
            run(operation, &cluster, &book_on(store.clone()))
                .await
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            recover_all(&store).await;
        }
    }
    println!("{points} crash points");
    assert!(points > 40, "{points}");
}

/// A write that was not done is an error, and the one who meets it takes back what it has got so far.
async fn whoever_fails_takes_back_what_it_got(ground: &Ground) {
    for operation in ALL {
        let after = undisturbed(ground, operation).await;
        for at_write in 0.. {
            let Some(Outcome { cluster, before, result }) =
                interrupted(ground, operation, Failure::NotDone, at_write).await
            else {
                break;
            };
            let store = cluster.store.clone();
            let name = format!("{operation:?}, write {at_write}: {result:?}");
            if result.is_err() && !is_release(operation) {
                wait_for(&name, || async { holders(&store).await == before }).await;
                wait_for(&name, || async { !cluster.has_endpoint().await }).await;
                // Taking back goes on in the background, and the handle is the last of it.
                wait_for(&name, || async { !cluster.has_handle("new").await }).await;
            }
            let left = holders(&store).await;
            if result.is_ok() {
                assert_eq!(left.len(), after.len(), "{name}");
            }
            recover_all(&store).await;
        }
    }
}

/// A write whose answer was lost is looked at: the operation succeeds as if nothing had happened.
async fn lost_answers_make_no_difference(ground: &Ground) {
    for operation in ALL {
        let after = undisturbed(ground, operation).await;
        for at_write in 0.. {
            let Some(Outcome { cluster, result, .. }) =
                interrupted(ground, operation, Failure::AnswerLost, at_write).await
            else {
                break;
            };
            let store = cluster.store.clone();
            let name = format!("{operation:?}, write {at_write}: {result:?}");
            assert!(result.is_ok(), "{name}");
            assert_eq!(holders(&store).await, after, "{name}");
            assert_clean(&store).await;
        }
    }
}

/// What a claim or a release of the node's own blocks left half done, its next agent finishes without being asked.
async fn a_successor_finishes_what_was_begun_with_its_blocks(ground: &Ground) {
    let mut unfinished = 0;
    for operation in [Operation::AssignWithNewBlocks, Operation::ClaimBlocks, Operation::ReleaseBlockInUse] {
        for at_write in 0.. {
            let Some(Outcome { cluster, .. }) = interrupted(ground, operation, Failure::End, at_write).await
            else {
                break;
            };
            let store = cluster.store.clone();
            if is_finished(&store).await {
                continue;
            }
            unfinished += 1;
            let held = holders(&store).await;
            let settings = Settings { tend_every: Duration::from_millis(20), ..settings() };
            let successor = Book::following(one_by_one(store.clone()), settings, "node-a");
            let name = format!("{operation:?}, write {at_write}");
            wait_for(&name, || is_finished(&store)).await;
            drop(successor);
            assert_eq!(holders(&store).await, held, "nothing is freed: {name}");
        }
    }
    assert!(unfinished > 5, "{unfinished}");
}

/// Whether no affinity says that something is under way.
async fn is_finished(store: &Arc<dyn Store>) -> bool {
    let books = books(&**store, &Progress::default()).await.unwrap();
    let mut affinities = books.affinities.values().map(|stored| &stored.value.state);
    affinities.all(|state| *state == AffinityState::Confirmed)
}

mod in_memory {
    use super::Ground;

    #[tokio::test]
    async fn whoever_dies_leaves_what_recovery_puts_right() {
        super::whoever_dies_leaves_what_recovery_puts_right(&Ground::Memory).await;
    }

    #[tokio::test]
    async fn whoever_fails_takes_back_what_it_got() {
        super::whoever_fails_takes_back_what_it_got(&Ground::Memory).await;
    }

    #[tokio::test]
    async fn lost_answers_make_no_difference() {
        super::lost_answers_make_no_difference(&Ground::Memory).await;
    }

    #[tokio::test]
    async fn a_successor_finishes_what_was_begun_with_its_blocks() {
        super::a_successor_finishes_what_was_begun_with_its_blocks(&Ground::Memory).await;
    }
}

mod on_kubernetes {
    use super::Ground;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_dies_leaves_what_recovery_puts_right() {
        let test = "stepwise::on_kubernetes::whoever_dies_leaves_what_recovery_puts_right";
        let Some(ground) = Ground::kubernetes(test).await else { return };
        super::whoever_dies_leaves_what_recovery_puts_right(&ground).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_fails_takes_back_what_it_got() {
        let test = "stepwise::on_kubernetes::whoever_fails_takes_back_what_it_got";
        let Some(ground) = Ground::kubernetes(test).await else { return };
        super::whoever_fails_takes_back_what_it_got(&ground).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lost_answers_make_no_difference() {
        let test = "stepwise::on_kubernetes::lost_answers_make_no_difference";
        let Some(ground) = Ground::kubernetes(test).await else { return };
        super::lost_answers_make_no_difference(&ground).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_successor_finishes_what_was_begun_with_its_blocks() {
        let test = "stepwise::on_kubernetes::a_successor_finishes_what_was_begun_with_its_blocks";
        let Some(ground) = Ground::kubernetes(test).await else { return };
        super::a_successor_finishes_what_was_begun_with_its_blocks(&ground).await;
    }
}

/// Several on one store: races are lost in the middle, and everyone comes to an end.
#[tokio::test]
async fn several_share_a_store_without_transactions() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    put_pools(&store, &[json!({"cidr": "10.0.0.0/26", "blockSize": 29})]).await;
    let mut work = tokio::task::JoinSet::new();
    for node in 0..6 {
        let book = book_on(store.clone());
        work.spawn(async move {
            let node = format!("node-{node}");
            for round in 0..testkit::count(5, 30) {
                let (one, two) = (format!("{node}.{round}.0"), format!("{node}.{round}.1"));
                assign(&book, &node, &one).await;
                assign(&book, &node, &two).await;
                book.release_handle(HandleRequest::all(one)).await.unwrap();
                book.release_handle(HandleRequest::all(two)).await.unwrap();
            }
        });
    }
    work.join_all().await;
    assert!(holders(&store).await.is_empty());
    recover_all(&store).await;
}
