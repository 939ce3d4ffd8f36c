//! What is done now and then: recovery, the reuse delay, settings, numbers.

use std::time::Duration;

use ipam::{
    Answer, Corrupt, Fault, Pool, PoolUsage, Repair, Reservations, Stored, pool_usage, recover, seen_twice,
    settle_cooldown,
};
use model::ipam::IpamConfig;
use model::{AffinityOwner, IpVersion, Key, KeyRange, Kind};
use store::{Change, ListRequest, Lookup, Record, StoreError};
use tracing::debug;

use crate::BookError;
use crate::book::{Book, Inner};
use crate::load::{self, Progress};
use crate::look;
use crate::scene::{cooldown_seconds, decode, understand_config, understandable_pools};

/// More passes than that mean that someone breaks things as fast as they are put right.
const PASSES_MAX: usize = 8;

/// How to be sure that nobody is at work on what looks unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// Not at all: whoever is at work loses a race and starts over. For stores that nobody else writes to, and for
    /// tests.
    Once,
    /// Only what two looks, so far apart, found at the very same revisions.
    Twice { apart: Duration },
}

impl Default for Looks {
    fn default() -> Looks {
        Looks::Twice { apart: Duration::from_secs(60) }
    }
}

/// What a recovery pass did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovery {
    /// What was put right.
    pub repaired: Vec<Fault>,
    /// What was not: someone changed it meanwhile. The next pass looks again.
    pub left: Vec<Fault>,
    /// Records that contradict themselves or cannot be read. They are left alone, and so is what speaks of them.
    pub unreadable: Vec<Corrupt>,
}

impl Book {
    /// Puts right what interrupted operations left behind. No address is freed and no block in use deleted; see
    /// [`ipam::recover`].
    pub async fn recover(&self, looks: Looks) -> Result<Recovery, BookError> {
        let mut recovery = Recovery::default();
        let first = match looks {
            Looks::Once => None,
            Looks::Twice { apart } => {
                let first = self.inner.faults(&mut recovery).await?;
                if first.is_empty() {
                    return Ok(recovery);
                }
                tokio::time::sleep(apart).await;
                Some(first)
            }
        };
        for _ in 0..PASSES_MAX {
            let mut repairs = self.inner.faults(&mut recovery).await?;
            if let Some(first) = &first {
                repairs = seen_twice(first, repairs);
            }
            if repairs.is_empty() || !self.inner.repair(repairs, &mut recovery).await? {
                break;
            }
        }
        Ok(recovery)
    }

    /// The same, but only if there are at most so many handles: for those who do it unasked. `None` if there are more.
    pub async fn recover_if_few(
        &self,
        looks: Looks,
        handles_max: usize,
    ) -> Result<Option<Recovery>, BookError> {
        let request = ListRequest::new(KeyRange::Handles).with_limit(handles_max);
        if self.inner.store.list(request).await?.next.is_some() {
            return Ok(None);
        }
        self.recover(looks).await.map(Some)
    }

    /// Gives a node's affinities the labels by which it finds them, on a store where that takes labels: Calico wrote none before
    /// 3.31. Says how many had none.
    pub async fn label_affinities(&self, node: &str) -> Result<usize, BookError> {
        self.inner.label_affinities(node).await.map_err(BookError::from)
    }

    /// Frees what has cooled down long enough, in blocks that nobody takes from. Says how many blocks were written.
    pub async fn settle_cooldown(&self) -> Result<usize, BookError> {
        let inner = &self.inner;
        let config = inner.store.get(&Key::IpamConfig).await?;
        let seconds = cooldown_seconds(understand_config(config.as_ref())?.as_ref());
        let required = inner.read_required().await?;
        let mut settled = 0;
        for version in [IpVersion::V4, IpVersion::V6] {
            let mut request = ListRequest::new(KeyRange::Blocks(version));
            loop {
                let page = inner.store.list(request.clone()).await?;
                for record in &page.records {
                    settled += usize::from(inner.settle(record, seconds, &required).await?);
                }
                match page.next {
                    Some(next) => request = request.continued(next),
                    None => break,
                }
            }
        }
        Ok(settled)
    }

    /// The settings that hold.
    pub async fn config(&self) -> Result<IpamConfig, BookError> {
        let record = self.inner.store.get(&Key::IpamConfig).await?;
        Ok(understand_config(record.as_ref())?.map(|stored| stored.value).unwrap_or_default())
    }

    /// Changes the settings. `change` may be called again if someone else changes them at the same time.
    pub async fn change_config(&self, change: impl Fn(&mut IpamConfig)) -> Result<IpamConfig, BookError> {
        let inner = &self.inner;
        let mut patience = inner.patience();
        loop {
            let record = inner.store.get(&Key::IpamConfig).await?;
            let stored: Option<Stored<IpamConfig>> = understand_config(record.as_ref())?;
            let before = stored.map(|stored| stored.value).unwrap_or_default();
            let mut config = before.clone();
            change(&mut config);
            let write = match record {
                Some(_) if config == before => return Ok(config),
                Some(record) => Change::update(record.key, config.encode(), record.revision),
                None => Change::create(Key::IpamConfig, config.encode()),
            };
            match inner.store.commit(vec![write]).await {
                Ok(_) => return Ok(config),
                Err(error) => patience.after(error).await?,
            }
        }
    }

    /// How full the pools are. What cannot be read is not counted.
    pub async fn usage(&self) -> Result<Vec<PoolUsage>, BookError> {
        let store = &*self.inner.store;
        let kinds = [Kind::IpPool, Kind::IpReservation].map(|kind| Lookup::Range(KeyRange::Kind(kind)));
        let mut answers = store.read(kinds.into()).await?.into_iter();
        let pools: Vec<Pool> = understandable_pools(&answers.next().unwrap_or_default());
        let mut reserved = Vec::new();
        for record in answers.next().unwrap_or_default() {
            reserved.extend(ipam::reserved_networks(&decode(&record, Kind::IpReservation)?));
        }
        let books = load::books(store, &Progress::default()).await?;
        let blocks = books.blocks.values().map(|stored| &stored.value).filter(|block| !block.deleted);
        Ok(pool_usage(&pools, blocks, &Reservations::new(&reserved)))
    }
}

impl Inner {
    pub(crate) async fn label_affinities(&self, node: &str) -> Result<usize, StoreError> {
        // Only there are they labelled.
        if self.store.capabilities().endpoints_are_records {
            return Ok(0);
        }
        let (unlabelled, _) = self.store.list_all(KeyRange::UnlabelledAffinities).await?;
        let own = AffinityOwner::Host(node.to_owned());
        let mut labelled = 0;
        for record in unlabelled {
            if !matches!(&record.key, Key::Affinity { owner, .. } if *owner == own) {
                continue;
            }
            // The store writes the labels with whatever is written.
            match self.store.update(record.key, record.value.to_vec(), record.revision).await {
                Ok(_) => labelled += 1,
                // Whoever wrote it has labelled it, or removed it.
                Err(error) if error.is_lost_race() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(labelled)
    }

    async fn faults(&self, recovery: &mut Recovery) -> Result<Vec<Repair>, BookError> {
        let books = load::books(&*self.store, &Progress::default()).await?;
        let repairs = recover(&books);
        recovery.unreadable = books.unreadable;
        Ok(repairs)
    }

    /// Whether any of them worked out.
    async fn repair(&self, repairs: Vec<Repair>, recovery: &mut Recovery) -> Result<bool, BookError> {
        let required = self.read_required().await?;
        recovery.left.clear();
        let before = recovery.repaired.len();
        for Repair { fault, steps } in repairs {
            match self.carry_out(required.clone(), &steps).await {
                Ok(()) => recovery.repaired.push(fault),
                // A node's credential may not put right what is another node's.
                Err(error) if error.is_lost_race() || matches!(error, StoreError::AccessDenied { .. }) => {
                    debug!("{fault:?}: {error}");
                    recovery.left.push(fault);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(recovery.repaired.len() > before)
    }

    async fn settle(&self, record: &Record, seconds: i64, required: &[Change]) -> Result<bool, BookError> {
        let Answer::Block(stored) = look::read(&record.key, Some(record)) else { return Ok(false) };
        let Some(steps) = settle_cooldown(&stored, self.now(), seconds) else { return Ok(false) };
        match self.carry_out(required.to_vec(), &steps).await {
            Ok(()) => Ok(true),
            // Whoever wrote it has done the same.
            Err(error) if error.is_lost_race() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
