//! Requests that wait go together; nobody suffers for another, and nobody who goes away leaves anything.

use std::sync::Arc;
use std::time::Duration;

use book::{Addition, Additions, Book, BookError, HandleRequest, Settings};
use ipam::AssignError;
use model::{HandleId, Key, Kind};
use serde_json::json;
use store::Store;
use store::wrap::CountingStore;
use tokio::task::JoinSet;

use crate::common::{assert_clean, assign, block, cidr, holders, one, small, wait_for, with_pools};
use crate::stores::Gate;

async fn large() -> Arc<dyn Store> {
    with_pools(&[json!({"cidr": "10.0.0.0/16", "blockSize": 26})]).await
}

/// A book whose first commit is held up.
async fn first_at_the_gate(
    store: &Arc<dyn Store>,
) -> (Arc<Gate>, Book, JoinSet<Result<ipam::Grant, BookError>>) {
    let gate = Gate::closed(store.clone());
    let book = Book::new(gate.clone());
    let mut requests = JoinSet::new();
    spawn(&mut requests, &book, one("node-a", "first"));
    wait_for("the first commit", || async { gate.arrived() == 1 }).await;
    (gate, book, requests)
}

/// Everything that was asked for while the first commit was held up.
async fn queued(gate: &Gate, requests: &mut JoinSet<Result<ipam::Grant, BookError>>, expected: usize) {
    assert_eq!(requests.len(), expected);
    wait_for("the first commit", || async { gate.arrived() > 0 }).await;
    // The others are in the queue as soon as their tasks have run once.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn spawn(requests: &mut JoinSet<Result<ipam::Grant, BookError>>, book: &Book, request: book::AssignRequest) {
    let book = book.clone();
    requests.spawn(async move { book.assign(request).await });
}

#[tokio::test]
async fn a_burst_writes_each_block_once_per_commit() {
    let store = large().await;
    let counting = Arc::new(CountingStore::new(store.clone()));
    let book = Book::following(counting.clone(), Settings::default(), "node-a");
    book.in_sync().await;
    for (size, commits_max) in [(30, 2), (110, 2), (1000, 10)] {
        let before = counting.counts();
        let mut requests = JoinSet::new();
        for number in 0..size {
            spawn(&mut requests, &book, one("node-a", &format!("{size}-{number}")));
        }
        for done in requests.join_all().await {
            assert_eq!(done.unwrap().addresses.len(), 1);
        }
        let counts = counting.counts() - before;
        assert!(counts.commits <= commits_max, "{size}: {counts:?}");
        let mut releases = JoinSet::new();
        for number in 0..size {
            let (book, handle) = (book.clone(), format!("{size}-{number}"));
            releases.spawn(async move { book.release_handle(HandleRequest::all(handle)).await });
        }
        let before = counting.counts();
        for done in releases.join_all().await {
            assert_eq!(done.unwrap().addresses.len(), 1);
        }
        let counts = counting.counts() - before;
        assert!(counts.commits <= commits_max, "{size} released: {counts:?}");
        assert!(holders(&store).await.is_empty());
    }
    assert_clean(&store).await;
}

#[tokio::test]
async fn those_who_wait_go_together_and_in_order() {
    let store = large().await;
    let gate = Gate::closed(store.clone());
    let book = Book::new(gate.clone());
    let mut requests = JoinSet::new();
    for number in 0..41 {
        spawn(&mut requests, &book, one("node-a", &format!("h{number:02}")));
        tokio::task::yield_now().await;
    }
    queued(&gate, &mut requests, 41).await;
    gate.open(2);
    for done in requests.join_all().await {
        done.unwrap();
    }
    assert_eq!(gate.arrived(), 2, "one alone, forty together");
    let by_address: Vec<HandleId> = holders(&store).await.into_values().collect();
    assert!(by_address.is_sorted(), "first come, first served: {by_address:?}");
    assert_clean(&store).await;
}

#[tokio::test]
async fn different_wishes_are_not_mixed_up() {
    let store = with_pools(&[
        json!({"cidr": "10.0.0.0/24", "blockSize": 28}),
        json!({"cidr": "10.1.0.0/24", "blockSize": 28}),
    ])
    .await;
    let book = Book::new(store.clone());
    let mut requests = JoinSet::new();
    for number in 0..20 {
        let mut request = one("node-a", &format!("h{number}"));
        let pool = if number % 2 == 0 { "10.0.0.0/24" } else { "10.1.0.0/24" };
        request.pools_v4 = vec![pool.to_owned()];
        let book = book.clone();
        requests.spawn(async move { (pool, book.assign(request).await) });
    }
    for (pool, done) in requests.join_all().await {
        assert!(cidr(pool).contains(done.unwrap().addresses[0].address));
    }
    assert_eq!(holders(&store).await.len(), 20);
    assert_clean(&store).await;
}

#[tokio::test]
async fn nobody_fails_for_another() {
    let store = small().await;
    let taken = Key::namespaced(Kind::WorkloadEndpoint, "shop", "taken");
    (*store).create(taken.clone(), b"{}".to_vec()).await.unwrap();
    let gate = Gate::closed(store.clone());
    let book = Book::new(gate.clone());
    let mut requests = JoinSet::new();
    for number in 0..12 {
        let mut request = one("node-a", &format!("h{number:02}"));
        let own = Key::namespaced(Kind::WorkloadEndpoint, "shop", format!("own-{number}"));
        let taken = taken.clone();
        request.additions = Additions::new(1, move |_| match number {
            3 => Ok(vec![Addition::create(taken.clone(), "{}")]),
            5 => Err("no idea".into()),
            _ => Ok(vec![Addition::create(own.clone(), "{}")]),
        });
        if number == 7 {
            // The same record as its neighbour.
            let key = Key::namespaced(Kind::WorkloadEndpoint, "shop", "own-6");
            request.additions = Additions::new(1, move |_| Ok(vec![Addition::create(key.clone(), "{}")]));
        }
        let book = book.clone();
        requests.spawn(async move { (number, book.assign(request).await) });
        tokio::task::yield_now().await;
    }
    gate.open(100);
    for (number, done) in requests.join_all().await {
        match (number, done) {
            (3, Err(BookError::Addition { key, source: Some(_) })) => assert_eq!(key, taken),
            (5, Err(BookError::Additions(_))) => {}
            (7, Err(BookError::Addition { .. })) => {}
            (_, Ok(grant)) => assert_eq!(grant.addresses.len(), 1),
            (number, Err(error)) => panic!("{number}: {error}"),
        }
    }
    assert_eq!(holders(&store).await.len(), 9);
    assert_clean(&store).await;
}

#[tokio::test]
async fn the_last_addresses_go_to_those_who_came_first() {
    let store = with_pools(&[json!({"cidr": "10.0.0.0/29", "blockSize": 29})]).await;
    let gate = Gate::closed(store.clone());
    let book = Book::new(gate.clone());
    let mut requests = JoinSet::new();
    for number in 0..12 {
        let book = book.clone();
        requests.spawn(async move { (number, book.assign(one("node-a", &format!("h{number}"))).await) });
        tokio::task::yield_now().await;
    }
    gate.open(100);
    for (number, done) in requests.join_all().await {
        match done {
            Ok(_) => assert!(number < 8),
            Err(BookError::Assign(AssignError::Exhausted { .. })) => assert!(number >= 8),
            Err(error) => panic!("{error}"),
        }
    }
    assert_clean(&store).await;
}

#[tokio::test]
async fn who_leaves_the_queue_gets_nothing() {
    let store = small().await;
    let (gate, book, mut requests) = first_at_the_gate(&store).await;
    let waiting = tokio::time::timeout(Duration::from_millis(20), book.assign(one("node-a", "gone"))).await;
    assert!(waiting.is_err(), "it waits for the commit before it");
    gate.open(100);
    requests.join_next().await.unwrap().unwrap().unwrap();
    assign(&book, "node-a", "last").await;
    let held: Vec<HandleId> = holders(&store).await.into_values().collect();
    assert_eq!(held, ["first", "last"]);
    assert_clean(&store).await;
}

#[tokio::test]
async fn what_was_committed_for_someone_who_left_is_given_back() {
    let store = small().await;
    let key = Key::namespaced(Kind::WorkloadEndpoint, "shop", "web");
    let earlier = (*store).create(key.clone(), b"\"earlier\"".to_vec()).await.unwrap();
    let earlier = store::Record { key: key.clone(), value: "\"earlier\"".into(), revision: earlier };
    for given in [false, true] {
        let gate = Gate::closed(store.clone());
        let book = Book::new(gate.clone());
        let record = store.get(&key).await.unwrap().unwrap();
        assert_eq!(record.value, earlier.value);
        let additions = Additions::new(1, move |_| Ok(vec![Addition::replace(&record, "\"ours\"")]));
        let asking = tokio::spawn(async move {
            if given {
                let mut request = book::GivenRequest::new(
                    "node-a",
                    crate::common::owner("gone"),
                    vec![crate::common::address("10.0.0.77")],
                );
                request.additions = additions;
                book.assign_addresses(request).await
            } else {
                let mut request = one("node-a", "gone");
                request.additions = additions;
                book.assign(request).await
            }
        });
        wait_for("its commit", || async { gate.arrived() > 0 }).await;
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        gate.open(100);
        wait_for("it to be given back", || async {
            let record = store.get(&key).await.unwrap().unwrap();
            gate.arrived() > 1 && record.value == earlier.value && holders(&store).await.is_empty()
        })
        .await;
        assert_clean(&store).await;
    }
}

#[tokio::test]
async fn a_release_goes_on_without_its_caller() {
    let store = small().await;
    let book = Book::new(store.clone());
    assign(&book, "node-a", "h").await;
    let gate = Gate::closed(store.clone());
    let book = Book::new(gate.clone());
    let releasing = {
        let book = book.clone();
        tokio::spawn(async move { book.release_handle(HandleRequest::all("h")).await })
    };
    wait_for("its commit", || async { gate.arrived() > 0 }).await;
    releasing.abort();
    gate.open(100);
    wait_for("the release", || async { holders(&store).await.is_empty() }).await;
    assert_clean(&store).await;
}

#[tokio::test]
async fn releases_of_one_block_share_its_write_and_leave_others_alone() {
    let store = small().await;
    let book = Book::new(store.clone());
    let mut addresses = Vec::new();
    for handle in ["a", "b", "c"] {
        addresses.push(assign(&book, "node-a", handle).await);
    }
    let cidr = model::Cidr::containing(addresses[0], 30).unwrap();
    let before = block(&store, cidr).await.unwrap().sequence_number;
    let (a, b) = tokio::join!(
        book.release_handle(HandleRequest::all("a")),
        book.release_handle(HandleRequest::only("b", |_, _, _| true)),
    );
    assert_eq!((a.unwrap().addresses, b.unwrap().addresses), (vec![addresses[0]], vec![addresses[1]]));
    assert_eq!(block(&store, cidr).await.unwrap().sequence_number, before + 1, "written once");
    let none = book.release_handle(HandleRequest::only("c", |_, _, _| false)).await.unwrap();
    assert!(none.addresses.is_empty());
    assert_eq!(holders(&store).await.into_values().collect::<Vec<_>>(), ["c"]);
    assert_clean(&store).await;
}

/// A worker that ends before its time leaves nobody waiting, and the next request has a new one.
#[tokio::test]
async fn a_worker_that_breaks_is_replaced() {
    let store = small().await;
    let (gate, book, mut requests) = first_at_the_gate(&store).await;
    let mut request = one("node-a", "broken");
    request.additions = Additions::new(1, |_| panic!("on purpose"));
    spawn(&mut requests, &book, request);
    spawn(&mut requests, &book, one("node-b", "waiting"));
    queued(&gate, &mut requests, 3).await;
    gate.open(100);
    let (served, closed): (Vec<_>, Vec<_>) = requests.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!((served.len(), closed.len()), (1, 2));
    assert!(closed.iter().all(|done| matches!(done, Err(BookError::Closed))));
    assign(&book, "node-a", "next").await;
    assert_eq!(holders(&store).await.len(), 2);
    assert_clean(&store).await;
}
