//! Bad situations: a clear error or finding each, never a panic, never a wrong release.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use book::{Book, BookError, HandleRequest, Looks, Settings};
use ipam::{AssignError, ReleaseItem, ReleaseRule, Why};
use jiff::{SignedDuration, Timestamp};
use model::ipam::Block;
use model::{AffinityOwner, Cidr, Key, Kind};
use proptest::prelude::*;
use serde_json::{Value, json};
use store::Store;

use crate::common::{
    assert_clean, assign, block, cidr, delete, holders, one, put, put_record, small, wait_for, with_pools,
};
use crate::stores::Gate;

fn block_of(address: std::net::IpAddr) -> Cidr {
    Cidr::containing(address, 30).unwrap()
}

/// Changes a block's JSON behind everyone's back.
async fn spoil(store: &Arc<dyn Store>, cidr: Cidr, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let record = store.get(&Key::Block(cidr)).await.unwrap().unwrap();
    let mut value: Value = serde_json::from_slice(&record.value).unwrap();
    change(&mut value);
    let bytes = serde_json::to_vec(&value).unwrap();
    put_record(store, Key::Block(cidr), bytes.clone()).await;
    bytes
}

#[tokio::test]
async fn a_pool_that_is_deleted_meanwhile_gives_nothing_any_more() {
    let store = small().await;
    let gate = Gate::closed(store.clone());
    let book = Book::new(gate.clone());
    let asking = tokio::spawn(async move { book.assign(one("node-a", "a")).await });
    wait_for("the commit", || async { gate.arrived() > 0 }).await;
    delete(&store, Key::cluster(Kind::IpPool, "pool-0")).await;
    gate.open(100);
    let error = asking.await.unwrap().unwrap_err();
    assert!(matches!(error, BookError::Assign(AssignError::NoPools)), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("plumb apply")), "{:?}", error.hint());
    assert!(holders(&store).await.is_empty());
    assert_clean(&store).await;
}

#[tokio::test]
async fn what_a_pool_has_left_behind_can_be_given_back() {
    let store = small().await;
    let book = Book::new(store.clone());
    let addresses = [assign(&book, "node-a", "a").await, assign(&book, "node-b", "b").await];
    put(&store, Kind::IpPool, "pool-0", json!({"cidr": "10.0.0.0/30", "blockSize": 30})).await;
    let inside = assign(&book, "node-a", "c").await;
    assert!(cidr("10.0.0.0/30").contains(inside), "the pool is smaller now: {inside}");
    delete(&store, Key::cluster(Kind::IpPool, "pool-0")).await;
    for (address, handle) in addresses.into_iter().zip(["a", "b"]) {
        assert_eq!(book.lookup(address).await.unwrap().unwrap().attribute.handle(), Some(&handle.into()));
    }
    book.release_handle(HandleRequest::all("a")).await.unwrap();
    let item = ReleaseItem { address: addresses[1], handle: Some("b".into()), sequence_number: None };
    assert_eq!(book.release_addresses([item]).await.unwrap().addresses, [addresses[1]]);
    book.release_handle(HandleRequest::all("c")).await.unwrap();
    for host in ["node-a", "node-b"] {
        book.release_host(host, ReleaseRule { must_be_empty: true, sequence_number: None }).await.unwrap();
    }
    assert!(holders(&store).await.is_empty());
    assert_clean(&store).await;
}

#[tokio::test]
async fn a_node_that_changes_its_name_finds_its_pods() {
    let store = small().await;
    let before = Book::following(store.clone(), Settings::default(), "old-name");
    let kept = assign(&before, "old-name", "a").await;
    drop(before);
    let after = Book::following(store.clone(), Settings::default(), "new-name");
    after.in_sync().await;
    let new = assign(&after, "new-name", "b").await;
    assert_ne!(block_of(kept), block_of(new), "the old blocks are the old node's");
    assert_eq!(after.release_handle(HandleRequest::all("a")).await.unwrap().addresses, [kept]);
    let rule = ReleaseRule { must_be_empty: true, sequence_number: None };
    assert_eq!(after.release_host("old-name", rule).await.unwrap().len(), 1);
    assert_eq!(block(&store, block_of(kept)).await, None);
    assert_clean(&store).await;
}

/// A clock that a test sets.
fn clock() -> (Arc<AtomicI64>, Settings) {
    let seconds = Arc::new(AtomicI64::new(1_900_000_000));
    let shared = Arc::clone(&seconds);
    let clock = move || Timestamp::from_second(shared.load(Ordering::SeqCst)).unwrap();
    (seconds, Settings { clock: Arc::new(clock), ..Settings::default() })
}

#[tokio::test]
async fn a_clock_that_goes_back_frees_nothing_that_is_held() {
    let store = with_pools(&[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    let (seconds, settings) = clock();
    let book = Book::with_settings(store.clone(), settings);
    let address = assign(&book, "node-a", "a").await;
    let number = book.lookup(address).await.unwrap().unwrap().sequence_number;
    book.release_handle(HandleRequest::all("a")).await.unwrap();
    book.release_host("node-a", ReleaseRule::default()).await.unwrap();
    seconds.fetch_sub(SignedDuration::from_hours(24).as_secs(), Ordering::SeqCst);
    // The block is new, and its numbers are lower than those before.
    assert_eq!(assign(&book, "node-a", "b").await, address);
    let late = ReleaseItem { address, handle: None, sequence_number: Some(number) };
    let released = book.release_addresses([late]).await.unwrap();
    assert!(matches!(released.unreleased[0].why, Why::OtherNumber(_)), "{released:?}");
    assert_eq!(holders(&store).await.len(), 1);

    book.change_config(|config| config.ip_cooldown_seconds = 60).await.unwrap();
    book.release_handle(HandleRequest::all("b")).await.unwrap();
    seconds.fetch_sub(3600, Ordering::SeqCst);
    // Released in the future, as the clock sees it now: the delay starts anew, and does end.
    assert_eq!(book.settle_cooldown().await.unwrap(), 1);
    seconds.fetch_add(59, Ordering::SeqCst);
    assert_eq!(book.settle_cooldown().await.unwrap(), 0);
    seconds.fetch_add(1, Ordering::SeqCst);
    assert_eq!(book.settle_cooldown().await.unwrap(), 1);
    assert_clean(&store).await;
}

/// What is wrong with the block, and a word of what is said about it.
type Spoiler = (&'static str, fn(&mut Value));

const SPOILERS: [Spoiler; 5] = [
    ("refers to attribute 99", |block| block["allocations"][0] = json!(99)),
    ("listed twice", |block| block["unallocated"] = json!([1, 1, 2, 3])),
    ("both allocated and unallocated", |block| block["unallocated"] = json!([0, 1, 2, 3])),
    ("has 4 addresses", |block| block["allocations"] = json!([0])),
    ("it says it is", |block| block["cidr"] = json!("10.9.9.0/30")),
];

#[tokio::test]
async fn nothing_is_given_from_or_released_into_a_block_that_contradicts_itself() {
    for (word, spoiler) in SPOILERS {
        for is_warm in [false, true] {
            let store = with_pools(&[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
            let book = match is_warm {
                true => Book::following(store.clone(), Settings::default(), "node-a"),
                false => Book::new(store.clone()),
            };
            book.in_sync().await;
            let address = assign(&book, "node-a", "a").await;
            let spoilt = spoil(&store, block_of(address), spoiler).await;
            let error = book.assign(one("node-a", "b")).await.unwrap_err().to_string();
            assert!(error.contains(word), "{word}: {error}");
            let released = book.release_handle(HandleRequest::all("a")).await.unwrap();
            assert!(released.addresses.is_empty(), "{word}");
            assert!(released.corrupt[0].to_string().contains(word), "{word}: {:?}", released.corrupt);
            let item = ReleaseItem { address, handle: None, sequence_number: None };
            let released = book.release_addresses([item]).await.unwrap();
            assert!(released.unreleased[0].to_string().contains(word), "{word}: {released:?}");
            assert!(book.lookup(address).await.unwrap_err().to_string().contains(word));
            let given_up = book.release_host("node-a", ReleaseRule::default()).await.unwrap();
            assert!(given_up[0].result.is_err(), "{word}: {given_up:?}");
            book.recover(Looks::Once).await.unwrap();
            let left = store.get(&Key::Block(block_of(address))).await.unwrap().unwrap();
            assert_eq!(left.value, spoilt, "{word}: it is left as it is");
        }
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_named() {
    let store = small().await;
    let book = Book::new(store.clone());
    let address = assign(&book, "node-a", "a").await;
    put_record(&store, Key::Block(block_of(address)), b"{not JSON".to_vec()).await;
    let other = assign(&book, "node-a", "b").await;
    assert_ne!(block_of(other), block_of(address), "there are other blocks");
    let released = book.release_handle(HandleRequest::all("a")).await.unwrap();
    assert!(released.corrupt[0].to_string().starts_with("IPAMBlock("), "{released:?}");
    let (holding, _) = book.held(&"a".into(), Vec::new()).await.unwrap();
    assert_eq!((holding.addresses.len(), holding.corrupt.len()), (0, 1));
    let recovery = book.recover(Looks::Once).await.unwrap();
    assert_eq!(recovery.unreadable.len(), 1);
    assert!(recovery.repaired.is_empty(), "nothing that speaks of it is touched: {recovery:?}");

    put_record(&store, Key::Handle("c".into()), b"[]".to_vec()).await;
    let error = book.assign(one("node-a", "c")).await.unwrap_err();
    assert!(error.to_string().starts_with("IPAMHandle(c) contradicts itself"), "{error}");
    put_record(&store, Key::IpamConfig, b"7".to_vec()).await;
    let error = book.assign(one("node-a", "d")).await.unwrap_err();
    assert!(matches!(error, BookError::Unreadable(_)), "{error}");
    delete(&store, Key::IpamConfig).await;
    put(&store, Kind::IpPool, "pool-0", json!({"cidr": "ten", "blockSize": 30})).await;
    let error = book.assign(one("node-a", "d")).await.unwrap_err();
    assert_eq!(error.to_string(), "IPPool(pool-0): cidr \"ten\" cannot be understood");
    book.release_handle(HandleRequest::all("b")).await.unwrap();
    assert!(!holders_but(&store, block_of(address)).await.contains(&other), "a broken pool stops no release");
}

/// Addresses that are held, apart from those in a block that cannot be read.
async fn holders_but(store: &Arc<dyn Store>, cidr: Cidr) -> Vec<std::net::IpAddr> {
    let mut held = Vec::new();
    for record in store.list_all(model::KeyRange::Blocks(model::IpVersion::V4)).await.unwrap().0 {
        if record.key != Key::Block(cidr) {
            let Key::Block(cidr) = record.key else { continue };
            let block = Block::decode(&cidr, &record.value).unwrap();
            let taken = (0..block.capacity()).filter(|ordinal| block.attribute(*ordinal).is_some());
            held.extend(taken.filter_map(|ordinal| block.address(ordinal)));
        }
    }
    held
}

#[tokio::test]
async fn an_affinity_that_cannot_be_read_costs_only_its_block() {
    let store = small().await;
    let book = Book::new(store.clone());
    let first = assign(&book, "node-a", "a").await;
    let owner = AffinityOwner::Host("node-a".to_owned());
    put_record(&store, Key::Affinity { owner, block: block_of(first) }, b"[7]".to_vec()).await;
    let second = assign(&book, "node-a", "b").await;
    assert_ne!(block_of(first), block_of(second));
    book.release_handle(HandleRequest::all("a")).await.unwrap();
    assert_eq!(holders(&store).await.len(), 1);
}

/// Anything at all in any of the records: no panic, and an address that is held by a readable block stays held.
#[test]
fn whatever_the_records_hold_nothing_breaks() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let value = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        "\\PC{0,40}".prop_map(String::into_bytes),
        r#"\{"(cidr|block|state|spec|deleted|allocations|unallocated|attributes)":("[a-z0-9./:]{0,12}"|\[(null|0|7)?\]|\{\}|null|true|9{1,20})\}"#
            .prop_map(String::into_bytes),
    ];
    let case = (0usize..6, value);
    let config = ProptestConfig { cases: testkit::count(64, 1000) as u32, ..ProptestConfig::default() };
    proptest!(config, |((which, value) in case)| {
        runtime.block_on(async {
            let store = small().await;
            let settings = Settings { patience: std::time::Duration::from_millis(20), ..Settings::default() };
            let book = Book::with_settings(store.clone(), settings);
            let kept = assign(&book, "node-b", "kept").await;
            let address = assign(&book, "node-a", "a").await;
            let owner = AffinityOwner::Host("node-a".to_owned());
            let key = [
                Key::Block(block_of(address)),
                Key::Handle("a".into()),
                Key::Affinity { owner, block: block_of(address) },
                Key::IpamConfig,
                Key::cluster(Kind::ClusterInformation, "default"),
                Key::cluster(Kind::Node, "node-a"),
            ][which].clone();
            put_record(&store, key, value).await;
            let _ = book.assign(one("node-a", "b")).await;
            let _ = book.assign(one("node-a", "a")).await;
            let _ = book.held(&"a".into(), Vec::new()).await;
            let _ = book.lookup(address).await;
            let _ = book.release_handle(HandleRequest::all("a")).await;
            let _ = book.release_host("node-a", ReleaseRule::default()).await;
            let _ = book.settle_cooldown().await;
            let _ = book.usage().await;
            let _ = book.recover(Looks::Once).await;
            let holder = book.lookup(kept).await.unwrap().unwrap();
            assert_eq!(holder.attribute.handle(), Some(&"kept".into()));
        });
    });
}
