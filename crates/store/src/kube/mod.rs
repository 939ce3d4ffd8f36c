//! Records in Kubernetes, as Calico's custom resources.
//!
//! * `config`, `proxy`, `token`: which API server, as whom, by which way. `dial`, `client`: requests that survive a server's death and its refusal to be
//!   rushed. `failure`: what went wrong, whether anything was done, and how to say it.
//! * `layout`: which of Calico's two API groups keeps the records. `definitions`: the CustomResourceDefinitions behind them.
//! * `range`: which collections a range of keys lies in. `read`, `write`, `watch`: the store's verbs in terms of requests. `page`: an
//!   answer with many objects.
//!   `once`: warnings that are not repeated.
//!   `views`: changes of the Pods and Nodes behind records. `objects`: those and others, whole.
//!
//! How a record becomes a document and back is in `model::kube`.
//!
//! Kubernetes has no transactions, so a commit is made change by change. Each change is a compare-and-swap by the object's
//! `resourceVersion`, also a deletion: Calico marks IPAM's records first and removes them in a second request, because it does not
//! use that precondition. Its marks are understood: a marked record does not exist, and whoever is in its way removes it.

mod client;
mod config;
mod definitions;
mod dial;
mod failure;
mod flatten;
mod layout;
mod objects;
mod once;
mod page;
mod proxy;
mod range;
mod read;
mod token;
mod views;
mod watch;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use model::kube::Layout;
use model::{Key, KeyRange};

use self::client::Client;
use self::failure::Trouble;
use crate::request::{check_commit_with_views, check_key};
use crate::steps::one_by_one;
use crate::{
    Capabilities, Change, Committed, ListPage, ListRequest, Record, Revision, Store, StoreError, Watch,
};

pub use config::{KubeConfig, KubeSettings};
pub use definitions::Definitions;
pub use objects::{KubeObjects, ObjectKind, ObjectPage};

/// The records of one cluster. Clones share the connection.
#[derive(Clone, Debug)]
pub struct KubeStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Arc<Client>,
    layout: Layout,
    /// Nobody has said which it is.
    is_layout_found: bool,
}

impl KubeStore {
    /// Connects to the API server and finds out which API group keeps the records.
    pub async fn connect(config: KubeConfig) -> Result<KubeStore, StoreError> {
        let client = Client::connect(&config).await?;
        let layout = layout::choose(&client, config.api_group.as_deref()).await?;
        tracing::debug!(group = layout.group(), "records are kept as custom resources");
        let is_layout_found = config.api_group.as_deref().is_none_or(str::is_empty);
        let client = Arc::new(client);
        Ok(KubeStore { shared: Arc::new(Shared { client, layout, is_layout_found }) })
    }

    /// Which API group keeps the records.
    pub fn layout(&self) -> Layout {
        self.shared.layout
    }
}

#[async_trait]
impl Store for KubeStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic_commits: false, endpoints_are_records: false }
    }

    fn objects(&self) -> Option<KubeObjects> {
        let found = self.shared.is_layout_found.then_some(self.shared.layout);
        Some(KubeObjects::of(&self.shared.client, found))
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        check_key(key)?;
        self.shared.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.shared.page(request).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        check_commit_with_views(&changes)?;
        one_by_one(changes, |change| self.shared.change(change)).await
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        watch::start(&self.shared, &range, after)
    }
}

/// Advice about an error of this backend, if it is one.
pub(crate) fn hint(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    error.downcast_ref::<Trouble>().and_then(Trouble::hint).map(str::to_owned)
}
