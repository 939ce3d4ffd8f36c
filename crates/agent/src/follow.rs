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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use store::MemoryStore;
    use tokio::sync::mpsc;

    use super::*;

    fn pool(name: &str) -> Key {
        Key::cluster(Kind::IpPool, name)
    }

    /// Whatever was forgotten while it did not look: it learns of what is there, and goes on.
    #[tokio::test]
    async fn forgotten_history_leads_to_a_new_list() {
        let memory = Arc::new(MemoryStore::new());
        let store: Arc<dyn Store> = memory.clone();
        let (sender, mut heard) = mpsc::unbounded_channel();
        let followed = store.clone();
        let follower = tokio::spawn(async move {
            let tell = |told| drop(sender.send(told));
            follow(&*followed, KeyRange::Kind(Kind::IpPool), "pools", tell).await;
        });
        let mut known = std::collections::BTreeSet::new();
        for round in 0..20 {
            let name = format!("p{round}");
            // On one thread: the follower sees nothing of this before it is all done.
            store.create(pool(&name), b"{}".to_vec()).await.unwrap();
            if round % 2 == 0 {
                memory.forget_history();
            }
            let learn = async {
                while !known.contains(&pool(&name)) {
                    match heard.recv().await.expect("it goes on") {
                        Told::Listed(record) | Told::Put(record) => drop(known.insert(record.key)),
                        Told::Listing | Told::Complete | Told::Deleted(_) | Told::Lost => {}
                    }
                }
            };
            tokio::time::timeout(testkit::PATIENCE, learn).await.expect("it learns of the change");
        }
        follower.abort();
    }
}
