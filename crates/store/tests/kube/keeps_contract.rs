//! The contract, on a server that keeps nothing in memory and on one as it comes out of the box.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use model::kube::{Layout, OF_CUSTOM_RESOURCE, is_custom_resource};
use model::{Key, Kind};
use serde_json::{Map, Value, json};
use store::wrap::TranslatingStore;
use store::{
    Capabilities, Change, Committed, ListPage, ListRequest, Record, Revision, Store, StoreError, Watch, Write,
};
use testkit::kube::{KubeApiServer, Setup};

use crate::contract::{Backend, run_all};
use crate::fixture::{collection, connect, kept, start};

/// Where a record carries the bytes that a check has written.
const CARRIED: &str = "plumb.test/value";

struct Cluster {
    server: KubeApiServer,
    layout: Layout,
    has_watch_cache: bool,
    foreign: AtomicUsize,
}

#[async_trait]
impl Backend for Cluster {
    async fn fresh(&self) -> Arc<dyn Store> {
        let api = self.server.api();
        for kind in kept() {
            match kind.is_namespaced() {
                true => {
                    for namespace in NAMESPACES {
                        let (group, plural) = (self.layout.api_version(), self.layout.plural(kind));
                        api.delete(&format!("/apis/{group}/namespaces/{namespace}/{plural}")).unwrap();
                    }
                }
                false => api.delete(&collection(self.layout, kind)).unwrap(),
            }
        }
        self.another().await
    }

    async fn another(&self) -> Arc<dyn Store> {
        let store = connect(self.server.kubeconfig().unwrap()).await;
        assert_eq!(store.layout(), self.layout);
        let telling = TellsDeletions(Arc::new(store));
        Arc::new(TranslatingStore::new(Arc::new(telling), carry, carried))
    }

    async fn forget_history(&self) {
        self.server.compact().unwrap();
    }

    /// A block under a wrong name: an object among ours that is no record.
    async fn put_foreign(&self, _: &str, _: &str) {
        let number = self.foreign.fetch_add(1, Ordering::Relaxed);
        let block = json!({ "apiVersion": self.layout.api_version(), "kind": "IPAMBlock",
            "metadata": { "name": format!("foreign-{number}") },
            "spec": { "cidr": "10.0.0.0/30", "allocations": [], "attributes": [], "unallocated": [],
                "strictAffinity": false } });
        self.server.api().create(&collection(self.layout, Kind::IpamBlock), &block).unwrap();
    }

    fn excused(&self) -> &[(&'static str, &'static str)] {
        const ALWAYS: [(&str, &str); 2] = [
            ("commits::values_are_kept_byte_by_byte", "values are documents that the server writes anew"),
            ("commits::unusual_names_are_kept", "names are those that Kubernetes allows"),
        ];
        const WITH_CACHE: [(&str, &str); 4] = [
            ALWAYS[0],
            ALWAYS[1],
            ("history::a_watch_into_lost_history_says_so", "the watch cache still has it"),
            ("history::a_list_whose_moment_is_forgotten_says_so", "the watch cache still has it"),
        ];
        if self.has_watch_cache { &WITH_CACHE } else { &ALWAYS }
    }
}

const NAMESPACES: [&str; 4] = ["blu", "blue", "blue-green", "red"];

/// Puts what a check writes into a record that the server takes.
fn carry(key: &Key, value: &Bytes) -> Bytes {
    let annotations = json!({ CARRIED: String::from_utf8_lossy(value) });
    let record = match key {
        Key::Resource { kind, namespace, name } => {
            let spec = match kind {
                Kind::IpPool => json!({ "cidr": "10.0.0.0/16" }),
                _ => json!({}),
            };
            json!({ "apiVersion": "projectcalico.org/v3", "kind": kind.name(), "spec": spec,
                "metadata": { "name": name, "namespace": namespace, "annotations": annotations } })
        }
        Key::Block(cidr) => json!({ "cidr": cidr.to_string(), "allocations": [], "unallocated": [],
            "attributes": [], OF_CUSTOM_RESOURCE: { "annotations": annotations } }),
        _ => json!({ OF_CUSTOM_RESOURCE: { "annotations": annotations } }),
    };
    record.to_string().into()
}

fn carried(key: &Key, value: &Bytes) -> Bytes {
    let record: Map<String, Value> = serde_json::from_slice(value).expect("a value is JSON");
    let place = if matches!(key, Key::Resource { .. }) { "metadata" } else { OF_CUSTOM_RESOURCE };
    let text = record[place]["annotations"][CARRIED].as_str().expect("the value that was carried");
    text.to_owned().into()
}

/// Kubernetes does not tell the revision of a deletion. In a quiet store a list right after it does.
#[derive(Debug)]
struct TellsDeletions(Arc<dyn Store>);

#[async_trait]
impl Store for TellsDeletions {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.get(key).await
    }

    /// Without views: namespaces are there in every cluster.
    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        let mut page = self.0.list(request).await?;
        page.records.retain(
            |record| !matches!(&record.key, Key::Resource { kind, .. } if !is_custom_resource(*kind)),
        );
        Ok(page)
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        let is_deletion = matches!(changes.as_slice(), [Change { write: Write::Delete, .. }]);
        let committed = self.0.commit(changes).await?;
        if !is_deletion {
            return Ok(committed);
        }
        let page = self.0.list(ListRequest::new(model::KeyRange::IpamConfig)).await?;
        Ok(Committed { revisions: vec![page.revision] })
    }

    async fn watch(&self, range: model::KeyRange, after: Revision) -> Result<Watch, StoreError> {
        self.0.watch(range, after).await
    }
}

async fn keeps_the_contract(test: &str, layout: Layout, has_watch_cache: bool) {
    let mut setup = if has_watch_cache { Setup::default() } else { Setup::without_watch_cache() };
    // The server would renew a lease every ten seconds, and the checks count revisions.
    setup.extra_args.push("--feature-gates=APIServerIdentity=false".to_owned());
    let Some(server) = start(test, setup, layout) else { return };
    for namespace in NAMESPACES {
        server.api().create("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).unwrap();
    }
    run_all(&Cluster { server, layout, has_watch_cache, foreign: AtomicUsize::new(0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v1_keeps_the_contract() {
    keeps_the_contract("v1_keeps_the_contract", Layout::V1, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v3_keeps_the_contract() {
    keeps_the_contract("v3_keeps_the_contract", Layout::V3, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_watch_cache_keeps_the_contract() {
    keeps_the_contract("a_server_with_a_watch_cache_keeps_the_contract", Layout::V1, true).await;
}
