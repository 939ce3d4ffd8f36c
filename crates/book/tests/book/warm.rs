//! What a long-lived agent remembers: few round trips, and nothing wrong when it is out of date.

use std::sync::Arc;
use std::time::Duration;

use book::{Book, BookError, GivenRequest, HandleRequest, Settings};
use ipam::AssignError;
use model::{Cidr, Key, Kind};
use serde_json::json;
use store::wrap::{CountingStore, Counts};
use store::{MemoryStore, Store};

use crate::common::{
    assert_clean, assign, block, cidr, delete, holders, one, owner, put, put_labelled, put_pools, put_record,
    small, wait_for, with_pools,
};

/// A book that remembers, on a store that counts.
struct Agent {
    book: Book,
    counting: Arc<CountingStore>,
}

impl Agent {
    async fn start(store: &Arc<dyn Store>, node: &str) -> Agent {
        let counting = Arc::new(CountingStore::new(store.clone()));
        let book = Book::following(counting.clone(), Settings::default(), node);
        book.in_sync().await;
        Agent { book, counting }
    }

    /// What the store is asked for meanwhile.
    async fn count<T>(&self, work: impl Future<Output = T>) -> (T, Counts) {
        self.book.at_rest().await;
        let before = self.counting.counts();
        let done = work.await;
        self.book.at_rest().await;
        (done, self.counting.counts() - before)
    }
}

#[tokio::test]
async fn given_addresses_need_no_look_at_pools_and_settings() {
    let store = small().await;
    let agent = Agent::start(&store, "node-a").await;
    let first = assign(&agent.book, "node-a", "first").await;
    let std::net::IpAddr::V4(v4) = first else { panic!("{first}") };
    let free = std::net::Ipv4Addr::from(u32::from(v4) ^ 1).into();
    let given = |handle: &str| GivenRequest::new("node-a", owner(handle), vec![free]);
    let (grant, remembering) = agent.count(agent.book.assign_addresses(given("a"))).await;
    assert_eq!(grant.unwrap().addresses[0].address, free);
    let (taken, _) = agent.count(agent.book.assign_addresses(given("b"))).await;
    assert!(matches!(taken, Err(BookError::Assign(AssignError::Taken { .. }))), "{taken:?}");
    agent.book.release_handle(HandleRequest::all("a")).await.unwrap();
    let counting = Arc::new(CountingStore::new(store.clone()));
    Book::new(counting.clone()).assign_addresses(given("a")).await.unwrap();
    let reading = counting.counts();
    assert!(remembering.round_trips() < reading.round_trips(), "{remembering:?} beside {reading:?}");
    assert_clean(&store).await;
}

/// Its pods may live for long.
#[tokio::test]
async fn a_block_in_use_of_a_pool_that_deselects_the_node_is_not_looked_at_each_time() {
    let pools = [
        json!({"cidr": "10.0.0.0/24", "blockSize": 30, "nodeSelector": "!has(away)"}),
        json!({"cidr": "10.1.0.0/24", "blockSize": 26}),
    ];
    let store = with_pools(&pools).await;
    let agent = Agent::start(&store, "node-a").await;
    let kept = loop {
        let address = assign(&agent.book, "node-a", "kept").await;
        if cidr("10.0.0.0/24").contains(address) {
            break address;
        }
        agent.book.release_handle(HandleRequest::all("kept")).await.unwrap();
    };
    put_labelled(&store, Kind::Node, "node-a", &[("away", "")]).await;
    let is_followed = || async {
        agent.book.release_handle(HandleRequest::all("next")).await.unwrap();
        cidr("10.1.0.0/24").contains(assign(&agent.book, "node-a", "next").await)
    };
    wait_for("the label", is_followed).await;
    for handle in ["b", "c"] {
        assign(&agent.book, "node-a", handle).await;
    }
    let (_, counts) = agent.count(assign(&agent.book, "node-a", "d")).await;
    assert_eq!(counts.round_trips(), 1, "{counts:?}");
    agent.book.release_handle(HandleRequest::all("kept")).await.unwrap();
    assert_eq!(block(&store, block_of(kept)).await, None, "it goes with its last address all the same");
    assert_clean(&store).await;
}

fn block_of(address: std::net::IpAddr) -> Cidr {
    Cidr::containing(address, 30).unwrap()
}

#[tokio::test]
async fn an_address_out_of_an_own_block_is_one_commit() {
    let store = small().await;
    let agent = Agent::start(&store, "node-a").await;
    assign(&agent.book, "node-a", "first").await;
    for number in 0..3 {
        let (_, counts) = agent.count(assign(&agent.book, "node-a", &format!("h{number}"))).await;
        assert_eq!((counts.round_trips(), counts.commits), (1, 1), "{counts:?}");
        assert_eq!(counts.writes, 2, "the block and the handle");
    }
    let (_, counts) = agent.count(agent.book.release_handle(HandleRequest::all("h1"))).await;
    assert_eq!((counts.round_trips(), counts.commits), (1, 1), "{counts:?}");
    let (_, counts) = agent.count(assign(&agent.book, "node-a", "again")).await;
    assert_eq!(counts.round_trips(), 1);
    assert_clean(&store).await;
}

#[tokio::test]
async fn a_handle_that_others_have_changed_is_given_back_as_it_is_now() {
    let store = small().await;
    let agent = Agent::start(&store, "node-a").await;
    for handle in ["grown", "gone", "kept"] {
        assign(&agent.book, "node-a", handle).await;
    }
    let stranger = Book::new(store.clone());
    let mut more = one("node-a", "grown");
    more.handle_may_exist = true;
    stranger.assign(more).await.unwrap();
    stranger.release_handle(HandleRequest::all("gone")).await.unwrap();
    let (given_back, counts) = agent.count(agent.book.release_handle(HandleRequest::all("grown"))).await;
    assert_eq!(given_back.unwrap().addresses.len(), 2, "what it holds now: {counts:?}");
    let given_back = agent.book.release_handle(HandleRequest::all("gone")).await.unwrap();
    assert!(given_back.addresses.is_empty());
    assert_eq!(holders(&store).await.len(), 1);
    assert_clean(&store).await;
}

#[tokio::test]
async fn an_agent_that_starts_anew_reads_its_blocks_once() {
    let store = small().await;
    let before = Book::new(store.clone());
    for number in 0..6 {
        assign(&before, "node-a", &format!("h{number}")).await;
    }
    let agent = Agent::start(&store, "node-a").await;
    let (_, counts) = agent.count(assign(&agent.book, "node-a", "a")).await;
    assert_eq!((counts.round_trips(), counts.reads), (2, 1), "both blocks in one read: {counts:?}");
    let (_, counts) = agent.count(assign(&agent.book, "node-a", "b")).await;
    assert_eq!(counts.round_trips(), 1);
    assert_eq!(holders(&store).await.len(), 8);
    assert_clean(&store).await;
}

#[tokio::test]
async fn a_block_claimed_just_now_is_known_at_once() {
    let store = small().await;
    let agent = Agent::start(&store, "node-a").await;
    let mut last = None;
    for number in 0..12 {
        let (address, counts) = agent.count(assign(&agent.book, "node-a", &format!("h{number}"))).await;
        let is_new_block = last != Some(block_of(address));
        last = Some(block_of(address));
        if !is_new_block {
            assert_eq!(counts.round_trips(), 1, "number {number}");
        }
    }
    let affinities = store.list_all(model::KeyRange::HostAffinities).await.unwrap().0;
    assert_eq!(affinities.len(), 3, "no block was claimed twice over");
    assert_clean(&store).await;
}

/// Blocks of four: every fourth address needs a new one.
#[tokio::test]
async fn a_claim_needs_no_look_any_more_once_someone_has_looked_ahead() {
    let store = small().await;
    let agent = Agent::start(&store, "node-a").await;
    assign(&agent.book, "node-a", "first").await;
    let (mut blocks, mut reads) = (1, 0);
    for number in 0..32 {
        let (_, counts) = agent.count(assign(&agent.book, "node-a", &format!("h{number}"))).await;
        assert_eq!(counts.commits, 1, "number {number}: {counts:?}");
        blocks += u64::from(counts.writes > 2);
        reads += counts.reads;
    }
    assert_eq!(blocks, 9);
    assert!(reads <= 2, "a look ahead serves several claims; there were {reads}");
    assert_clean(&store).await;
}

#[tokio::test]
async fn a_block_that_was_taken_since_someone_looked_ahead_costs_one_more_attempt() {
    let store = small().await;
    let agent = Agent::start(&store, "node-a").await;
    let mut given = vec![assign(&agent.book, "node-a", "first").await];
    agent.book.at_rest().await;
    // Others take every block that there is but two.
    let own = block_of(given[0]);
    let last = cidr("10.0.0.248/29");
    assert!(!last.contains_cidr(&own));
    let owner = model::AffinityOwner::Host("other".to_owned());
    for number in 0..62u32 {
        let block = Cidr::containing(std::net::IpAddr::V4((0x0a00_0000 + number * 4).into()), 30).unwrap();
        if block != own {
            let block = model::ipam::Block::new(block, Some(&owner), 1);
            put_record(&store, block.key(), block.encode()).await;
        }
    }
    let mut commits = 0;
    for number in 0..11 {
        let (address, counts) = agent.count(assign(&agent.book, "node-a", &format!("h{number}"))).await;
        commits += counts.commits;
        given.push(address);
    }
    assert_eq!(commits, 12, "one attempt that failed is enough to look again");
    assert_eq!(given.iter().filter(|address| last.contains(**address)).count(), 8);
    assert_eq!(holders(&store).await.len(), 12, "nobody shares");
}

#[tokio::test]
async fn a_strangers_write_costs_one_more_attempt() {
    let store = small().await;
    let agent = Agent::start(&store, "node-a").await;
    assign(&agent.book, "node-a", "a").await;
    // Another process on the same node.
    let stranger = Book::new(store.clone());
    let theirs = assign(&stranger, "node-a", "b").await;
    let (ours, counts) = agent.count(assign(&agent.book, "node-a", "c")).await;
    assert_ne!(ours, theirs);
    assert_eq!(block_of(ours), block_of(theirs));
    assert_eq!((counts.commits, counts.reads), (2, 2), "lost, looked, won: {counts:?}");
    let (_, counts) = agent.count(assign(&agent.book, "node-a", "d")).await;
    assert_eq!(counts.round_trips(), 1, "and all is well again");
    stranger.release_handle(HandleRequest::all("b")).await.unwrap();
    agent.book.release_handle(HandleRequest::all("c")).await.unwrap();
    assert_eq!(holders(&store).await.len(), 2);
    assert_clean(&store).await;
}

#[tokio::test]
async fn nobody_is_refused_for_what_is_only_remembered() {
    let store = with_pools(&[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    let agent = Agent::start(&store, "node-a").await;
    for handle in ["a", "b", "c", "d"] {
        assign(&agent.book, "node-a", handle).await;
    }
    assert!(agent.book.assign(one("node-a", "e")).await.is_err());
    Book::new(store.clone()).release_handle(HandleRequest::all("b")).await.unwrap();
    assign(&agent.book, "node-a", "e").await;
    assert_clean(&store).await;
}

#[tokio::test]
async fn pools_settings_and_the_lock_are_followed() {
    let store = small().await;
    let agent = Agent::start(&store, "node-a").await;
    assign(&agent.book, "node-a", "a").await;
    put(&store, Kind::IpPool, "pool-0", json!({"cidr": "10.0.0.0/24", "blockSize": 30, "disabled": true}))
        .await;
    let error = agent.book.assign(one("node-a", "b")).await.unwrap_err();
    assert!(matches!(error, BookError::Assign(AssignError::NoPoolServes { .. })), "{error}");
    delete(&store, Key::cluster(Kind::IpPool, "pool-0")).await;
    let error = agent.book.assign(one("node-a", "b")).await.unwrap_err();
    assert!(matches!(error, BookError::Assign(AssignError::NoPools)), "{error}");
    put_pools(&store, &[json!({"cidr": "10.9.0.0/24", "blockSize": 30})]).await;
    let moved = assign(&agent.book, "node-a", "b").await;
    assert!(cidr("10.9.0.0/24").contains(moved), "{moved}");
    put(&store, Kind::ClusterInformation, "default", json!({"datastoreReady": false})).await;
    assert!(matches!(agent.book.assign(one("node-a", "c")).await, Err(BookError::Locked)));
    put(&store, Kind::ClusterInformation, "default", json!({"datastoreReady": true})).await;
    assign(&agent.book, "node-a", "c").await;
    let strict = br#"{"strict_affinity":true}"#;
    put_record(&store, Key::IpamConfig, strict.to_vec()).await;
    assign(&agent.book, "node-a", "d").await;
    assert_clean(&store).await;
}

#[tokio::test]
async fn lost_history_is_listed_again() {
    let memory = Arc::new(MemoryStore::with_history(4));
    let store: Arc<dyn Store> = memory.clone();
    put_pools(&store, &[json!({"cidr": "10.0.0.0/24", "blockSize": 30})]).await;
    let agent = Agent::start(&store, "node-a").await;
    assign(&agent.book, "node-a", "a").await;
    // More than the store remembers, and all of it before the watches get a word.
    for round in 0..20 {
        put(&store, Kind::IpPool, "other", json!({"cidr": "10.9.0.0/24", "disabled": round % 2 == 0})).await;
    }
    delete(&store, Key::cluster(Kind::IpPool, "other")).await;
    put(
        &store,
        Kind::IpPool,
        "pool-0",
        json!({"cidr": "10.0.0.0/24", "blockSize": 30, "nodeSelector": "has(x)"}),
    )
    .await;
    let error = agent.book.assign(one("node-a", "b")).await.unwrap_err();
    assert!(matches!(error, BookError::Assign(AssignError::NoPoolServes { .. })), "{error}");
    put(&store, Kind::IpPool, "pool-0", json!({"cidr": "10.0.0.0/24", "blockSize": 30})).await;
    agent.book.in_sync().await;
    assign(&agent.book, "node-a", "b").await;
    wait_for("one commit again", || async {
        let handle = format!("h{:?}", std::time::Instant::now());
        let (_, counts) = agent.count(assign(&agent.book, "node-a", &handle)).await;
        agent.book.release_handle(HandleRequest::all(handle)).await.unwrap();
        counts.round_trips() == 1
    })
    .await;
    assert_clean(&store).await;
}

#[tokio::test]
async fn own_labels_are_followed_and_those_of_a_namesake_are_not() {
    let store = with_pools(&[
        json!({"cidr": "10.0.0.0/24", "blockSize": 30, "nodeSelector": "rack == 'a'"}),
        json!({"cidr": "10.1.0.0/24", "blockSize": 30, "nodeSelector": "rack == 'b'"}),
    ])
    .await;
    let label = |name: &str, rack: &str| {
        let value = format!(
            r#"{{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}","labels":{{"rack":"{rack}"}}}}}}"#
        );
        (Key::cluster(Kind::Node, name), value.into_bytes())
    };
    let (key, value) = label("node-1", "a");
    put_record(&store, key, value).await;
    let agent = Agent::start(&store, "node-1").await;
    let (key, value) = label("node-10", "b");
    put_record(&store, key, value).await;
    let first = assign(&agent.book, "node-1", "a").await;
    assert!(cidr("10.0.0.0/24").contains(first));
    let (key, value) = label("node-1", "b");
    put_record(&store, key, value).await;
    // Labels are not part of a commit's conditions: the change counts once it has been seen.
    wait_for("the new label to count", || async {
        let handle = format!("h{:?}", std::time::Instant::now());
        let address = assign(&agent.book, "node-1", &handle).await;
        agent.book.release_handle(HandleRequest::all(handle)).await.unwrap();
        cidr("10.1.0.0/24").contains(address)
    })
    .await;
    agent.book.release_handle(HandleRequest::all("a")).await.unwrap();
    assert_clean(&store).await;
}

/// The cost does not depend on how many blocks there are in the pool.
#[tokio::test]
async fn ten_thousand_blocks_cost_as_much_as_one() {
    let store = with_pools(&[json!({"cidr": "10.0.0.0/8", "blockSize": 26})]).await;
    let agent = Agent::start(&store, "node-a").await;
    let (_, first) = agent.count(assign(&agent.book, "node-a", "a")).await;
    let (_, alone) = agent.count(assign(&agent.book, "node-a", "b")).await;
    let blocks = testkit::count(1_000, 10_000);
    let owner = model::AffinityOwner::Host("other".to_owned());
    let others: Vec<_> = (0..blocks)
        .map(|number| {
            model::Cidr::containing(std::net::IpAddr::V4((0x0a00_0000 + number as u32 * 64).into()), 26)
                .unwrap()
        })
        .collect();
    for some in others.chunks(100) {
        let create = |cidr: &Cidr| {
            let block = model::ipam::Block::new(*cidr, Some(&owner), 1);
            store::Change::create(block.key(), block.encode())
        };
        let mut changes: Vec<_> = some.iter().map(create).collect();
        for index in (0..changes.len()).rev() {
            if store.get(&changes[index].key).await.unwrap().is_some() {
                changes.remove(index);
            }
        }
        store.commit(changes).await.unwrap();
    }
    let (_, crowded) = agent.count(assign(&agent.book, "node-a", "c")).await;
    assert_eq!(crowded, alone);
    let fresh = Agent::start(&store, "node-b").await;
    let (_, claimed) = fresh.count(assign(&fresh.book, "node-b", "d")).await;
    assert!(claimed.round_trips() <= first.round_trips() + 3, "{claimed:?} beside {first:?}");
    assert!(claimed.pages == 0, "no list of blocks: {claimed:?}");
}

#[tokio::test]
async fn requests_for_other_nodes_are_served_too() {
    let store = small().await;
    let agent = Agent::start(&store, "node-a").await;
    let ours = assign(&agent.book, "node-a", "a").await;
    let theirs = assign(&agent.book, "node-b", "b").await;
    assert_ne!(block_of(ours), block_of(theirs));
    assert_clean(&store).await;
}

#[tokio::test]
async fn an_agent_that_ends_follows_nothing_any_more() {
    let store = small().await;
    let counting = Arc::new(CountingStore::new(store.clone()));
    let shared: Arc<dyn Store> = counting.clone();
    let book = Book::following(shared.clone(), Settings::default(), "node-a");
    book.in_sync().await;
    drop(book);
    let ended = || async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Arc::strong_count(&counting) == 2
    };
    wait_for("the watches to end", ended).await;
}
