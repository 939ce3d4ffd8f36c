//! Keeping one part of the memory in step with the store: list, watch, and list again when the watch is lost.

use bytes::Bytes;
use model::{AffinityOwner, IpVersion, Key, KeyRange, Kind};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Event, Record, RelistPauses, Revision, Store, StoreError};
use tracing::{debug, warn};

use super::{Memory, State};

/// What is followed, each by a watch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    ClusterInformation,
    Config,
    Pools,
    Reservations,
    Node,
    AffinitiesV4,
    AffinitiesV6,
}

impl Part {
    pub(super) const ALL: [Part; 7] = [
        Part::ClusterInformation,
        Part::Config,
        Part::Pools,
        Part::Reservations,
        Part::Node,
        Part::AffinitiesV4,
        Part::AffinitiesV6,
    ];

    fn range(self, host: &str) -> KeyRange {
        let affinities = |version| KeyRange::AffinitiesOf(AffinityOwner::Host(host.to_owned()), version);
        match self {
            Part::ClusterInformation => KeyRange::Kind(Kind::ClusterInformation),
            Part::Config => KeyRange::IpamConfig,
            Part::Pools => KeyRange::Kind(Kind::IpPool),
            Part::Reservations => KeyRange::Kind(Kind::IpReservation),
            // Its labels are what matters.
            Part::Node => KeyRange::NodeInBrief(host.to_owned()),
            Part::AffinitiesV4 => affinities(IpVersion::V4),
            Part::AffinitiesV6 => affinities(IpVersion::V6),
        }
    }

    /// Some ranges hold neighbours, too.
    fn is_meant(self, key: &Key, host: &str) -> bool {
        match self {
            Part::ClusterInformation => *key == crate::scene::cluster_information(),
            Part::Node => *key == Key::cluster(Kind::Node, host),
            _ => true,
        }
    }

    /// The part that an affinity is in.
    pub(super) fn of(key: &Key) -> Option<Part> {
        let Key::Affinity { block, .. } = key else { return None };
        Some(match block.version() {
            IpVersion::V4 => Part::AffinitiesV4,
            IpVersion::V6 => Part::AffinitiesV6,
        })
    }
}

/// Never ends by itself.
pub(super) async fn follow(store: Arc<dyn Store>, memory: Arc<Memory>, part: Part, host: String) {
    let mut pauses = RelistPauses::default();
    loop {
        pauses.begin();
        let on_progress = |progress| match progress {
            Progress::Listed => pauses.has_listed(),
            Progress::Told => pauses.was_of_use(),
        };
        let ended = follow_once(&*store, &memory, part, &host, on_progress).await;
        {
            let mut state = memory.lock();
            state.parts.insert(part, None);
            state.scene = None;
            memory.tell_synced(&state);
        }
        match &ended {
            Ok(()) => debug!("the history of {part:?} is gone; listing again"),
            Err(error) => warn!("cannot follow {part:?}: {error}"),
        }
        tokio::time::sleep(pauses.before_next(&ended)).await;
    }
}

enum Progress {
    Listed,
    Told,
}

/// Until the history is gone.
async fn follow_once(
    store: &dyn Store,
    memory: &Memory,
    part: Part,
    host: &str,
    mut on_progress: impl FnMut(Progress),
) -> Result<(), StoreError> {
    let (records, revision) = store.list_all(part.range(host)).await?;
    on_progress(Progress::Listed);
    // Watching before the list is used: nothing is missed, and a watch that cannot be had is no reason for joy.
    let mut watch = store.watch(part.range(host), revision).await?;
    let records = records.into_iter().filter(|record| part.is_meant(&record.key, host));
    {
        let mut state = memory.lock();
        state.replace(part, records.map(|record| (record.key.clone(), record)).collect());
        memory.tell_synced(&state);
    }
    while let Some(event) = watch.next().await {
        let event = event?;
        if !matches!(event, Event::HistoryGone) {
            on_progress(Progress::Told);
        }
        match event {
            Event::HistoryGone => return Ok(()),
            Event::Put(record) if part.is_meant(&record.key, host) => {
                let (key, revision) = (record.key.clone(), record.revision.clone());
                memory.lock().apply(part, key, Some(record), &revision);
            }
            Event::Deleted { key, revision } if part.is_meant(&key, host) => {
                memory.lock().apply(part, key, None, &revision);
            }
            Event::Put(_) | Event::Deleted { .. } => {}
        }
    }
    Ok(())
}

impl State {
    fn replace(&mut self, part: Part, records: BTreeMap<Key, Record>) {
        // The list may be older or newer than own changes that wait for their events. Without them it costs an attempt
        // at worst.
        self.own.retain(|key, _| Part::of(key) != Some(part));
        self.parts.insert(part, Some(records));
        self.scene = None;
    }

    fn apply(&mut self, part: Part, key: Key, record: Option<Record>, revision: &Revision) {
        // Kubernetes does not tell the revision of a deletion, but shows the deletion itself.
        let is_awaited = |(value, awaited): &(Option<Bytes>, Revision)| {
            awaited == revision || value.is_none() && record.is_none()
        };
        if self.own.get(&key).is_some_and(is_awaited) {
            self.own.remove(&key);
        }
        if let (None, Key::Affinity { block, .. }) = (&record, &key)
            && !self.own.contains_key(&key)
        {
            self.blocks.remove(block);
        }
        let Some(Some(records)) = self.parts.get_mut(&part) else { return };
        match record {
            Some(record) => drop(records.insert(key, record)),
            None => drop(records.remove(&key)),
        }
        self.scene = None;
    }
}
