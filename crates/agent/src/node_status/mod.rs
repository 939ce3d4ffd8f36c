//! Keeps the `CalicoNodeStatus` records of this node up to date: its BIRD, its sessions, its routes. So an operator with access to the store can
//! inspect a node without being root on it.

mod rib;
mod status;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use model::{Key, KeyRange, Kind};
use serde_json::Value;
use store::{Record, Store};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

use crate::follow::{Update, decode, follow};
use status::NodeState;

const CHECK_EVERY: Duration = Duration::from_secs(1);

/// This node's records, and when each was last written.
type Requests = Mutex<BTreeMap<Key, (Record, Option<Instant>)>>;

/// Never ends. `socket`: BIRD's, if this node runs BGP; otherwise the usual ones are tried.
pub(crate) async fn keep(node: &str, store: &dyn Store, socket: Option<PathBuf>) {
    let requests: Requests = Mutex::default();
    let changed = Notify::new();
    let following = follow(store, KeyRange::Kind(Kind::CalicoNodeStatus), "node statuses", |update| {
        let mut requests = lock(&requests);
        match update {
            Update::ListBegins => requests.clear(),
            Update::Listed(record) | Update::Put(record) => {
                let last = requests.remove(&record.key).and_then(|(_, last)| last);
                if is_about(&record, node) {
                    requests.insert(record.key.clone(), (record, last));
                }
            }
            Update::Deleted(key) => drop(requests.remove(&key)),
            Update::ListEnds | Update::OutOfSync => {}
        }
        if !requests.is_empty() {
            changed.notify_one();
        }
    });
    let writing = async {
        loop {
            // Most nodes have no such record, and no reason to wake up.
            if lock(&requests).is_empty() {
                changed.notified().await;
            }
            tokio::time::sleep(CHECK_EVERY).await;
            for record in due(&requests) {
                write(store, node, &requests, record, socket.clone()).await;
            }
        }
    };
    tokio::join!(following, writing);
}

fn lock(requests: &Requests) -> MutexGuard<'_, BTreeMap<Key, (Record, Option<Instant>)>> {
    requests.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_about(record: &Record, node: &str) -> bool {
    decode(record, Kind::CalicoNodeStatus)
        .is_some_and(|status| status.spec("node").and_then(Value::as_str) == Some(node))
}

/// Records whose period is over. A period of 0 means that the record stays as it is.
fn due(requests: &Requests) -> Vec<Record> {
    let requests = lock(requests);
    let is_due = |(record, last): &&(Record, Option<Instant>)| {
        let period = decode(record, Kind::CalicoNodeStatus)
            .and_then(|status| status.spec("updatePeriodSeconds")?.as_u64())
            .unwrap_or(0);
        period > 0 && last.is_none_or(|last| last.elapsed() >= Duration::from_secs(period))
    };
    requests.values().filter(is_due).map(|(record, _)| record.clone()).collect()
}

async fn write(store: &dyn Store, node: &str, requests: &Requests, record: Record, socket: Option<PathBuf>) {
    let Some(mut resource) = decode(&record, Kind::CalicoNodeStatus) else { return };
    let name = node.to_owned();
    let reading = tokio::task::spawn_blocking(move || NodeState::read(&name, socket)).await;
    let Ok(state) = reading else { return };
    let classes = resource.spec("classes").and_then(Value::as_array).cloned().unwrap_or_default();
    resource.body.insert("status".to_owned(), state.status(&classes, Timestamp::now()));
    // The watch delivers another writer's change, and the next update is based on it.
    if let Err(error) = store.update(record.key.clone(), resource.encode(), record.revision).await {
        debug!(record = %record.key, %error, "cannot write a node status");
        return;
    }
    let mut requests = lock(requests);
    if let Some((_, last)) = requests.get_mut(&record.key) {
        *last = Some(Instant::now());
    }
}
