//! Full pools on stores in which every block that is read is a request: few of them, and space is found as soon as there is any.

use std::net::IpAddr;
use std::sync::Arc;

use book::{Book, BookError, HandleRequest, Settings};
use ipam::{AssignError, BlockOrder, Reservations};
use model::ipam::Block;
use model::{AffinityOwner, Cidr, Key};
use serde_json::json;
use store::Store;
use store::wrap::{CountingStore, Counts};

use crate::common::{cidr, memory, one, one_by_one, owner, put_pools, put_record};
use crate::kubernetes;

const NODE: &str = "node-a";

/// Blocks of four addresses, all of them another node's and in use.
async fn fill(store: &Arc<dyn Store>, pool: &str) -> Vec<Cidr> {
    put_pools(store, &[json!({"cidr": pool, "blockSize": 30})]).await;
    let blocks: Vec<Cidr> = BlockOrder::new(cidr(pool), 30, NODE, &Reservations::default()).collect();
    for block in &blocks {
        put_block(store, *block, 4).await;
    }
    blocks
}

/// Another node's block with so many addresses in use.
async fn put_block(store: &Arc<dyn Store>, network: Cidr, used: usize) {
    let mut block = Block::new(network, Some(&AffinityOwner::Host("node-b".to_owned())), 1);
    ipam::take(&mut block, &owner("b"), used, &Reservations::default());
    put_record(store, block.key(), block.encode()).await;
}

/// What an ADD comes to, and what it asks of the store.
async fn add(book: &Book, counting: &CountingStore, handle: &str) -> (Option<IpAddr>, Counts) {
    book.at_rest().await;
    let before = counting.counts();
    let granted = match book.assign(one(NODE, handle)).await {
        Ok(grant) => Some(grant.addresses[0].address),
        Err(BookError::Assign(AssignError::Exhausted { .. })) => None,
        Err(error) => panic!("{error}"),
    };
    book.at_rest().await;
    (granted, counting.counts() - before)
}

/// What an ADD starts from where nothing is remembered: settings, pools, node, affinities, its handle.
const GROUND_MAX: u64 = 10;

/// An agent's ADDs on a full pool, and as soon as something in it becomes free. `pages`: how many a list in brief has.
async fn check_agent(store: &Arc<dyn Store>, pool: &str, pages: u64) -> Counts {
    let blocks = fill(store, pool).await;
    let counting = Arc::new(CountingStore::new(one_by_one(store.clone())));
    let book = Book::following(counting.clone(), Settings::default(), NODE);
    book.in_sync().await;
    assert_eq!(add(&book, &counting, "first").await.0, None);
    // Decided on what is remembered, and once more on what was read.
    let few = GROUND_MAX + 2 * pages;
    let (full, cost) = add(&book, &counting, "second").await;
    assert!(full.is_none() && cost.round_trips() <= few, "{full:?} {cost:?}");

    let last = *blocks.last().unwrap();
    put_block(store, last, 3).await;
    let (found, freed) = add(&book, &counting, "third").await;
    assert!(found.is_some_and(|address| last.contains(address)), "{found:?}");
    assert!(freed.round_trips() <= few, "{freed:?}");
    assert_eq!(add(&book, &counting, "fourth").await.0, None, "it was the only one");

    let record = store.get(&Key::Block(blocks[40])).await.unwrap().unwrap();
    store.delete(record.key, record.revision).await.unwrap();
    let (found, cost_of_claim) = add(&book, &counting, "fifth").await;
    assert!(found.is_some_and(|address| blocks[40].contains(address)), "{found:?}");
    assert!(cost_of_claim.round_trips() <= few, "{cost_of_claim:?}");
    for handle in ["third", "fifth"] {
        assert_eq!(book.release_handle(HandleRequest::all(handle)).await.unwrap().addresses.len(), 1);
    }
    cost
}

#[tokio::test]
async fn an_add_on_a_full_pool_costs_few_requests_however_many_blocks_there_are() {
    let small = check_agent(&memory(), "10.0.0.0/24", 1).await;
    let large = check_agent(&memory(), "10.0.0.0/20", 2).await;
    assert_eq!((large - small).gets, 0, "{small:?} {large:?}");
}

#[tokio::test]
async fn a_single_call_on_a_full_pool_lists_it_after_a_few_looks() {
    let store = memory();
    let blocks = fill(&store, "10.0.0.0/20").await;
    let counting = Arc::new(CountingStore::new(one_by_one(store.clone())));
    let book = Book::new(counting.clone());
    let (full, cost) = add(&book, &counting, "first").await;
    assert!(full.is_none() && cost.round_trips() <= GROUND_MAX + 21 + 3, "{full:?} {cost:?}");
    let last = *blocks.last().unwrap();
    put_block(&store, last, 3).await;
    let (found, _) = add(&book, &counting, "second").await;
    assert!(found.is_some_and(|address| last.contains(address)), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubernetes_tells_a_full_pool_in_few_requests() {
    const TEST: &str = "crowded::kubernetes_tells_a_full_pool_in_few_requests";
    let Some((cluster, _turn)) = kubernetes::take_turn(TEST).await else { return };
    cluster.put_node(NODE, &[]);
    let store = kubernetes::connect(cluster.kubeconfig()).await;
    let cost = check_agent(&store, "10.0.0.0/24", 1).await;
    testkit::note(TEST, &format!("requests of an ADD on a full pool of 64 blocks: {}", cost.round_trips()));
}
