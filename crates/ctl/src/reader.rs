//! Records from the store: one by name, or a whole kind page by page with the next page already on its way.

use std::collections::VecDeque;
use std::sync::Arc;

use model::ipam::CONFIG_NAME;
use model::{Cidr, Key, Kind};
use store::{ListPage, ListRequest, Record, Store, StoreError};
use tokio::task::JoinHandle;

use crate::records;
use crate::scope::Named;

/// How many records are asked for at once. A page of a table is smaller, but every page costs the store a walk
/// over its index.
const FETCH: usize = ListRequest::PAGE;

/// Before v3.32 Calico stored the policies of the default tier under names with this prefix.
const LEGACY_POLICY_PREFIX: &str = "default.";

/// The record of one resource.
pub(crate) async fn find(store: &Arc<dyn Store>, named: &Named) -> Result<Option<Record>, StoreError> {
    let Named { kind, namespace, name } = named;
    match kind {
        Kind::IpamConfiguration if name == CONFIG_NAME => store.get(&Key::IpamConfig).await,
        Kind::IpamConfiguration => Ok(None),
        Kind::IpamHandle => store.get(&Key::Handle(name.into())).await,
        Kind::IpamBlock | Kind::BlockAffinity => find_by_shown_name(store, *kind, name).await,
        _ => {
            let key = |name| Key::Resource { kind: *kind, namespace: namespace.clone(), name };
            if records::is_default_profile(&key(name.clone())) {
                return Ok(Some(records::default_profile()));
            }
            match store.get(&key(name.clone())).await? {
                None if kind.is_tiered() => {
                    let legacy = store.get(&key(format!("{LEGACY_POLICY_PREFIX}{name}"))).await?;
                    // A policy may also really be called so.
                    Ok(legacy.filter(|record| records::name(record) == *name))
                }
                found => Ok(found),
            }
        }
    }
}

/// Blocks and affinities are found by the network itself or by the name that Kubernetes gives their resource.
async fn find_by_shown_name(
    store: &Arc<dyn Store>,
    kind: Kind,
    name: &str,
) -> Result<Option<Record>, StoreError> {
    if let (Kind::IpamBlock, Ok(cidr)) = (kind, name.parse::<Cidr>()) {
        return store.get(&Key::Block(cidr)).await;
    }
    let mut pages = Pages::new(store, kind, None);
    while let Some(page) = pages.next().await? {
        let is_meant = |record: &Record| match &record.key {
            Key::Block(cidr) => cidr.to_string().replace(['.', ':', '/'], "-") == name,
            _ => records::name(record) == name,
        };
        if let Some(record) = page.records.into_iter().find(is_meant) {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

/// All records of a kind. While one page is worked on, the next is fetched.
pub(crate) struct Pages {
    store: Arc<dyn Store>,
    requests: VecDeque<ListRequest>,
    ahead: Option<(ListRequest, JoinHandle<Result<ListPage, StoreError>>)>,
}

impl Pages {
    pub(crate) fn new(store: &Arc<dyn Store>, kind: Kind, namespace: Option<&str>) -> Pages {
        let ranges = records::ranges(kind, namespace).into_iter();
        let requests = ranges.map(|range| ListRequest::new(range).with_limit(FETCH)).collect();
        Pages { store: store.clone(), requests, ahead: None }
    }

    /// The next page; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<ListPage>, StoreError> {
        if self.ahead.is_none() {
            self.fetch_ahead();
        }
        let Some((request, fetch)) = self.ahead.take() else { return Ok(None) };
        let mut page = fetch.await.map_err(|error| StoreError::Other {
            operation: "reading a page".to_owned(),
            source: Box::new(error),
        })??;
        if let Some(next) = page.next.take() {
            self.requests.push_front(request.continued(next));
        }
        self.fetch_ahead();
        Ok(Some(page))
    }

    fn fetch_ahead(&mut self) {
        let Some(request) = self.requests.pop_front() else { return };
        let (store, asked) = (self.store.clone(), request.clone());
        self.ahead = Some((request, tokio::spawn(async move { store.list(asked).await })));
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some((_, fetch)) = &self.ahead {
            fetch.abort();
        }
    }
}
