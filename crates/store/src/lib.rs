//! One door to the records, whatever keeps them: memory (simulation), SQLite, etcd, Kubernetes.
//!
//! The contract is written on [`Store`] and on the types it uses; `tests/contract/` holds every backend to it.

mod backoff;
pub mod config;
mod error;
pub mod etcd;
pub mod kube;
mod memory;
mod open;
mod request;
pub mod sqlite;
mod steps;
mod types;
mod watch;
#[cfg(any(test, feature = "wrap"))]
pub mod wrap;

use async_trait::async_trait;
use model::{AffinityOwner, IpVersion, Key, KeyRange, Kind};

pub use backoff::RelistPauses;
pub use config::StoreConfig;
pub use error::StoreError;
pub use memory::MemoryStore;
pub use open::open;
pub use request::MAX_CHANGES;
pub use sqlite::{OpenMode, SqliteStore};
pub use types::{
    Capabilities, Change, Committed, Continuation, Event, ListPage, ListRequest, Lookup, Precondition,
    Record, Revision, Write,
};
pub use watch::Watch;

/// A place that keeps records.
///
/// Rules every backend keeps:
/// * A revision is opaque. It may be compared for equality and handed back, nothing else. A precondition with a
///   revision that never was is simply not met.
/// * Every change is conditional: see [`Precondition`]. A refused change leaves no trace, and the error speaks of
///   the first change, in the order given, whose precondition does not hold: [`StoreError::AlreadyExists`] with
///   the record that is in the way, [`StoreError::NotFound`], or [`StoreError::Conflict`] with the record as it
///   now is.
/// * A commit that only relies on records ([`Write::Nothing`]), or that is empty, makes no new revision and no
///   event. One key twice, a deletion of what must be absent, a key that cannot be spelled in Calico's layout,
///   or more than [`MAX_CHANGES`] changes are [`StoreError::Invalid`].
/// * `commit` takes the changes that belong together, in an order in which they may also be done one by one.
///   A backend with [`Capabilities::atomic_commits`] does all or none. One without does them in that order and
///   stops at the first that fails: if some were done by then it says so with [`StoreError::Stopped`], else
///   the error is that of the first change.
/// * A key that cannot be spelled is [`StoreError::Invalid`] for `get` and `read`, too.
/// * A list is one consistent view: all its pages show the same moment, or it fails with
///   [`StoreError::HistoryGone`] and the caller starts over.
/// * A watch from a list's revision shows every later change exactly once, in order, or [`Event::HistoryGone`].
///   The events of one commit come together, in the order of its changes. Without [`Capabilities::atomic_commits`] the
///   order is that of each kind: a watch over several kinds shows them as they arrive.
/// * History may be forgotten under a running watch. If changes that the watch has not handed out were among it, the
///   watch either hands out all of them all the same (the backend had them at hand: etcd has sent them, SQLite's own process
///   made them) or reports [`Event::HistoryGone`]; which of the two is the backend's choice, and so is whether changes
///   outside its range count. It never drops a change of its range in silence: whoever waits for that change gets it or
///   `HistoryGone`. A watch that had handed out everything goes on.
/// * A store that went back in time (a backup was restored), or another one in its place, ends every watch with
///   [`Event::HistoryGone`] or an error, and never gives out a revision a second time for something else, as far as it can
///   know those given out before.
/// * Keys that are not ours (Felix status, legacy markers) may lie in the store. Lists and watches pass over them.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    fn capabilities(&self) -> Capabilities;

    /// Kubernetes' own objects, where they show records: whoever wants both reads them once.
    fn objects(&self) -> Option<kube::KubeObjects> {
        None
    }

    /// The record, or `None` if there is none.
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError>;

    /// Whether a commit is made by a thread of this process that keeps off the CPU of whoever waits for it. If not, it is
    /// made elsewhere, and what is exchanged passes through the caller's runtime.
    fn commits_apart(&self) -> bool {
        false
    }

    /// Whether affinities of an owner are found only by labels that each must have.
    fn needs_labels(&self) -> bool {
        false
    }

    /// One page of a list, in key order.
    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError>;

    /// Several records and ranges, for ranges that are known to be small: one answer per lookup, in order. For a
    /// record that is not there the answer is empty; the records of a range come in key order.
    ///
    /// A backend with [`Capabilities::atomic_commits`] shows all of them at one moment, so no commit is seen half,
    /// and takes one round trip for up to [`MAX_CHANGES`] lookups. One without may, as this default does, read one
    /// after the other: whoever relies on their agreement requires them in its commit.
    async fn read(&self, lookups: Vec<Lookup>) -> Result<Vec<Vec<Record>>, StoreError> {
        let mut answers = Vec::with_capacity(lookups.len());
        for lookup in lookups {
            answers.push(match lookup {
                Lookup::Record(key) => self.get(&key).await?.into_iter().collect(),
                Lookup::Range(range) => pages(self, range).await?.0,
            });
        }
        Ok(answers)
    }

    /// Makes changes that belong together.
    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError>;

    /// Whether the store can be read and, as far as can be found out without changing any record, written now. An error is what
    /// the next request would meet. Cheap: made to be called every few seconds.
    async fn probe(&self) -> Result<(), StoreError> {
        self.get(&Key::cluster(Kind::ClusterInformation, "default")).await.map(drop)
    }

    /// Every change to `range` after `after`. Ends only when dropped; connection loss is mended inside.
    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError>;
}

/// What follows from the trait alone.
impl dyn Store + '_ {
    /// Every record of a range, page by page, at one moment. For ranges that are known to be small; a table of
    /// endpoints goes page by page.
    pub async fn list_all(&self, range: KeyRange) -> Result<(Vec<Record>, Revision), StoreError> {
        pages(self, range).await
    }

    /// What to read for the affinities of an owner. Where they are found by labels, those without any are read as well: Calico wrote none
    /// before 3.31. They are those of all owners, so callers look again at what they get.
    pub fn affinity_lookups(&self, owner: &AffinityOwner) -> Vec<Lookup> {
        let mut ranges = vec![
            KeyRange::AffinitiesOf(owner.clone(), IpVersion::V4),
            KeyRange::AffinitiesOf(owner.clone(), IpVersion::V6),
        ];
        if self.needs_labels() {
            ranges.push(KeyRange::UnlabelledAffinities);
        }
        ranges.into_iter().map(Lookup::Range).collect()
    }

    /// The affinities of an owner, whether they have labels or not.
    pub async fn affinities_of(&self, owner: &AffinityOwner) -> Result<Vec<Record>, StoreError> {
        Ok(of_owner(owner, self.read(self.affinity_lookups(owner)).await?.concat()))
    }

    /// Makes a record that must not exist yet.
    pub async fn create(&self, key: Key, value: Vec<u8>) -> Result<Revision, StoreError> {
        self.commit_one(Change::create(key, value)).await
    }

    /// Replaces a record that must still be at `revision`.
    pub async fn update(&self, key: Key, value: Vec<u8>, revision: Revision) -> Result<Revision, StoreError> {
        self.commit_one(Change::update(key, value, revision)).await
    }

    /// Removes a record that must still be at `revision`.
    pub async fn delete(&self, key: Key, revision: Revision) -> Result<Revision, StoreError> {
        self.commit_one(Change::delete(key, revision)).await
    }

    async fn commit_one(&self, change: Change) -> Result<Revision, StoreError> {
        Ok(self.commit(vec![change]).await?.revisions.remove(0))
    }
}

/// The affinities of an owner among what [`affinity_lookups`](#method.affinity_lookups) has found, each once and in the order of a list.
pub fn of_owner(owner: &AffinityOwner, records: impl IntoIterator<Item = Record>) -> Vec<Record> {
    let is_its = |record: &Record| matches!(&record.key, Key::Affinity { owner: its, .. } if its == owner);
    let mut records: Vec<Record> = records.into_iter().filter(is_its).collect();
    records.sort_by_cached_key(|record| record.key.etcd_text());
    // One that was labelled between two of the lists is in both.
    records.dedup_by(|later, earlier| later.key == earlier.key);
    records
}

async fn pages<S: Store + ?Sized>(store: &S, range: KeyRange) -> Result<(Vec<Record>, Revision), StoreError> {
    let mut records = Vec::new();
    let mut request = ListRequest::new(range);
    loop {
        let page = store.list(request.clone()).await?;
        records.extend(page.records);
        match page.next {
            Some(next) => request = request.continued(next),
            None => return Ok((records, page.revision)),
        }
    }
}
