//! The stores: how they are named to the plugin, how they are filled, what a commit costs.

use std::time::{Duration, Instant};

use anyhow::Result;
use model::{Key, Kind, Resource};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use uuid::Uuid;

pub(crate) use crate::store_place::Place;

impl Place {
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
                let key = Key::Handle(format!("bench-{}", Uuid::new_v4()).into());
                let started = Instant::now();
                let revision = store.create(key.clone(), vec![b'x'; 500]).await?;
                times.push(started.elapsed());
                store.delete(key, revision).await?;
            }
            Ok(times)
        })
    }
}

fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
