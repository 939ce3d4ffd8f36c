//! `CalicoNodeStatus` records that ask about this node, kept up to date: what its BIRD says, its sessions, its routes. So anybody who
//! may read the store can look at a node without being root on it.

mod rib;
mod seen;

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

use crate::follow::{Told, decode, follow};
use seen::Seen;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Records about this node, and when each was last written.
type Asked = Mutex<BTreeMap<Key, (Record, Option<Instant>)>>;

/// Never ends. `socket`: BIRD's, if this node speaks BGP; else the usual ones are asked.
pub(crate) async fn keep(node: &str, store: &dyn Store, socket: Option<PathBuf>) {
    let asked: Asked = Mutex::default();
    let changed = Notify::new();
    let following = follow(store, KeyRange::Kind(Kind::CalicoNodeStatus), "statuses of nodes", |told| {
        let mut asked = lock(&asked);
        match told {
            Told::Listing => asked.clear(),
            Told::Listed(record) | Told::Put(record) => {
                let last = asked.remove(&record.key).and_then(|(_, last)| last);
                if asks_about(&record, node) {
                    asked.insert(record.key.clone(), (record, last));
                }
            }
            Told::Deleted(key) => drop(asked.remove(&key)),
            Told::Complete | Told::Lost => {}
        }
        if !asked.is_empty() {
            changed.notify_one();
        }
    });
    let writing = async {
        loop {
            // On most nodes nobody asks, and then there is no reason to wake up.
            if lock(&asked).is_empty() {
                changed.notified().await;
            }
            tokio::time::sleep(LOOK_EVERY).await;
            for record in due(&asked) {
                write(store, node, &asked, record, socket.clone()).await;
            }
        }
    };
    tokio::join!(following, writing);
}

fn lock(asked: &Asked) -> MutexGuard<'_, BTreeMap<Key, (Record, Option<Instant>)>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

fn asks_about(record: &Record, node: &str) -> bool {
    decode(record, Kind::CalicoNodeStatus)
        .is_some_and(|asked| asked.spec("node").and_then(Value::as_str) == Some(node))
}

/// Those whose period is over. A period of nought is a record that shall stay as it is.
fn due(asked: &Asked) -> Vec<Record> {
    let asked = lock(asked);
    let is_due = |(record, last): &&(Record, Option<Instant>)| {
        let period = decode(record, Kind::CalicoNodeStatus)
            .and_then(|asked| asked.spec("updatePeriodSeconds")?.as_u64())
            .unwrap_or(0);
        period > 0 && last.is_none_or(|last| last.elapsed() >= Duration::from_secs(period))
    };
    asked.values().filter(is_due).map(|(record, _)| record.clone()).collect()
}

async fn write(store: &dyn Store, node: &str, asked: &Asked, record: Record, socket: Option<PathBuf>) {
    let Some(mut resource) = decode(&record, Kind::CalicoNodeStatus) else { return };
    let name = node.to_owned();
    let looked = tokio::task::spawn_blocking(move || Seen::look(&name, socket)).await;
    let Ok(seen) = looked else { return };
    let classes = resource.spec("classes").and_then(Value::as_array).cloned().unwrap_or_default();
    resource.body.insert("status".to_owned(), seen.status(&classes, Timestamp::now()));
    // Somebody else's change comes by the watch, and the next look writes onto that.
    if let Err(error) = store.update(record.key.clone(), resource.encode(), record.revision).await {
        debug!("{} was not written: {error}", record.key);
        return;
    }
    let mut asked = lock(asked);
    if let Some((_, last)) = asked.get_mut(&record.key) {
        *last = Some(Instant::now());
    }
}
