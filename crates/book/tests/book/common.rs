//! A small cluster on a store, and what must hold of its books.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use book::load::{Progress, books};
use book::{AssignRequest, Book};
use ipam::{Owner, recover};
use model::ipam::Block;
use model::{Cidr, HandleId, IpVersion, Key, Kind, Resource};
use serde_json::{Value, json};
use store::wrap::StepwiseStore;
use store::{Change, MemoryStore, Store};

pub(crate) fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// The store without transactions.
pub(crate) fn one_by_one(store: Arc<dyn Store>) -> Arc<dyn Store> {
    if store.capabilities().atomic_commits { Arc::new(StepwiseStore::new(store)) } else { store }
}

/// A store in memory with pools called `pool-0`, `pool-1` …
pub(crate) async fn with_pools(specs: &[Value]) -> Arc<dyn Store> {
    let store = memory();
    put_pools(&store, specs).await;
    store
}

/// 256 addresses in blocks of four.
pub(crate) async fn small() -> Arc<dyn Store> {
    with_pools(&[json!({"cidr": "10.0.0.0/24", "blockSize": 30})]).await
}

pub(crate) async fn put_pools(store: &Arc<dyn Store>, specs: &[Value]) {
    for (position, spec) in specs.iter().enumerate() {
        put(store, Kind::IpPool, &format!("pool-{position}"), spec.clone()).await;
    }
}

/// Creates or replaces a resource of the cluster.
pub(crate) async fn put(store: &Arc<dyn Store>, kind: Kind, name: &str, spec: Value) {
    let mut resource = Resource::new(kind, name);
    resource.body.insert("spec".to_owned(), spec);
    put_record(store, resource.key(), resource.encode()).await;
}

/// A resource of the cluster with labels and nothing else.
pub(crate) async fn put_labelled(store: &Arc<dyn Store>, kind: Kind, name: &str, labels: &[(&str, &str)]) {
    let mut resource = Resource::new(kind, name);
    resource.metadata.labels =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    put_record(store, resource.key(), resource.encode()).await;
}

pub(crate) async fn put_record(store: &Arc<dyn Store>, key: Key, value: impl Into<Vec<u8>>) {
    let value = value.into();
    let change = match store.get(&key).await.unwrap() {
        Some(record) => Change::update(key, value, record.revision),
        None => Change::create(key, value),
    };
    store.commit(vec![change]).await.unwrap();
}

pub(crate) async fn delete(store: &Arc<dyn Store>, key: Key) {
    let record = store.get(&key).await.unwrap().unwrap();
    store.commit(vec![Change::delete(key, record.revision)]).await.unwrap();
}

pub(crate) async fn block(store: &Arc<dyn Store>, cidr: Cidr) -> Option<Block> {
    let record = store.get(&Key::Block(cidr)).await.unwrap()?;
    Some(Block::decode(&cidr, &record.value).unwrap())
}

pub(crate) fn owner(handle: &str) -> Owner {
    Owner { handle: handle.into(), attributes: BTreeMap::new() }.with("pod", handle)
}

pub(crate) fn one(host: &str, handle: &str) -> AssignRequest {
    AssignRequest::new(host, owner(handle), &[IpVersion::V4])
}

/// One address for a handle.
pub(crate) async fn assign(book: &Book, host: &str, handle: &str) -> IpAddr {
    book.assign(one(host, handle)).await.unwrap().addresses[0].address
}

/// Who holds which address, as the blocks say. No two hold the same.
pub(crate) async fn holders(store: &Arc<dyn Store>) -> BTreeMap<IpAddr, HandleId> {
    let books = books(&**store, &Progress::default()).await.unwrap();
    let mut holders = BTreeMap::new();
    for block in books.blocks.values().map(|stored| &stored.value) {
        for ordinal in 0..block.capacity() {
            let Some(handle) = block.attribute(ordinal).and_then(|attribute| attribute.handle()) else {
                continue;
            };
            let earlier = holders.insert(block.address(ordinal).unwrap(), handle.to_owned());
            assert_eq!(earlier, None, "{} has two holders", block.address(ordinal).unwrap());
        }
    }
    holders
}

/// Handles, affinities and blocks say the same, and nothing is left half done.
pub(crate) async fn assert_clean(store: &Arc<dyn Store>) {
    let books = books(&**store, &Progress::default()).await.unwrap();
    assert_eq!(books.unreadable, []);
    let faults: Vec<_> = recover(&books).into_iter().map(|repair| repair.fault).collect();
    assert_eq!(faults, []);
    holders(store).await;
}

/// Waits for a state, never for a duration.
pub(crate) async fn wait_for<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let deadline = std::time::Instant::now() + testkit::PATIENCE;
    while !is_so().await {
        assert!(std::time::Instant::now() < deadline, "waited too long for {what}");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
