//! Stores without transactions: every write may be the last, or its answer may be lost. What is left is harmless, and the
//! next pass puts it right.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use book::{Addition, Additions, Book, BookError, GivenRequest, HandleRequest, Looks, Settings};
use ipam::ReleaseRule;
use jiff::{SignedDuration, Timestamp};
use model::{AffinityOwner, HandleId, Key, Kind};
use serde_json::json;
use store::wrap::{FailingStore, Failure, StepwiseStore};
use store::{MemoryStore, Store};

use crate::common::{address, assert_clean, assign, cidr, holders, one, owner, put_pools, wait_for};

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

fn endpoint() -> Key {
    Key::namespaced(Kind::WorkloadEndpoint, "shop", "web")
}

/// node-a holds a, b and c in two blocks, node-b d in one, and node-c has an empty one; one block is free.
async fn cluster(operation: Operation) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
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
    store
}

async fn run(operation: Operation, book: &Book) -> Result<(), BookError> {
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
            request.additions = Additions::new(1, |_| Ok(vec![Addition::create(endpoint(), "{}")]));
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
    Book::with_settings(Arc::new(StepwiseStore::new(store)), settings())
}

struct Outcome {
    store: Arc<dyn Store>,
    before: BTreeMap<IpAddr, HandleId>,
    result: Result<(), BookError>,
}

/// The operation with one write that fails; `None` if it has fewer writes.
async fn interrupted(operation: Operation, failure: Failure, at_write: u64) -> Option<Outcome> {
    let store = cluster(operation).await;
    let before = holders(&store).await;
    let failing = Arc::new(FailingStore::new(store.clone(), failure, at_write));
    let result = run(operation, &book_on(failing.clone())).await;
    failing.has_failed().then_some(Outcome { store, before, result })
}

/// What the operation does when nothing is in its way.
async fn undisturbed(operation: Operation) -> BTreeMap<IpAddr, HandleId> {
    let store = cluster(operation).await;
    run(operation, &book_on(store.clone())).await.unwrap();
    assert_clean(&store).await;
    holders(&store).await
}

async fn recover_all(store: &Arc<dyn Store>) {
    let recovery = book_on(store.clone()).recover(Looks::Once).await.unwrap();
    assert_eq!(recovery.left, []);
    assert_clean(store).await;
}

#[tokio::test]
async fn whoever_dies_leaves_what_recovery_puts_right() {
    let mut points = 0;
    for operation in ALL {
        let after = undisturbed(operation).await;
        for at_write in 0.. {
            let Some(Outcome { store, before, result }) =
                interrupted(operation, Failure::End, at_write).await
            else {
                break;
            };
            points += 1;
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
            run(operation, &book_on(store.clone())).await.unwrap_or_else(|error| panic!("{name}: {error}"));
            recover_all(&store).await;
        }
    }
    println!("{points} crash points");
    assert!(points > 40, "{points}");
}

/// A write that was not done is an error, and the one who meets it takes back what it has got so far.
#[tokio::test]
async fn whoever_fails_takes_back_what_it_got() {
    for operation in ALL {
        let after = undisturbed(operation).await;
        for at_write in 0.. {
            let Some(Outcome { store, before, result }) =
                interrupted(operation, Failure::NotDone, at_write).await
            else {
                break;
            };
            let name = format!("{operation:?}, write {at_write}: {result:?}");
            if result.is_err() && !is_release(operation) {
                wait_for(&name, || async { holders(&store).await == before }).await;
                wait_for(&name, || async { store.get(&endpoint()).await.unwrap().is_none() }).await;
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
#[tokio::test]
async fn lost_answers_make_no_difference() {
    for operation in ALL {
        let after = undisturbed(operation).await;
        for at_write in 0.. {
            let Some(Outcome { store, result, .. }) =
                interrupted(operation, Failure::AnswerLost, at_write).await
            else {
                break;
            };
            let name = format!("{operation:?}, write {at_write}: {result:?}");
            assert!(result.is_ok(), "{name}");
            assert_eq!(holders(&store).await, after, "{name}");
            assert_clean(&store).await;
        }
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
