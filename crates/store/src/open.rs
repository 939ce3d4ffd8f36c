//! Opens the store that a configuration names.

use std::sync::Arc;

use crate::config::StoreConfig;
use crate::etcd::EtcdStore;
use crate::kube::KubeStore;
use crate::{OpenMode, SqliteStore, Store, StoreError};

/// Opens a store. `mode` says what may be done to it, and whether a missing SQLite file is made; a store that is a
/// service of its own is neither made nor protected by it.
pub async fn open(config: &StoreConfig, mode: OpenMode) -> Result<Arc<dyn Store>, StoreError> {
    match config {
        StoreConfig::Sqlite { path } => {
            let path = path.clone();
            // Opening waits for disks and for other processes.
            let opened = tokio::task::spawn_blocking(move || SqliteStore::open(path, mode)).await;
            let store = opened.map_err(|error| StoreError::Other {
                operation: format!("opening the {config}"),
                source: Box::new(error),
            })??;
            Ok(Arc::new(store))
        }
        StoreConfig::Etcd(etcd) => Ok(Arc::new(EtcdStore::connect(etcd.clone()).await?)),
        StoreConfig::Kubernetes(kube) => Ok(Arc::new(KubeStore::connect(kube.clone()).await?)),
    }
}
