//! Following a part of the store: a list, then a watch, and a new list when the watch fell behind the store's history.

use model::{Key, KeyRange, Kind, Resource};
use store::{Event, ListRequest, Record, RelistPauses, Store, StoreError};
use tracing::{info, warn};

/// Updates arrive in this order: `ListBegins`, a `Listed` for each record, `ListEnds`, and then changes. After `OutOfSync` it starts again;
/// until the next `ListEnds` the cached records may be out of date.
#[derive(Debug)]
pub(crate) enum Update {
    ListBegins,
    Listed(Record),
    ListEnds,
    Put(Record),
    Deleted(Key),
    OutOfSync,
}

/// Never ends. There are no updates while the store does not answer.
pub(crate) async fn follow(
    store: &dyn Store,
    range: KeyRange,
    what: &str,
    mut on_update: impl FnMut(Update),
) {
    let mut pauses = RelistPauses::default();
    loop {
        pauses.begin();
        let ended = list_and_watch(store, &range, &mut |update| {
            match &update {
                Update::ListEnds => pauses.has_listed(),
                Update::Put(_) | Update::Deleted(_) => pauses.was_of_use(),
                Update::ListBegins | Update::Listed(_) | Update::OutOfSync => {}
            }
            on_update(update);
        })
        .await;
        match &ended {
            Ok(()) => info!("the watch fell behind the store's history; listing the {what} again"),
            Err(error) => warn!(%error, "cannot follow the {what} in the store; retrying"),
        }
        // Before the pause: nobody is to rely on what may be out of date.
        on_update(Update::OutOfSync);
        tokio::time::sleep(pauses.before_next(&ended)).await;
    }
}

/// The resource in a record. An unreadable one is logged, and its followers keep the state they have.
pub(crate) fn decode(record: &Record, kind: Kind) -> Option<Resource> {
    let decoded = Resource::decode(&record.key, kind, &record.value, record.revision.as_str());
    decoded
        .inspect_err(|error| warn!(%error, "cannot read a record; its last readable version stays in use"))
        .ok()
}

async fn list_and_watch(
    store: &dyn Store,
    range: &KeyRange,
    on_update: &mut impl FnMut(Update),
) -> Result<(), StoreError> {
    on_update(Update::ListBegins);
    let mut request = ListRequest::new(range.clone());
    let revision = loop {
        // Page by page, so that memory holds only one page of records that are not cached.
        let page = store.list(request.clone()).await?;
        page.records.into_iter().for_each(|record| on_update(Update::Listed(record)));
        match page.next {
            Some(next) => request = request.continued(next),
            None => break page.revision,
        }
    };
    on_update(Update::ListEnds);
    let mut watch = store.watch(range.clone(), revision).await?;
    loop {
        match watch.next().await.transpose()? {
            Some(Event::Put(record)) => on_update(Update::Put(record)),
            Some(Event::Deleted { key, .. }) => on_update(Update::Deleted(key)),
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

    /// After any gap in the history it receives every record, and goes on.
    #[tokio::test]
    async fn forgotten_history_leads_to_a_new_list() {
        let memory = Arc::new(MemoryStore::new());
        let store: Arc<dyn Store> = memory.clone();
        let (sender, mut updates) = mpsc::unbounded_channel();
        let followed = store.clone();
        let follower = tokio::spawn(async move {
            let on_update = |update| drop(sender.send(update));
            follow(&*followed, KeyRange::Kind(Kind::IpPool), "pools", on_update).await;
        });
        let mut received = std::collections::BTreeSet::new();
        for round in 0..20 {
            let name = format!("p{round}");
            // On one thread: the follower does not run before this is done.
            store.create(pool(&name), b"{}".to_vec()).await.unwrap();
            if round % 2 == 0 {
                memory.forget_history();
            }
            let receive = async {
                while !received.contains(&pool(&name)) {
                    match updates.recv().await.expect("it goes on") {
                        Update::Listed(record) | Update::Put(record) => drop(received.insert(record.key)),
                        Update::ListBegins | Update::ListEnds | Update::Deleted(_) | Update::OutOfSync => {}
                    }
                }
            };
            tokio::time::timeout(testkit::PATIENCE, receive).await.expect("it receives the change");
        }
        follower.abort();
    }
}
