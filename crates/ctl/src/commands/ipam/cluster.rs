//! The cluster as its own record describes it.

use std::sync::Arc;

use model::cluster::{CLUSTER_INFORMATION, is_locked};
use model::{Key, Kind};
use serde_json::Value;
use store::{Revision, Store};

use crate::failure::Failure;
use crate::records;

/// What reports say about the cluster they were made in.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    pub(super) guid: String,
    pub(super) kind: String,
    /// None if there is no such record.
    pub(super) revision: Option<Revision>,
    /// Nobody but operators changes addresses.
    pub(super) is_locked: bool,
}

impl Cluster {
    pub(super) fn key() -> Key {
        Key::cluster(Kind::ClusterInformation, CLUSTER_INFORMATION)
    }

    pub(super) async fn read(store: &Arc<dyn Store>) -> Result<Cluster, Failure> {
        let Some(record) = store.get(&Cluster::key()).await? else { return Ok(Cluster::default()) };
        let information = records::to_resource(&record)?;
        let text = |field| information.spec(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Cluster {
            guid: text("clusterGUID"),
            kind: text("clusterType"),
            is_locked: is_locked(&information),
            revision: Some(record.revision),
        })
    }
}
