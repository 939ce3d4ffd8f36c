//! The stores of benches: how they are named to a program, and how they are opened.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use store::etcd::EtcdConfig;
use store::{OpenMode, Store, StoreConfig};

#[derive(Clone, Debug)]
pub(crate) enum Place {
    Sqlite(PathBuf),
    /// Reached only from nodes that are connected with it.
    Etcd(String),
}

impl Place {
    /// As the agent is told.
    pub(crate) fn environment(&self) -> [(&'static str, String); 2] {
        match self {
            Place::Sqlite(path) => {
                [("DATASTORE_TYPE", "sqlite".to_owned()), ("SQLITE_PATH", path.display().to_string())]
            }
            Place::Etcd(endpoint) => {
                [("DATASTORE_TYPE", "etcdv3".to_owned()), ("ETCD_ENDPOINTS", endpoint.clone())]
            }
        }
    }

    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>> {
        let config = match self {
            Place::Sqlite(path) => StoreConfig::Sqlite { path: path.clone() },
            Place::Etcd(endpoint) => StoreConfig::Etcd(EtcdConfig::new([endpoint.as_str()])),
        };
        Ok(store::open(&config, OpenMode::CreateIfMissing).await?)
    }
}
