//! The records of an attachment: which store holds them, which ones exist, and how they are released.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use book::{Addition, Book, BookError, HandleRequest, HeldAddress};
use ipam::INTERFACE_ATTRIBUTE;
use model::ipam::BlockAttribute;
use model::{Key, Kind, Resource, Sandbox, is_detached};
use store::config::{Overrides, Sources};
use store::{OpenMode, Record, StoreConfig, StoreError};
use tracing::{info, warn};

use super::endpoint::{self, EndpointId, Keeping};
use super::error::{CniError, code};
use super::netconf::NetConf;

/// How often a call tries again when others keep changing the endpoint's record.
const TRIES_MAX: u64 = 60;

/// The store that the network configuration selects; the environment fills in what it leaves out.
pub(crate) fn store_config(netconf: &NetConf) -> Result<StoreConfig, CniError> {
    let environment =
        |name: &str| configured(netconf, name).map(OsString::from).or_else(|| crate::variables::os(name));
    let sources = Sources {
        overrides: Overrides::default(),
        config_file: None,
        // Calico's plugin does not read calicoctl's file either, and the network configuration must win.
        default_config_file: std::path::PathBuf::new(),
        environment: &environment,
        agent_settings: None,
    };
    let selected = StoreConfig::from_sources(&sources).map_err(|error| {
        let hint = error.hint();
        let error = CniError::configuration(error.to_string()).outside();
        if let Some(hint) = hint { error.hint(hint) } else { error }
    })?;
    Ok(selected.config)
}

/// The network configuration's value for a variable, also under the variable's longer name.
fn configured(netconf: &NetConf, name: &str) -> Option<String> {
    let short = name.strip_prefix("CALICO_").unwrap_or(name);
    netconf.store.get(name).or_else(|| netconf.store.get(short)).cloned()
}

pub(crate) async fn open(config: &StoreConfig, mode: OpenMode) -> Result<Book, CniError> {
    Ok(Book::new(store::open(config, mode).await?))
}

/// What one attachment holds.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) addresses: Vec<HeldAddress>,
    /// The handle exists; it may be another interface's.
    pub(super) handle_exists: bool,
    pub(super) endpoints: Vec<(Record, Resource)>,
}

impl Held {
    /// Reads the addresses of a sandbox, and the endpoint records that may be its own.
    pub(super) async fn read(book: &Book, sandbox: &Sandbox, keys: Vec<Key>) -> Result<Held, CniError> {
        let (mut holding, records) = book.held(&sandbox.handle(), keys).await?;
        for corrupt in &holding.corrupt {
            warn!(%sandbox, "cannot read all addresses of the sandbox: {corrupt}");
        }
        holding.addresses.retain(|held| is_of_interface(&held.attribute, sandbox));
        let endpoints = records.into_iter().map(decode).collect::<Result<_, _>>()?;
        Ok(Held { addresses: holding.addresses, handle_exists: holding.exists, endpoints })
    }

    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(|held| held.address).collect()
    }

    /// The endpoint's key when the first address was allocated, whatever node and pod are called now.
    fn original_key(&self, keeping: Keeping, sandbox: &Sandbox) -> Option<Key> {
        EndpointId::from_allocation(keeping, &self.addresses.first()?.attribute, sandbox)?.key().ok()?
    }
}

/// An endpoint record, if there is one.
pub(super) async fn find_endpoint(book: &Book, key: &Key) -> Result<Option<(Record, Resource)>, CniError> {
    book.store().get(key).await?.map(decode).transpose()
}

pub(super) fn decode(record: Record) -> Result<(Record, Resource), CniError> {
    let decoded =
        Resource::decode(&record.key, Kind::WorkloadEndpoint, &record.value, record.revision.as_str());
    match decoded {
        Ok(resource) => Ok((record, resource)),
        Err(error) => Err(CniError::new(code::STORE, "cannot read an endpoint record").because(&error)),
    }
}

/// Releases the attachment's addresses and removes its cached endpoint record, in one commit and without reading it.
/// `false`: the record is no longer this sandbox's, and must be read.
pub(super) async fn release_cached(
    book: &Book,
    sandbox: &Sandbox,
    mut endpoint: Record,
) -> Result<bool, CniError> {
    let mut tries = Tries::default();
    loop {
        let error = match release_with(book, sandbox, vec![Addition::delete(&endpoint)]).await {
            Ok(()) => return Ok(true),
            Err(error) if has_endpoint_changed(&error) => error,
            Err(error) => return Err(error.into()),
        };
        // A pod changes for many reasons. What the store found in the way need not be read again.
        match changed_endpoint(&error, sandbox) {
            Some(found) => endpoint = found,
            None => return Ok(false),
        }
        tries.again(sandbox).await?;
    }
}

/// The endpoint's record as another writer left it, if it still is this sandbox's.
fn changed_endpoint(error: &BookError, sandbox: &Sandbox) -> Option<Record> {
    let BookError::Addition { source: Some(source), .. } = error else { return None };
    let StoreError::Conflict { current } = &**source else { return None };
    let (record, resource) = decode((**current).clone()).ok()?;
    (endpoint::container_id(&resource) == sandbox.container_id()).then_some(record)
}

/// Releases the attachment's addresses and removes its endpoint record, in one commit. With `restore`, that record replaces the
/// endpoint's. A record of another sandbox is never touched.
pub(super) async fn release(
    book: &Book,
    sandbox: &Sandbox,
    key: Option<Key>,
    restore: Option<&Record>,
) -> Result<(), CniError> {
    let mut tries = Tries::default();
    loop {
        let mut held = Held::read(book, sandbox, key.clone().into_iter().collect()).await?;
        let original = held.original_key(Keeping::of(book), sandbox);
        if let Some(original) = original.filter(|original| Some(original) != key.as_ref()) {
            held.endpoints.extend(find_endpoint(book, &original).await?);
        }
        let additions = endpoint_changes(sandbox, &held, restore);
        if additions.is_empty() && !held.handle_exists {
            return Ok(());
        }
        match release_with(book, sandbox, additions).await {
            // The endpoint changed in between: read again whose it is.
            Err(error) if has_endpoint_changed(&error) => tries.again(sandbox).await?,
            outcome => return outcome.map_err(CniError::from),
        }
    }
}

async fn release_with(book: &Book, sandbox: &Sandbox, additions: Vec<Addition>) -> Result<(), BookError> {
    let owner = sandbox.clone();
    let request =
        HandleRequest::only(sandbox.handle(), move |_, attribute, _| is_of_interface(attribute, &owner));
    let released = book.release_handle(request.with(additions)).await?;
    for corrupt in &released.corrupt {
        warn!(%sandbox, "cannot release an address: {corrupt}");
    }
    info!(%sandbox, addresses = ?released.addresses, "released");
    Ok(())
}

/// Another writer changed the endpoint's record.
fn has_endpoint_changed(error: &BookError) -> bool {
    match error {
        BookError::Addition { source: Some(source), .. } => source.is_lost_race(),
        BookError::Addition { source: None, .. } => true,
        _ => false,
    }
}

fn endpoint_changes(sandbox: &Sandbox, held: &Held, restore: Option<&Record>) -> Vec<Addition> {
    let mut changes = Vec::new();
    for (record, resource) in held.endpoints.iter().filter(|(record, _)| !is_detached(&record.value)) {
        if !is_of_sandbox(resource, sandbox, &held.addresses()) {
            let owner = endpoint::container_id(resource);
            info!(endpoint = %record.key, owner, "kept the endpoint record of another sandbox");
            continue;
        }
        let restored =
            restore.filter(|earlier| earlier.key == record.key).map(|earlier| earlier.value.clone());
        let kept = || endpoint::without_joined(resource, sandbox).map(|rest| rest.encode().into());
        changes.push(match restored.or_else(kept) {
            Some(value) => Addition::replace(record, value),
            None => Addition::delete(record),
        });
    }
    changes
}

/// Whether a record belongs to this sandbox. Old releases of Calico named no sandbox: such a record is recognised by its addresses, if the
/// sandbox holds them all.
fn is_of_sandbox(endpoint: &Resource, sandbox: &Sandbox, held: &[IpAddr]) -> bool {
    match endpoint::container_id(endpoint) {
        "" => endpoint::addresses(endpoint).is_some_and(|recorded| {
            !recorded.is_empty() && recorded.iter().all(|address| held.contains(address))
        }),
        owner => owner == sandbox.container_id() && endpoint::is_of_network(endpoint, sandbox),
    }
}

/// Whether the endpoint's record is of this sandbox and of no other network that the same container joined.
pub(super) fn is_sole_owner(record: &Record, sandbox: &Sandbox) -> bool {
    decode(record.clone()).is_ok_and(|(_, resource)| {
        endpoint::is_of_network(&resource, sandbox) && endpoint::without_joined(&resource, sandbox).is_none()
    })
}

/// Counts attempts while other writers change the same endpoint.
#[derive(Debug, Default)]
pub(super) struct Tries(u64);

impl Tries {
    /// Waits a little, each time longer; fails after the last attempt.
    pub(super) async fn again(&mut self, sandbox: &Sandbox) -> Result<(), CniError> {
        self.0 += 1;
        if self.0 > TRIES_MAX {
            let message = format!("the endpoint record of {sandbox} changed at every attempt");
            return Err(CniError::new(code::TRY_LATER, message));
        }
        tokio::time::sleep(Duration::from_millis(self.0.min(50))).await;
        Ok(())
    }
}

/// An address that names no interface belongs to the whole container: Calico's plugin knows only one interface.
pub(super) fn is_of_interface(attribute: &BlockAttribute, sandbox: &Sandbox) -> bool {
    attribute.secondary.get(INTERFACE_ATTRIBUTE).is_none_or(|interface| interface == sandbox.interface())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_network_configuration_wins_over_both_names_of_a_variable() {
        let store = BTreeMap::from([("ETCD_ENDPOINTS".to_owned(), "http://a:2379".to_owned())]);
        let netconf = NetConf { store, ..NetConf::default() };
        assert_eq!(configured(&netconf, "CALICO_ETCD_ENDPOINTS").as_deref(), Some("http://a:2379"));
        assert_eq!(configured(&netconf, "ETCD_ENDPOINTS").as_deref(), Some("http://a:2379"));
        assert_eq!(configured(&netconf, "SQLITE_PATH"), None);
    }

    #[test]
    fn a_store_can_be_chosen_by_the_configuration_alone() {
        let netconf = NetConf::parse(br#"{"name": "n", "sqlite_path": "/x.db"}"#).unwrap();
        let expected = StoreConfig::Sqlite { path: "/x.db".into() };
        assert_eq!(store_config(&netconf).unwrap(), expected);
        let netconf =
            br#"{"name": "n", "datastore_type": "kubernetes", "calico_api_group": "projectcalico.org/v3",
            "kubernetes": {"kubeconfig": "/kc", "k8s_api_root": "https://a:1"}}"#;
        let StoreConfig::Kubernetes(found) = store_config(&NetConf::parse(netconf).unwrap()).unwrap() else {
            panic!("another store")
        };
        assert_eq!(found.kubeconfig, Some("/kc".into()));
        assert_eq!(found.api_group.as_deref(), Some("projectcalico.org/v3"));
        assert_eq!(found.settings.server.as_deref(), Some("https://a:1"));
    }
}
