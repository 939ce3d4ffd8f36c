//! Following a part of the store: a list, then every change, and a new list when the store has forgotten too much.

use std::time::Duration;

use model::{Key, KeyRange, Kind, Resource};
use store::{Event, ListRequest, Record, Store, StoreError};
use tracing::{info, warn};

const RETRY_DELAY: Duration = Duration::from_secs(1);

/// What there is to hear, in this order: `Listing`, a `Listed` for each record, `Complete`, and then changes. It starts over
/// after `Lost`; until the next `Complete` what is known may be out of date.
#[derive(Debug)]
pub(crate) enum Told {
    Listing,
    Listed(Record),
    Complete,
    Put(Record),
    Deleted(Key),
    Lost,
}

/// Never ends. While the store does not answer there is nothing to hear.
pub(crate) async fn follow(store: &dyn Store, range: KeyRange, what: &str, mut tell: impl FnMut(Told)) {
    loop {
        match list_and_watch(store, &range, &mut tell).await {
            Ok(()) => info!("the store has forgotten too much; listing the {what} again"),
            Err(error) => {
                warn!(%error, "the {what} cannot be listed; trying again");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
        tell(Told::Lost);
    }
}

/// The resource in a record. What cannot be understood is said; whoever follows it leaves things as they were.
pub(crate) fn decode(record: &Record, kind: Kind) -> Option<Resource> {
    let decoded = Resource::decode(&record.key, kind, &record.value, record.revision.as_str());
    decoded.inspect_err(|error| warn!("{error}; what follows from it stays as it is")).ok()
}

async fn list_and_watch(
    store: &dyn Store,
    range: &KeyRange,
    tell: &mut impl FnMut(Told),
) -> Result<(), StoreError> {
    tell(Told::Listing);
    let mut request = ListRequest::new(range.clone());
    let revision = loop {
        // Page by page: what is not kept of a page is gone before the next.
        let page = store.list(request.clone()).await?;
        page.records.into_iter().for_each(|record| tell(Told::Listed(record)));
        match page.next {
            Some(next) => request = request.continued(next),
            None => break page.revision,
        }
    };
    tell(Told::Complete);
    let mut watch = store.watch(range.clone(), revision).await?;
    loop {
        match watch.next().await.transpose()? {
            Some(Event::Put(record)) => tell(Told::Put(record)),
            Some(Event::Deleted { key, .. }) => tell(Told::Deleted(key)),
            Some(Event::HistoryGone) | None => return Ok(()),
        }
    }
}
