//! `plumb datastore copy` between real stores.
//!
//! * `round_trip`: SQLite to etcd to Kubernetes and back, in both of Calico's layouts.
//! * `kubernetes`: what a cluster cannot keep.
//! * `refusals`: bad input, and destinations that are not empty.
//! * `killed`: processes that end on the way.

mod cluster;
mod killed;
mod kubernetes;
mod refusals;
mod round_trip;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Key, KeyRange};
use serde_json::Value;
use store::Store;

use crate::harness::{Desk, Ran, runtime};

/// A copy between two stores, with more flags.
fn copy(desk: &Desk, from: &str, to: &str, flags: &[&str]) -> Ran {
    let args = ["datastore", "copy", "--from", from, "--to", to];
    desk.plumb(&args.iter().chain(flags).copied().collect::<Vec<_>>())
}

/// Every record, as JSON.
fn records(store: &Arc<dyn Store>) -> BTreeMap<Key, Value> {
    let (records, _) = runtime().block_on(store.list_all(KeyRange::Everything)).unwrap();
    let parsed = |value: &[u8]| serde_json::from_slice(value).unwrap();
    records.into_iter().map(|record| (record.key, parsed(&record.value))).collect()
}

fn information() -> Key {
    model::transfer::information::key()
}

fn is_ready(records: &BTreeMap<Key, Value>) -> bool {
    records.get(&information()).is_some_and(|own| own["spec"]["datastoreReady"] == true)
}
