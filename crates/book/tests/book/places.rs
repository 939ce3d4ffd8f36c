//! Stores that last: SQLite in a folder of its own, and one real etcd and one real API server of Kubernetes that all tests of this
//! program take turns with.

use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use model::Kind;
use store::etcd::{EtcdConfig, EtcdStore};
use store::sqlite::SqliteStore;
use store::{OpenMode, Store};
use tempfile::TempDir;
use testkit::etcd::{EtcdCluster, Setup, start_or_skip};
use testkit::kube::Api;
use testkit::process::run;
use tokio::sync::OwnedMutexGuard;

use crate::common::put_labelled;
use crate::kubernetes::{self, Cluster};

/// An empty store, for as long as this lives.
#[derive(Debug)]
pub(crate) enum Place {
    Sqlite(TempDir),
    Etcd { cluster: Arc<EtcdCluster>, _turn: OwnedMutexGuard<()> },
    Kubernetes { cluster: Arc<Cluster>, _turn: OwnedMutexGuard<()> },
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

    /// `None` where there is no API server: the test is skipped.
    pub(crate) async fn kubernetes(test: &str) -> Option<Place> {
        let (cluster, turn) = kubernetes::take_turn(test).await?;
        Some(Place::Kubernetes { cluster, _turn: turn })
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
            Place::Kubernetes { cluster, .. } => cluster.kubeconfig().to_str().unwrap().to_owned(),
        }
    }

    /// Removes all records of a cluster that is used again, and gives a way to it that shares nothing with the store.
    pub(crate) fn clear(&self) -> Api {
        let Place::Kubernetes { cluster, .. } = self else { unreachable!("the others are not used again") };
        cluster.clear();
        cluster.api()
    }

    /// A node with labels, as whoever registers nodes there makes it.
    pub(crate) async fn put_node(&self, store: &Arc<dyn Store>, name: &str, labels: &[(&str, &str)]) {
        match self {
            Place::Kubernetes { cluster, .. } => cluster.put_node(name, labels),
            _ => put_labelled(store, Kind::Node, name, labels).await,
        }
    }
}

pub(crate) async fn open(address: &str) -> Arc<dyn Store> {
    if address.ends_with(kubernetes::KUBECONFIG) {
        return kubernetes::connect(address.as_ref()).await;
    }
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

/// Makes three tests of each scenario: one on SQLite, one on etcd, one on Kubernetes.
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

        mod on_kubernetes {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                let name = concat!(module_path!(), "::", stringify!($scenario));
                let Some(place) = $crate::places::Place::kubernetes(name).await else { return };
                super::$scenario(place).await;
            })*
        }
    };
}

pub(crate) use on_every_store;
