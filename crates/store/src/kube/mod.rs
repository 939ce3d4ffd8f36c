//! Records in Kubernetes, as Calico's custom resources.
//!
//! * `config`, `proxy`, `token`, `plugin`: which API server, as whom, by which way. `dial`, `connection`, `client`: requests that survive
//!   a server's death, its refusal to be rushed and new certificates. `failure`: what went wrong, whether anything was done, and how to say it.
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
mod connection;
mod definitions;
mod dial;
mod failure;
mod flatten;
mod layout;
mod objects;
mod once;
mod page;
mod plugin;
mod proxy;
mod range;
mod read;
mod token;
mod views;
mod watch;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use model::kube::Layout;
use model::{DevicePrefixes, Key, KeyRange};

use self::client::Client;
use self::failure::{HalfWritten, Trouble};
use self::range::Form;
use crate::request::{check_commit_with_views, check_key};
use crate::steps::one_by_one;
use crate::{
    Capabilities, Change, Committed, ListPage, ListRequest, Record, Revision, Store, StoreError, Watch,
};

pub use config::{KubeConfig, KubeSettings};
pub use definitions::Definitions;
pub use objects::{KubeObjects, ObjectKind, ObjectPage};

/// How often the cluster is asked again which API group keeps the records, if it does not have the one that it had.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The records of one cluster. Clones share the connection.
#[derive(Clone, Debug)]
pub struct KubeStore {
    chosen: Arc<Mutex<Chosen>>,
    /// Nobody has said which layout it is.
    is_layout_found: bool,
}

#[derive(Debug)]
struct Chosen {
    shared: Arc<Shared>,
    asked: Option<Instant>,
}

/// The records in one layout.
#[derive(Debug)]
struct Shared {
    client: Arc<Client>,
    layout: Layout,
    /// What devices of pods are called.
    prefixes: Arc<DevicePrefixes>,
}

impl Shared {
    fn form(&self) -> Form<'_> {
        Form { layout: self.layout, prefixes: &self.prefixes }
    }
}

impl KubeStore {
    /// Connects to the API server and finds out which API group keeps the records.
    pub async fn connect(config: KubeConfig) -> Result<KubeStore, StoreError> {
        let client = Client::connect(&config).await?;
        let layout = layout::choose(&client, config.api_group.as_deref()).await?;
        tracing::debug!(group = layout.group(), "records are kept as custom resources");
        let is_layout_found = config.api_group.as_deref().is_none_or(str::is_empty);
        let prefixes = Arc::new(config.device_prefixes);
        let shared = Arc::new(Shared { client: Arc::new(client), layout, prefixes });
        let chosen = Chosen { shared, asked: None };
        Ok(KubeStore { chosen: Arc::new(Mutex::new(chosen)), is_layout_found })
    }

    /// Which API group keeps the records.
    pub fn layout(&self) -> Layout {
        self.shared().layout
    }

    fn chosen(&self) -> MutexGuard<'_, Chosen> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.chosen().shared)
    }

    /// Whether the records are in another group than the one that was used. What a server says while it starts need not be what it says
    /// later, and a migration moves the records.
    async fn is_in_other_group(&self, used: &Shared, error: &StoreError) -> bool {
        let cause = match error {
            StoreError::Stopped { source, .. } => source,
            error => error,
        };
        if !self.is_layout_found || !matches!(cause, StoreError::Unsupported { .. }) {
            return false;
        }
        {
            let mut chosen = self.chosen();
            if chosen.shared.layout != used.layout {
                return true;
            }
            if chosen.asked.is_some_and(|asked| asked.elapsed() < ASK_AGAIN_AFTER) {
                return false;
            }
            chosen.asked = Some(Instant::now());
        }
        match layout::served(&used.client).await {
            Ok(Some(layout)) if layout != used.layout => {
                tracing::warn!(group = layout.group(), "the records are in another API group now");
                let (client, prefixes) = (Arc::clone(&used.client), Arc::clone(&used.prefixes));
                self.chosen().shared = Arc::new(Shared { client, layout, prefixes });
                true
            }
            _ => false,
        }
    }
}

#[async_trait]
impl Store for KubeStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic_commits: false, endpoints_are_records: false }
    }

    fn objects(&self) -> Option<KubeObjects> {
        let shared = self.shared();
        let found = self.is_layout_found.then_some(shared.layout);
        Some(KubeObjects::of(&shared.client, found))
    }

    fn needs_labels(&self) -> bool {
        true
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        check_key(key)?;
        let shared = self.shared();
        match shared.get(key).await {
            Err(error) if self.is_in_other_group(&shared, &error).await => self.shared().get(key).await,
            found => found,
        }
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        let shared = self.shared();
        match shared.page(request.clone()).await {
            Err(error) if self.is_in_other_group(&shared, &error).await => match request.next {
                None => self.shared().page(request).await,
                // It began in the group where nothing is any more.
                Some(_) => Err(StoreError::HistoryGone { range: request.range }),
            },
            page => page,
        }
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        check_commit_with_views(&changes)?;
        let shared = self.shared();
        let committed = one_by_one(changes, |change| shared.change(change)).await;
        if let Err(error) = &committed {
            // Some of the changes may have been made, so whoever wants them decides whether to try again.
            self.is_in_other_group(&shared, error).await;
        }
        committed
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        watch::start(&self.shared(), &range, after)
    }
}

/// Advice about an error of this backend, if it is one.
pub(crate) fn hint(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    error.downcast_ref::<Trouble>().and_then(Trouble::hint).map(str::to_owned)
}

/// How long the API server asked to wait, if an error of this backend says so.
pub(crate) fn pause_asked_for(error: &(dyn std::error::Error + 'static)) -> Option<Duration> {
    error.downcast_ref::<Trouble>().and_then(Trouble::pause_asked_for)
}

/// Whether an error says that no server was reached. Those of other backends do not come from a server that is busy with lists.
pub(crate) fn is_out_of_reach(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<Trouble>().is_none_or(Trouble::is_out_of_reach)
}

/// Advice about what kept the rest of a change from being made.
pub(crate) fn hint_of_half(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    error.downcast_ref::<HalfWritten>().and_then(|half| half.source.hint())
}
