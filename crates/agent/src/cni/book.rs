//! The address book and the endpoints in the store: reads what a decision needs, commits what was decided.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipam::{
    Answer, Assignment, Decision as _, INTERFACE_ATTRIBUTE, Next, Pool, Request, Step, Steps, Stored,
    Surroundings,
};
use jiff::Timestamp;
use model::ipam::{Affinity, Block, BlockAttribute, Handle, IpamConfig};
use model::{AffinityOwner, Cidr, IpVersion, Key, KeyRange, Kind, Resource, Sandbox};
use serde_json::Value;
use store::config::{Overrides, Sources};
use store::{Change, OpenMode, Record, Revision, Store, StoreConfig, StoreError};

use super::error::{CniError, code};
use super::netconf::NetConf;

/// How long a call goes on when others keep winning the races for the same records.
const PATIENCE: Duration = Duration::from_secs(30);
const DELAY_MS_MIN: u64 = 2;
const DELAY_MS_MAX: u64 = 100;

/// What one attachment holds in the address book.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) handle: Option<Stored<Handle>>,
    /// Every block that the handle names.
    pub(super) blocks: Vec<(Cidr, Option<Stored<Block>>)>,
    /// This attachment's own.
    pub(super) addresses: Vec<IpAddr>,
    /// What was noted down with the first of them.
    pub(super) attributes: Option<BlockAttribute>,
}

#[derive(Debug)]
pub(super) struct Book<'a> {
    store: &'a dyn Store,
}

/// The store that the network configuration means; what it does not say, the environment does.
pub(super) fn store_config(netconf: &NetConf) -> Result<StoreConfig, CniError> {
    let environment = |name: &str| said(netconf, name).map(OsString::from).or_else(|| std::env::var_os(name));
    let sources = Sources {
        overrides: Overrides::default(),
        config_file: None,
        // Plugins never looked at calicoctl's file, and the configuration's own settings must win.
        default_config_file: std::path::PathBuf::new(),
        environment: &environment,
    };
    let selected = StoreConfig::from_sources(&sources).map_err(|error| {
        let hint = error.hint();
        let error = CniError::configuration(error.to_string());
        if let Some(hint) = hint { error.hint(hint) } else { error }
    })?;
    Ok(selected.config)
}

/// What the network configuration says for a variable, also under the variable's longer name.
fn said(netconf: &NetConf, name: &str) -> Option<String> {
    netconf.store.get(name.strip_prefix("CALICO_").unwrap_or(name)).cloned()
}

pub(super) async fn open(
    config: &StoreConfig,
    mode: OpenMode,
) -> Result<std::sync::Arc<dyn Store>, CniError> {
    let store = store::open(config, mode).await?;
    if !store.capabilities().atomic_commits {
        let message = format!("{config} cannot commit several records at once, which this release needs");
        return Err(CniError::configuration(message));
    }
    Ok(store)
}

impl<'a> Book<'a> {
    pub(super) fn new(store: &'a dyn Store) -> Book<'a> {
        Book { store }
    }

    /// Fails if an operator has locked the store; else gives what to require of a commit, so that a lock that comes
    /// in between is seen.
    pub(super) async fn require_unlocked(&self) -> Result<Change, CniError> {
        let key = Key::cluster(Kind::ClusterInformation, "default");
        let Some(record) = self.store.get(&key).await? else { return Ok(Change::require_absent(key)) };
        let resource = decode(&record, Kind::ClusterInformation)?;
        if resource.spec("datastoreReady").and_then(Value::as_bool) == Some(false) {
            return Err(CniError::new(code::TRY_LATER, "the store is locked for a migration")
                .hint("`plumb datastore migrate unlock` ends the lock"));
        }
        Ok(Change::require(key, record.revision))
    }

    pub(super) async fn endpoint(&self, key: &Key) -> Result<Option<(Record, Resource)>, CniError> {
        let Some(record) = self.store.get(key).await? else { return Ok(None) };
        let resource = decode(&record, Kind::WorkloadEndpoint)?;
        Ok(Some((record, resource)))
    }

    pub(super) async fn held(&self, sandbox: &Sandbox) -> Result<Held, CniError> {
        let mut held = Held { handle: None, blocks: Vec::new(), addresses: Vec::new(), attributes: None };
        held.handle = self.handle(&sandbox.handle()).await?;
        let Some(handle) = &held.handle else { return Ok(held) };
        for cidr in handle.value.blocks() {
            held.blocks.push((cidr, self.block(cidr).await?));
        }
        for block in held.blocks.iter().filter_map(|(_, block)| Some(&block.as_ref()?.value)) {
            for ordinal in 0..block.capacity() {
                let Some(attribute) = block.attribute(ordinal) else { continue };
                if attribute.handle() == Some(&sandbox.handle()) && is_of_interface(attribute, sandbox) {
                    held.addresses.extend(block.address(ordinal));
                    held.attributes.get_or_insert_with(|| attribute.clone());
                }
            }
        }
        Ok(held)
    }

    /// Decides on the addresses of one owner. Nothing is written yet.
    pub(super) async fn plan_addresses(&self, request: Request) -> Result<(Vec<IpAddr>, Steps), CniError> {
        let surroundings = self.surroundings(&request.host).await?;
        let mut assignment = Assignment::new(request, surroundings)?;
        loop {
            match assignment.poll()? {
                Next::Look(keys) => {
                    for key in keys {
                        let record = self.store.get(&key).await?;
                        let found =
                            record.as_ref().map(|record| (&record.value[..], record.revision.as_str()));
                        assignment.show(&key, Answer::read(&key, found));
                    }
                }
                Next::Done(assigned) => {
                    let (granted, steps) = assigned.single()?;
                    return Ok((granted.into_iter().map(|granted| granted.address).collect(), steps));
                }
            }
        }
    }

    pub(super) async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.store.commit(changes).await.map(|_| ())
    }

    /// The labels that pools select nodes by. A node without a record has none.
    pub(super) async fn node_labels(
        &self,
        node: &str,
    ) -> Result<std::collections::BTreeMap<String, String>, CniError> {
        match self.store.get(&Key::cluster(Kind::Node, node)).await? {
            Some(record) => Ok(decode(&record, Kind::Node)?.metadata.labels),
            None => Ok(std::collections::BTreeMap::new()),
        }
    }

    /// The settings, if there is a record of them.
    pub(super) async fn config(&self) -> Result<Option<Stored<IpamConfig>>, CniError> {
        let Some(record) = self.store.get(&Key::IpamConfig).await? else { return Ok(None) };
        let config = IpamConfig::decode(&record.value).map_err(|error| unreadable(&error))?;
        Ok(Some(Stored::new(config, record.revision.as_str())))
    }

    async fn surroundings(&self, host: &str) -> Result<Surroundings, CniError> {
        let mut reserved = Vec::new();
        for record in self.list(KeyRange::Kind(Kind::IpReservation)).await? {
            reserved.extend(ipam::reserved_networks(&decode(&record, Kind::IpReservation)?));
        }
        Ok(Surroundings {
            config: self.config().await?,
            pools: self.pools().await?,
            reserved,
            affinities: self.affinities(host).await?,
            now: Timestamp::now(),
        })
    }

    async fn pools(&self) -> Result<Vec<Stored<Pool>>, CniError> {
        let mut pools = Vec::new();
        for record in self.list(KeyRange::Kind(Kind::IpPool)).await? {
            let pool = Pool::new(&decode(&record, Kind::IpPool)?);
            let pool = pool.map_err(|error| CniError::new(code::STORE, error.to_string()))?;
            pools.push(Stored::new(pool, record.revision.as_str()));
        }
        Ok(pools)
    }

    async fn affinities(&self, host: &str) -> Result<Vec<(Cidr, Stored<Affinity>)>, CniError> {
        let owner = AffinityOwner::Host(host.to_owned());
        let mut affinities = Vec::new();
        for record in self.list(KeyRange::AffinitiesOf(owner.clone(), IpVersion::V4)).await? {
            let Key::Affinity { block, .. } = &record.key else { continue };
            let affinity =
                Affinity::decode(&owner, block, &record.value).map_err(|error| unreadable(&error))?;
            affinities.push((*block, Stored::new(affinity, record.revision.as_str())));
        }
        Ok(affinities)
    }

    async fn handle(&self, id: &str) -> Result<Option<Stored<Handle>>, CniError> {
        let Some(record) = self.store.get(&Key::Handle(id.to_owned())).await? else { return Ok(None) };
        let handle = Handle::decode(id, &record.value).map_err(|error| unreadable(&error))?;
        Ok(Some(Stored::new(handle, record.revision.as_str())))
    }

    async fn block(&self, cidr: Cidr) -> Result<Option<Stored<Block>>, CniError> {
        let Some(record) = self.store.get(&Key::Block(cidr)).await? else { return Ok(None) };
        let block = Block::decode(&cidr, &record.value).map_err(|error| unreadable(&error))?;
        Ok(Some(Stored::new(block, record.revision.as_str())))
    }

    async fn list(&self, range: KeyRange) -> Result<Vec<Record>, CniError> {
        Ok(self.store.list_all(range).await?.0)
    }
}

/// An address without a note on the interface is the whole container's: Calico's own plugin knows only one.
pub(super) fn is_of_interface(attribute: &BlockAttribute, sandbox: &Sandbox) -> bool {
    attribute.secondary.get(INTERFACE_ATTRIBUTE).is_none_or(|interface| interface == sandbox.interface())
}

/// The words of the store for the steps of a decision, all of which happen together.
pub(super) fn changes(steps: &Steps) -> Vec<Change> {
    let change = |step: Step| match step {
        Step::Create { key, value } => Change::create(key, value),
        Step::Update { key, value, revision } => Change::update(key, value, Revision::new(revision)),
        Step::Delete { key, revision } => Change::delete(key, Revision::new(revision)),
        Step::Require { key, revision } => Change::require(key, Revision::new(revision)),
        Step::RequireAbsent { key } => Change::require_absent(key),
    };
    steps.atomic().into_iter().map(change).collect()
}

fn decode(record: &Record, kind: Kind) -> Result<Resource, CniError> {
    Resource::decode(&record.key, kind, &record.value, record.revision.as_str())
        .map_err(|error| unreadable(&error))
}

fn unreadable(error: &dyn std::error::Error) -> CniError {
    CniError::new(code::STORE, "the store holds a record that cannot be read").because(error)
}

/// Bounded patience with lost races. Those who lose wait for different times, so that they do not meet again.
#[derive(Debug)]
pub(super) struct Patience {
    until: Instant,
    losses: u32,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { until: Instant::now() + PATIENCE, losses: 0 }
    }

    /// Waits a little after a lost race. Any other error, or one race too many, is final.
    pub(super) async fn after(&mut self, error: StoreError) -> Result<(), CniError> {
        if !error.is_lost_race() {
            return Err(error.into());
        }
        if Instant::now() >= self.until {
            let message = format!("others kept changing the same records for {} s", PATIENCE.as_secs());
            return Err(CniError::new(code::TRY_LATER, message).because(&error));
        }
        self.losses += 1;
        let ceiling = (DELAY_MS_MIN << self.losses.min(8)).min(DELAY_MS_MAX);
        let delay = DELAY_MS_MIN + random() % ceiling;
        tokio::time::sleep(Duration::from_millis(delay)).await;
        Ok(())
    }
}

fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_network_configuration_wins_over_either_name_of_a_variable() {
        let store = BTreeMap::from([("ETCD_ENDPOINTS".to_owned(), "http://a:2379".to_owned())]);
        let netconf = NetConf { store, ..NetConf::default() };
        assert_eq!(said(&netconf, "CALICO_ETCD_ENDPOINTS").as_deref(), Some("http://a:2379"));
        assert_eq!(said(&netconf, "ETCD_ENDPOINTS").as_deref(), Some("http://a:2379"));
        assert_eq!(said(&netconf, "SQLITE_PATH"), None);
    }

    #[test]
    fn a_store_can_be_chosen_by_the_configuration_alone() {
        let netconf = NetConf::parse(br#"{"name": "n", "sqlite_path": "/x.db"}"#).unwrap();
        let expected = StoreConfig::Sqlite { path: "/x.db".into() };
        assert_eq!(store_config(&netconf).unwrap(), expected);
    }
}
