//! Whether the store is ready for pods: `datastoreReady` in its ClusterInformation, which an operator turns off for a migration.

use book::Book;
use model::cluster::CLUSTER_INFORMATION;
use model::{Key, Kind, Resource};
use serde_json::Value;

use super::error::{CniError, code};
use super::netconf::NetConf;

/// How Calico's configuration names its etcd.
const ETCD: &str = "etcdv3";

/// An error if no pod may be added. An allocation finds that out itself, but not every ADD allocates. A store that was never set up is
/// refused where it is Calico's etcd: it may be the wrong one.
pub(super) async fn check(netconf: &NetConf, book: &Book) -> Result<(), CniError> {
    let key = Key::cluster(Kind::ClusterInformation, CLUSTER_INFORMATION);
    let Some(record) = book.store().get(&key).await? else {
        return if is_etcd(netconf) { Err(never_set_up(&key)) } else { Ok(()) };
    };
    let information =
        Resource::decode(&key, Kind::ClusterInformation, &record.value, record.revision.as_str())
            .map_err(|error| CniError::new(code::STORE, format!("cannot read {key}")).because(&error))?;
    match information.spec("datastoreReady").and_then(Value::as_bool) {
        Some(true) => Ok(()),
        _ => Err(not_ready()),
    }
}

/// Whether an ADD has to look, although it will commit an allocation.
pub(super) fn is_etcd(netconf: &NetConf) -> bool {
    netconf.store.get("DATASTORE_TYPE").is_some_and(|kind| kind == ETCD)
}

fn not_ready() -> CniError {
    CniError::new(code::TRY_LATER, "the store is locked for a migration, or not set up completely")
        .hint("`plumb datastore migrate unlock` ends the lock")
}

pub(super) fn never_set_up(key: &Key) -> CniError {
    CniError::new(code::TRY_LATER, format!("the store has no {key}"))
        .hint("start the node's agent, which sets up an empty store, or see that etcd_endpoints names the right one")
}
