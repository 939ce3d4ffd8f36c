//! `plumb ipam release`: gives back what nobody uses, by address or by report.

mod by_address;
mod by_report;
mod in_use;

use std::sync::Arc;

use book::{Book, BookError, Settings};
use ipam::{AddressRelease, Answer, Decision, Next, ReleaseItem, Unreleased};
use store::{Lookup, MAX_CHANGES, Store, StoreError};

use super::pools;
use crate::cli::{Global, IpamRelease};
use crate::connect;
use crate::failure::{Failure, Failures};

pub(crate) async fn run(global: &Global, release: &IpamRelease) -> Result<(), Failures> {
    if release.from_report.is_empty() {
        by_address::run(global, release).await
    } else {
        by_report::run(global, release).await
    }
}

async fn open(global: &Global, release: &IpamRelease) -> Result<Arc<dyn Store>, Failure> {
    match release.dry_run.dry_run {
        true => connect::open_for_reading(global).await,
        false => connect::open_for_changing(global).await,
    }
}

/// Releases addresses, or with a dry run only finds out which could be.
struct Releaser {
    store: Arc<dyn Store>,
    book: Book,
    dry_run: bool,
}

#[derive(Debug, Default)]
struct Outcome {
    released: usize,
    unreleased: Vec<Unreleased>,
}

impl Releaser {
    fn new(store: Arc<dyn Store>, dry_run: bool) -> Releaser {
        // A locked store is where this is done best.
        let settings = Settings { heeds_lock: false, ..Settings::default() };
        Releaser { book: Book::with_settings(Arc::clone(&store), settings), store, dry_run }
    }

    async fn release(&self, items: Vec<ReleaseItem>) -> Result<Outcome, Failure> {
        if self.dry_run {
            return self.try_out(items).await;
        }
        let done = self.book.release_addresses(items).await.map_err(explain)?;
        for corrupt in &done.corrupt {
            eprintln!(
                "warning: {corrupt}; its addresses were released, but the record itself was not changed"
            );
        }
        Ok(Outcome { released: done.addresses.len(), unreleased: done.unreleased })
    }

    async fn try_out(&self, mut items: Vec<ReleaseItem>) -> Result<Outcome, Failure> {
        let pools = pools(&self.store).await?;
        let mut outcome = Outcome::default();
        while !items.is_empty() {
            let release = AddressRelease::new(items, pools.clone(), None, MAX_CHANGES);
            let Ok(tried) = decide(&self.store, release).await?;
            outcome.released += tried.addresses.len();
            outcome.unreleased.extend(tried.unreleased);
            items = tried.later;
        }
        Ok(outcome)
    }
}

fn explain(error: BookError) -> Failure {
    Failure::of(&error).maybe_hint(error.hint())
}

/// Drives a decision that only looks.
async fn decide<D: Decision>(
    store: &Arc<dyn Store>,
    mut decision: D,
) -> Result<Result<D::Outcome, D::Error>, StoreError> {
    loop {
        let keys = match decision.poll() {
            Ok(Next::Look(keys)) => keys,
            Ok(Next::Survey(_)) => unreachable!("a release looks only at what it names"),
            Ok(Next::Done(outcome)) => return Ok(Ok(outcome)),
            Err(error) => return Ok(Err(error)),
        };
        let found = store.read(keys.iter().cloned().map(Lookup::Record).collect()).await?;
        for (key, records) in keys.iter().zip(found) {
            let record = records.first().map(|record| (record.value.as_ref(), record.revision.as_str()));
            decision.show(key, Answer::read(key, record));
        }
    }
}
