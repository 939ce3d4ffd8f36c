//! The stores: how they are named to a program, how they are filled, what a commit costs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use model::{Key, Kind, Resource};
use serde_json::{Value, json};
use store::etcd::EtcdConfig;
use store::{OpenMode, Store, StoreConfig};
use tokio::runtime::Runtime;
use uuid::Uuid;

#[derive(Clone, Debug)]
pub(crate) enum Place {
    Sqlite(PathBuf),
    /// Reached only from its own node.
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

    /// As the plugin is told.
    pub(crate) fn netconf(&self) -> Value {
        match self {
            Place::Sqlite(path) => json!({"datastore_type": "sqlite", "sqlite_path": path}),
            Place::Etcd(endpoint) => json!({"datastore_type": "etcdv3", "etcd_endpoints": endpoint}),
        }
    }

    /// Makes the records that pods need. The calling thread is on the store's node.
    pub(crate) fn fill(&self) -> Result<()> {
        let runtime = runtime()?;
        runtime.block_on(async {
            let store = self.open().await?;
            for (name, cidr) in [("pods", "10.244.0.0/16"), ("pods6", "fd00:10:244::/64")] {
                let mut pool = Resource::new(Kind::IpPool, name);
                pool.body.insert("spec".to_owned(), json!({"cidr": cidr}));
                pool.fill_defaults();
                store.create(pool.key(), pool.encode()).await?;
            }
            Ok(())
        })
    }

    /// What it takes to create one record, over and over.
    pub(crate) fn commit_times(&self, count: usize) -> Result<Vec<Duration>> {
        let runtime = runtime()?;
        runtime.block_on(async {
            let store = self.open().await?;
            let mut times = Vec::with_capacity(count);
            for _ in 0..count {
                let key = Key::Handle(format!("bench-{}", Uuid::new_v4()));
                let started = Instant::now();
                let revision = store.create(key.clone(), vec![b'x'; 500]).await?;
                times.push(started.elapsed());
                store.delete(key, revision).await?;
            }
            Ok(times)
        })
    }

    async fn open(&self) -> Result<Arc<dyn Store>> {
        let config = match self {
            Place::Sqlite(path) => StoreConfig::Sqlite { path: path.clone() },
            Place::Etcd(endpoint) => StoreConfig::Etcd(EtcdConfig::new([endpoint.as_str()])),
        };
        Ok(store::open(&config, OpenMode::CreateIfMissing).await?)
    }
}

fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
