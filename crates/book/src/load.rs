//! Whole parts of a store at once: the address book, and what else tells whether it is right.
//!
//! Lists are read page by page, several side by side; of each page only what is wanted is kept, so that its buffer can
//! go. Each list is one moment, but not the same one: what was found to disagree may just have changed in between.
//! Whoever concludes anything looks again at the records it is concluded from, with [`look_again`].

mod facts;

use std::sync::atomic::{AtomicUsize, Ordering};

use ipam::{Answer, Books, Corrupt};
use model::{Key, KeyRange, Kind};
use store::{ListRequest, Lookup, Record, Store, StoreError};

pub use facts::{Facts, Pools, Users, facts, pools, users};

/// How many records are asked for at once. A store may give fewer; etcd cuts its own, larger portions.
const PAGE: usize = 1_000;
/// How many records one look at many takes at once: what etcd accepts in one transaction as it comes out of the box.
const LOOKUPS: usize = 128;
/// How often a list is started over because the store has forgotten its moment.
const TRIES: usize = 3;

/// How much has been read so far. To be shared with whoever shows it.
#[derive(Debug, Default)]
pub struct Progress(AtomicUsize);

impl Progress {
    pub fn records(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Something else was read, such as objects that show records.
    pub fn add(&self, records: usize) {
        self.0.fetch_add(records, Ordering::Relaxed);
    }
}

/// All blocks, handles and affinities.
pub async fn books(store: &dyn Store, progress: &Progress) -> Result<Books, StoreError> {
    // In one list, because Kubernetes keeps both IP versions in one collection.
    let blocks = vec![KeyRange::AllBlocks];
    let affinities = vec![KeyRange::HostAffinities, KeyRange::VirtualAffinities];
    let (mut books, affinities, handles) = tokio::try_join!(
        gather(store, blocks, progress, add),
        gather(store, affinities, progress, add),
        gather(store, vec![KeyRange::Handles], progress, add),
    )?;
    for mut other in [affinities, handles] {
        books.affinities.append(&mut other.affinities);
        books.handles.append(&mut other.handles);
        books.unreadable.append(&mut other.unreadable);
    }
    Ok(books)
}

/// Blocks that cannot be read: each may hold addresses of any handle.
pub async fn unreadable_blocks(store: &dyn Store, progress: &Progress) -> Result<Vec<Corrupt>, StoreError> {
    let blocks = vec![KeyRange::AllBlocks];
    let keep = |unreadable: &mut Vec<Corrupt>, record: &Record| {
        let mut books = Books::default();
        add(&mut books, record);
        unreadable.append(&mut books.unreadable);
    };
    gather(store, blocks, progress, keep).await
}

/// Reads these blocks, handles and affinities again and puts them in the place of what is known about them.
///
/// Keys that belong together should stand together: as far as the store can, they are read at one moment.
pub async fn look_again(store: &dyn Store, books: &mut Books, keys: &[Key]) -> Result<(), StoreError> {
    for some in keys.chunks(LOOKUPS) {
        let lookups = some.iter().cloned().map(Lookup::Record).collect();
        for (key, mut found) in some.iter().zip(store.read(lookups).await?) {
            forget(books, key);
            if let Some(record) = found.pop() {
                add(books, &record);
            }
        }
    }
    Ok(())
}

fn add(books: &mut Books, record: &Record) {
    let answer = Answer::read(&record.key, Some((&record.value, record.revision.as_str())));
    books.add(&record.key, answer);
}

fn forget(books: &mut Books, key: &Key) {
    match key {
        Key::Block(cidr) => drop(books.blocks.remove(cidr)),
        Key::Handle(id) => drop(books.handles.remove(id)),
        Key::Affinity { owner, block } => drop(books.affinities.remove(&(owner.clone(), *block))),
        Key::Resource { .. } | Key::IpamConfig => {}
    }
    books.unreadable.retain(|corrupt| corrupt.key != *key);
}

/// Every record of these ranges, one after the other, given to `add` and dropped.
pub async fn gather<T: Default>(
    store: &dyn Store,
    ranges: Vec<KeyRange>,
    progress: &Progress,
    add: impl Fn(&mut T, &Record),
) -> Result<T, StoreError> {
    let mut tries = 1;
    loop {
        let mut gathered = T::default();
        match gather_once(store, &ranges, progress, &add, &mut gathered).await {
            Ok(()) => return Ok(gathered),
            // Very long lists on a store that forgets fast.
            Err(StoreError::HistoryGone { .. }) if tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

async fn gather_once<T>(
    store: &dyn Store,
    ranges: &[KeyRange],
    progress: &Progress,
    add: &impl Fn(&mut T, &Record),
    gathered: &mut T,
) -> Result<(), StoreError> {
    for range in ranges {
        let mut request = ListRequest::new(range.clone()).with_limit(PAGE);
        loop {
            let page = store.list(request.clone()).await?;
            progress.add(page.records.len());
            for record in &page.records {
                add(gathered, record);
            }
            match page.next {
                Some(next) => request = request.continued(next),
                None => break,
            }
        }
    }
    Ok(())
}

fn of_kind(kind: Kind) -> Vec<KeyRange> {
    vec![KeyRange::Kind(kind)]
}

fn unreadable(key: &Key, reason: impl ToString) -> Corrupt {
    Corrupt { key: key.clone(), contradictions: vec![reason.to_string()] }
}
