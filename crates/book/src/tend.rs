//! Putting right what claims and releases of the node's own blocks have left that were cut off, on a store without transactions.
//!
//! Every such operation first says in an affinity that it is under way ([`ipam::step`]), and the node's affinities are followed
//! ([`crate::warm`]). So looking costs nothing: only what stands half done for a while, at the same revision, is read and put right.
//! This runs from the start on, and finds what a predecessor has left. Handles that count too much are not looked for: that would
//! take a list of all handles. The release of their sandbox puts them right, as does [`crate::Book::recover`].

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use ipam::{Books, Repair, recover_claims};
use model::Key;
use store::StoreError;
use tokio::task::JoinSet;
use tracing::{debug, info};

use crate::book::Inner;
use crate::look::Reader;
use crate::scene::{Lock, cluster_information};

/// The task that does it. It ends with the book.
#[derive(Debug, Default)]
pub(crate) struct Tending(OnceLock<JoinSet<()>>);

pub(crate) fn start(inner: &Arc<Inner>) {
    let mut task = JoinSet::new();
    let (weak, every) = (Arc::downgrade(inner), inner.settings.tend_every);
    task.spawn(async move {
        let mut before = BTreeMap::new();
        loop {
            let Some(inner) = weak.upgrade() else { return };
            before = inner.tend(before).await;
            drop(inner);
            tokio::time::sleep(every).await;
        }
    });
    let _ = inner.tending.0.set(task);
}

impl Inner {
    /// Puts right what was unfinished before and still is. Gives what is unfinished now.
    async fn tend(&self, before: BTreeMap<Key, String>) -> BTreeMap<Key, String> {
        let Some(warm) = &self.warm else { return BTreeMap::new() };
        let now = warm.unfinished();
        let lasting = now.iter().filter(|(key, revision)| before.get(*key) == Some(revision));
        let lasting: Vec<Key> = lasting.map(|(key, _)| key.clone()).collect();
        if !lasting.is_empty()
            && let Err(error) = self.finish_claims(lasting).await
        {
            debug!("what was left half done stays so for now: {error}");
        }
        now
    }

    async fn finish_claims(&self, affinities: Vec<Key>) -> Result<(), StoreError> {
        if self.settings.heeds_lock {
            let record = self.store.get(&cluster_information()).await?;
            if !matches!(Lock::understand(record.as_ref()), Ok(Lock::Unlocked(_))) {
                return Ok(());
            }
        }
        let blocks = affinities.iter().filter_map(|key| match key {
            Key::Affinity { block, .. } => Some(Key::Block(*block)),
            _ => None,
        });
        let keys = blocks.chain(affinities.iter().cloned()).collect();
        let mut books = Books::default();
        for (key, answer) in Reader::new(&self.store).look(keys).await? {
            books.add(&key, answer);
        }
        for Repair { fault, steps } in recover_claims(&books) {
            match self.carry_out(Vec::new(), &steps).await {
                Ok(()) => info!("put right: {fault:?}"),
                Err(error) => debug!("{fault:?}: {error}"),
            }
        }
        Ok(())
    }
}
