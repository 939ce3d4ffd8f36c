//! Stores that last: SQLite in a folder of its own, and one real etcd that all tests of this program take turns with.

use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use store::etcd::{EtcdConfig, EtcdStore};
use store::sqlite::SqliteStore;
use store::{OpenMode, Store};
use tempfile::TempDir;
use testkit::etcd::{EtcdCluster, Setup, start_or_skip};
use testkit::process::run;
use tokio::sync::OwnedMutexGuard;

/// An empty store, for as long as this lives.
#[derive(Debug)]
pub(crate) enum Place {
    Sqlite(TempDir),
    Etcd { cluster: Arc<EtcdCluster>, _turn: OwnedMutexGuard<()> },
}

/// Goes away with the last test that uses it or waits for it.
static CLUSTER: Mutex<Weak<EtcdCluster>> = Mutex::new(Weak::new());
static TURN: LazyLock<Arc<tokio::sync::Mutex<()>>> = LazyLock::new(Arc::default);

impl Place {
    pub(crate) fn sqlite() -> Place {
        Place::Sqlite(testkit::scratch("book").unwrap())
    }

    /// `None` where there is no etcd: the test is skipped.
    pub(crate) async fn etcd(test: &str) -> Option<Place> {
        let cluster = shared_cluster(test)?;
        let turn = Arc::clone(&TURN).lock_owned().await;
        run(cluster.etcdctl().args(["del", "--prefix", ""])).unwrap();
        Some(Place::Etcd { cluster, _turn: turn })
    }

    /// A connection of its own, as another process would have.
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        open(&self.address()).await
    }

    /// What another process needs to open the store.
    pub(crate) fn address(&self) -> String {
        match self {
            Place::Sqlite(folder) => folder.path().join("plumb.db").to_str().unwrap().to_owned(),
            Place::Etcd { cluster, .. } => cluster.endpoint(0),
        }
    }
}

pub(crate) async fn open(address: &str) -> Arc<dyn Store> {
    if address.starts_with("http") {
        return Arc::new(EtcdStore::connect(EtcdConfig::new([address])).await.expect("etcd is there"));
    }
    Arc::new(SqliteStore::open(address, OpenMode::CreateIfMissing).expect("the file can be opened"))
}

fn shared_cluster(test: &str) -> Option<Arc<EtcdCluster>> {
    let mut shared = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cluster) = shared.upgrade() {
        return Some(cluster);
    }
    let cluster = Arc::new(start_or_skip(test, Setup::members(1))?);
    *shared = Arc::downgrade(&cluster);
    Some(cluster)
}

/// Makes two tests of each scenario: one on SQLite, one on etcd.
macro_rules! on_every_store {
    ($($scenario:ident)*) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                super::$scenario($crate::places::Place::sqlite()).await;
            })*
        }

        mod on_etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                let name = concat!(module_path!(), "::", stringify!($scenario));
                let Some(place) = $crate::places::Place::etcd(name).await else { return };
                super::$scenario(place).await;
            })*
        }
    };
}

pub(crate) use on_every_store;
