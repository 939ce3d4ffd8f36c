//! The etcd store against real etcd members.

#[path = "../contract/mod.rs"]
mod contract;

mod access;
mod compatibility;
mod connections;
mod failover;
mod gateway;
mod history;
mod processes;

use std::sync::Arc;

use async_trait::async_trait;
use store::etcd::{EtcdConfig, EtcdStore};
use store::{Event, Store, Watch};
use testkit::etcd::{EtcdCluster, Setup, start_or_skip};
use testkit::process::run;

async fn connect(cluster: &EtcdCluster) -> EtcdStore {
    EtcdStore::connect(EtcdConfig::new(cluster.endpoints())).await.expect("etcd is there")
}

/// The next event of a watch that is well; `None` if it has ended.
async fn next(watch: &mut Watch) -> Option<Event> {
    let event = tokio::time::timeout(testkit::PATIENCE, watch.next()).await.expect("an event arrives");
    event.map(|event| event.expect("the watch is well"))
}

mod sessions;

/// A cluster for the contract. Every handle begins at another member, as clients of a cluster do.
struct Cluster(EtcdCluster);

impl Cluster {
    async fn handle(&self, first: usize) -> Arc<dyn Store> {
        let mut endpoints = self.0.endpoints();
        endpoints.rotate_left(first % self.0.len());
        Arc::new(EtcdStore::connect(EtcdConfig::new(endpoints)).await.expect("etcd is there"))
    }
}

#[async_trait]
impl contract::Backend for Cluster {
    async fn fresh(&self) -> Arc<dyn Store> {
        run(self.0.etcdctl().args(["del", "--prefix", ""])).unwrap();
        self.handle(0).await
    }

    async fn another(&self) -> Arc<dyn Store> {
        self.handle(1).await
    }

    async fn forget_history(&self) {
        let store = connect(&self.0).await;
        let revision = (&store as &dyn Store).list_all(model::KeyRange::Everything).await.unwrap().1;
        store.compact(&revision).await.unwrap();
    }

    async fn put_foreign(&self, key: &str, value: &str) {
        run(self.0.etcdctl().args(["put", key, value])).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_keeps_the_contract() {
    let Some(cluster) = start_or_skip("one_member_keeps_the_contract", Setup::members(1)) else { return };
    contract::run_all(&Cluster(cluster)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_keep_the_contract() {
    let Some(cluster) = start_or_skip("three_members_keep_the_contract", Setup::members(3)) else { return };
    contract::run_all(&Cluster(cluster)).await;
}
