//! The stores that are measured, each with a cluster of its own size in it.

use std::sync::Arc;

use sim::cluster::Cluster;
use store::etcd::{EtcdConfig, EtcdStore};
use store::{OpenMode, SqliteStore, Store};
use tempfile::TempDir;
use testkit::etcd::{EtcdCluster, Setup};

pub(crate) struct Place {
    pub(crate) backend: &'static str,
    /// How many blocks are in its pool; where there is one, the node makes it.
    pub(crate) blocks: usize,
    pub(crate) store: Arc<dyn Store>,
    _keeps: Keeps,
}

/// What goes with the place.
enum Keeps {
    Directory { _directory: TempDir },
    Members { _cluster: EtcdCluster },
}

impl Place {
    pub(crate) async fn sqlite(blocks: usize) -> anyhow::Result<Place> {
        let directory = testkit::scratch("bench-ipam")?;
        let store = SqliteStore::open(directory.path().join("plumb.db"), OpenMode::CreateIfMissing)?;
        let keeps = Keeps::Directory { _directory: directory };
        Place { backend: "sqlite", blocks, store: Arc::new(store), _keeps: keeps }.filled().await
    }

    pub(crate) async fn etcd(blocks: usize) -> anyhow::Result<Place> {
        // As durable as the other side: what tests spare themselves, a measurement must not.
        let durable = Setup { extra_args: vec!["--unsafe-no-fsync=false".to_owned()], ..Setup::default() };
        let cluster = EtcdCluster::start(durable)?;
        let store = EtcdStore::connect(EtcdConfig::new(cluster.endpoints())).await?;
        let keeps = Keeps::Members { _cluster: cluster };
        Place { backend: "etcd", blocks, store: Arc::new(store), _keeps: keeps }.filled().await
    }

    /// Others have all blocks but the one that the measuring node will have.
    async fn filled(self) -> anyhow::Result<Place> {
        let others =
            Cluster { nodes: 100, blocks: self.blocks - 1, addresses_per_block: 15, has_endpoints: false };
        others.write(&self.store).await?;
        Ok(self)
    }

    pub(crate) fn described(&self) -> String {
        let blocks = if self.blocks == 1 { "1 block".to_owned() } else { format!("{} blocks", self.blocks) };
        format!("{}, {blocks}", self.backend)
    }
}
