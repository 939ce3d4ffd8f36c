//! Records in etcd v3, in Calico's own layout.
//!
//! * `rpc`: the protocol. `members`, `credentials`: which member, as whom. `client`: calls that survive members.
//! * `commit`, `list`, `read`, `watch`: the store's verbs in terms of calls. `held`: a key that ends with its holder.
//! * `failure`, `trouble`: what went wrong, whether anything was done, and how to say it.

mod client;
mod commit;
mod config;
mod credentials;
mod endpoint;
mod failure;
mod held;
mod list;
mod members;
mod read;
mod rpc;
mod second_look;
mod tls;
mod trouble;
mod watch;

use std::sync::Arc;

use async_trait::async_trait;
use model::{Key, KeyRange};

use self::client::{CallError, Client, Effect};
use self::failure::Refusal;
use self::list::Lists;
use self::rpc::CompactionRequest;
use self::trouble::Troubles;
use crate::request::{check_commit, check_key, check_lookups, counted};
use crate::{
    Capabilities, Change, Committed, ListPage, ListRequest, Lookup, Record, Revision, Store, StoreError,
    Watch, Write,
};

pub use config::{EtcdConfig, PemSource};
pub(crate) use endpoint::list_without_credentials;
pub use held::{Held, HeldKey};
pub(crate) use trouble::Trouble;

/// The records of one etcd cluster. Clones share the connection.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    client: Arc<Client>,
    lists: Arc<Lists>,
}

impl EtcdStore {
    /// Connects to the first member that answers, and signs in if a user is given.
    pub async fn connect(config: EtcdConfig) -> Result<EtcdStore, StoreError> {
        let client = Client::connect(&config).await?;
        Ok(EtcdStore { client: Arc::new(client), lists: Arc::default() })
    }

    /// Has etcd forget how things were before `revision`. Lists and watches that still need to know end with
    /// "history gone".
    pub async fn compact(&self, revision: &Revision) -> Result<(), StoreError> {
        let request = CompactionRequest { revision: counted(revision)?, physical: true };
        match self.client.call(request, Effect::Reads).await {
            Ok(_) => Ok(()),
            // Already forgotten, perhaps by the first try of this very call.
            Err(CallError::Refused { refusal: Refusal::Compacted, .. }) => Ok(()),
            Err(error) => Err(error.into_store_error("compacting etcd's history")),
        }
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic_commits: true, endpoints_are_records: true }
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        check_key(key)?;
        let response = self
            .client
            .call(commit::read(key), Effect::Reads)
            .await
            .map_err(|error| error.into_store_error(&format!("reading {key}")))?;
        Ok(response.kvs.into_iter().next().map(|found| Record {
            key: key.clone(),
            value: found.value,
            revision: found.mod_revision.into(),
        }))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.lists.page(&self.client, request).await
    }

    async fn read(&self, lookups: Vec<Lookup>) -> Result<Vec<Vec<Record>>, StoreError> {
        check_lookups(&lookups)?;
        read::all(&self.client, &lookups).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        check_commit(&changes)?;
        if changes.is_empty() {
            return Ok(Committed { revisions: Vec::new() });
        }
        let writes = changes.iter().any(|change| change.write != Write::Nothing);
        let effect = if writes { Effect::Writes } else { Effect::Reads };
        let answer = match self.client.call(commit::transaction(&changes), effect).await {
            Ok(answer) => answer,
            Err(CallError::Refused { refusal: Refusal::TooLarge, .. }) => return Err(too_large(&changes)),
            Err(error) => return Err(error.into_store_error(&in_words(&changes))),
        };
        if !answer.succeeded {
            return Err(commit::refusal(&changes, answer.responses));
        }
        let revision = Revision::from(answer.header.map_or(0, |header| header.revision));
        Ok(Committed { revisions: vec![revision; changes.len()] })
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        watch::start(&self.client, &range, after)
    }
}

/// Advice about an error of this backend, if it is one.
pub(crate) fn hint(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    error.downcast_ref::<Troubles>().and_then(Troubles::hint).map(str::to_owned)
}

/// What a commit would do, for whoever is not allowed to.
fn in_words(changes: &[Change]) -> String {
    const SHOWN_MAX: usize = 6;
    let written = changes.iter().filter(|change| change.write != Write::Nothing);
    let keys: Vec<String> = written.map(|change| change.key.to_string()).collect();
    match (keys.is_empty(), keys.len().saturating_sub(SHOWN_MAX)) {
        (true, _) => "comparing records".to_owned(),
        (false, 0) => format!("writing {}", keys.join(", ")),
        (false, more) => format!("writing {} and {more} more", keys[..SHOWN_MAX].join(", ")),
    }
}

fn too_large(changes: &[Change]) -> StoreError {
    let bytes: usize = changes
        .iter()
        .map(|change| match &change.write {
            Write::Put(value) => value.len(),
            Write::Delete | Write::Nothing => 0,
        })
        .sum();
    StoreError::Unsupported {
        operation: format!("take {bytes} bytes in one commit; etcd's limit is 1.5 MiB (--max-request-bytes)"),
    }
}
