//! What an operation starts from: settings, pools, reservations, the node and its blocks, the lock.

use std::collections::BTreeMap;

use ipam::{Pool, Stored, Surroundings};
use jiff::Timestamp;
use model::ipam::{Affinity, AffinityState, IpamConfig};
use model::{AffinityOwner, Cidr, Key, KeyRange, Kind, Resource};
use serde_json::Value;
use store::{Change, Lookup, Record, Store, of_owner};
use tracing::warn;

use crate::error::BookError;

/// Where the lock is noted.
pub(crate) fn cluster_information() -> Key {
    Key::cluster(Kind::ClusterInformation, "default")
}

/// The records as they were read, not understood yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawScene {
    pub(crate) cluster_information: Option<Record>,
    pub(crate) config: Option<Record>,
    pub(crate) pools: Vec<Record>,
    pub(crate) reservations: Vec<Record>,
    pub(crate) node: Option<Record>,
    pub(crate) affinities: Vec<Record>,
}

impl RawScene {
    /// What to read for the blocks of an owner on a node, in one round trip. `by_labels_alone`: affinities that the store does not find by
    /// their labels have been given theirs.
    pub(crate) fn lookups(
        store: &dyn Store,
        host: &str,
        owner: &AffinityOwner,
        by_labels_alone: bool,
    ) -> Vec<Lookup> {
        let mut lookups = vec![
            Lookup::Record(cluster_information()),
            Lookup::Record(Key::IpamConfig),
            Lookup::Range(KeyRange::Kind(Kind::IpPool)),
            Lookup::Range(KeyRange::Kind(Kind::IpReservation)),
            Lookup::Record(Key::cluster(Kind::Node, host)),
        ];
        let affinities = store.affinity_lookups(owner).into_iter();
        let is_meant =
            |lookup: &Lookup| !by_labels_alone || *lookup != Lookup::Range(KeyRange::UnlabelledAffinities);
        lookups.extend(affinities.filter(is_meant));
        lookups
    }

    /// The answers to these lookups, in their order.
    pub(crate) fn from_answers(
        owner: &AffinityOwner,
        answers: impl IntoIterator<Item = Vec<Record>>,
    ) -> RawScene {
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        RawScene {
            cluster_information: next().pop(),
            config: next().pop(),
            pools: next(),
            reservations: next(),
            node: next().pop(),
            affinities: of_owner(owner, answers.flatten()),
        }
    }
}

/// The records, understood.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) lock: Lock,
    pub(crate) config: Option<Stored<IpamConfig>>,
    pub(crate) pools: Vec<Stored<Pool>>,
    pub(crate) reserved: Vec<Cidr>,
    pub(crate) node_labels: BTreeMap<String, String>,
    pub(crate) affinities: Vec<(Cidr, Stored<Affinity>)>,
}

/// Whether an operator has locked the store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Lock {
    Locked,
    /// With what a commit must require, so that a lock that comes in between is seen.
    Unlocked(Box<Change>),
}

impl Scene {
    pub(crate) fn understand(raw: &RawScene) -> Result<Scene, BookError> {
        let mut reserved = Vec::new();
        for record in &raw.reservations {
            reserved.extend(ipam::reserved_networks(&decode(record, Kind::IpReservation)?));
        }
        let node_labels = match &raw.node {
            Some(record) => decode(record, Kind::Node)?.metadata.labels,
            // A node without a record has no labels.
            None => BTreeMap::new(),
        };
        Ok(Scene {
            lock: Lock::understand(raw.cluster_information.as_ref())?,
            config: understand_config(raw.config.as_ref())?,
            pools: understand_pools(&raw.pools)?,
            reserved,
            node_labels,
            affinities: raw.affinities.iter().filter_map(understand_affinity).collect(),
        })
    }

    pub(crate) fn surroundings(&self, now: Timestamp) -> Surroundings {
        Surroundings {
            config: self.config.clone(),
            pools: self.pools.clone(),
            reserved: self.reserved.clone(),
            affinities: self.affinities.clone(),
            unclaimed: Vec::new(),
            now,
        }
    }
}

impl Lock {
    pub(crate) fn understand(record: Option<&Record>) -> Result<Lock, BookError> {
        let Some(record) = record else {
            return Ok(Lock::Unlocked(Box::new(Change::require_absent(cluster_information()))));
        };
        let resource = decode(record, Kind::ClusterInformation)?;
        let is_locked = resource.spec("datastoreReady").and_then(Value::as_bool) == Some(false);
        let require = || Change::require(record.key.clone(), record.revision.clone());
        Ok(if is_locked { Lock::Locked } else { Lock::Unlocked(Box::new(require())) })
    }

    /// What a commit requires that heeds the lock.
    pub(crate) fn heeded(&self) -> Result<Change, BookError> {
        match self {
            Lock::Locked => Err(BookError::Locked),
            Lock::Unlocked(change) => Ok((**change).clone()),
        }
    }
}

pub(crate) fn decode(record: &Record, kind: Kind) -> Result<Resource, BookError> {
    Resource::decode(&record.key, kind, &record.value, record.revision.as_str())
        .map_err(BookError::unreadable)
}

/// Every pool must be understood by those who give addresses: one that is passed over could have been the only one
/// that was meant.
pub(crate) fn understand_pools(records: &[Record]) -> Result<Vec<Stored<Pool>>, BookError> {
    let understand = |record: &Record| {
        let pool = Pool::new(&decode(record, Kind::IpPool)?)?;
        Ok(Stored::new(pool, record.revision.as_str()))
    };
    records.iter().map(understand).collect()
}

/// For those who only look for blocks: pools are a help, and one that cannot be understood does not help.
pub(crate) fn understandable_pools(records: &[Record]) -> Vec<Pool> {
    let understand = |record: &Record| Pool::new(&decode(record, Kind::IpPool).ok()?).ok();
    records.iter().filter_map(understand).collect()
}

pub(crate) fn understand_config(record: Option<&Record>) -> Result<Option<Stored<IpamConfig>>, BookError> {
    let Some(record) = record else { return Ok(None) };
    let config = IpamConfig::decode(&record.value).map_err(BookError::unreadable)?;
    Ok(Some(Stored::new(config, record.revision.as_str())))
}

/// Seconds for which a released address is not given again.
pub(crate) fn cooldown_seconds(config: Option<&Stored<IpamConfig>>) -> i64 {
    config.map_or(0, |stored| stored.value.ip_cooldown_seconds)
}

/// An affinity that cannot be read is one in a state that is not ours to change: its block counts and is left alone.
pub(crate) fn understand_affinity(record: &Record) -> Option<(Cidr, Stored<Affinity>)> {
    let Key::Affinity { owner, block } = &record.key else { return None };
    let affinity = Affinity::decode(owner, block, &record.value).unwrap_or_else(|error| {
        warn!("{error}; the block is not used");
        Affinity::new(AffinityState::Other("unreadable".to_owned()))
    });
    Some((*block, Stored::new(affinity, record.revision.as_str())))
}
