//! What the verbs work with, and who provides it: a process of its own for one call, or the node's agent.

use std::sync::Arc;

use store::{OpenMode, Store, StoreConfig};

use super::book;
use super::error::CniError;
use super::netconf::NetConf;

#[derive(Debug)]
pub(crate) struct Services {}

impl Services {
    /// For one call without an agent: the store is the one that the network configuration names.
    pub(crate) fn one_shot() -> Services {
        Services {}
    }

    /// Says how the log is to be kept, where the call decides that.
    pub(super) fn hear(&self, netconf: &NetConf) {
        start_log(netconf);
    }

    /// The store for a verb that may have to make one.
    pub(super) async fn store(&self, netconf: &NetConf) -> Result<Arc<dyn Store>, CniError> {
        book::open(&book::store_config(netconf)?, OpenMode::CreateIfMissing).await
    }

    /// The store for a verb that has nothing to do without one.
    pub(super) async fn existing_store(&self, netconf: &NetConf) -> Result<Found, CniError> {
        let config = book::store_config(netconf)?;
        if let StoreConfig::Sqlite { path } = &config
            && !path.exists()
        {
            return Ok(Found::NoStore(format!("there is no store at {}", path.display())));
        }
        Ok(Found::Store(book::open(&config, OpenMode::Existing).await?))
    }
}

/// A store, or why there is none.
#[derive(Debug)]
pub(super) enum Found {
    Store(Arc<dyn Store>),
    NoStore(String),
}

/// Stderr is the log; stdout belongs to the answer.
fn start_log(netconf: &NetConf) {
    let level = netconf.log_level.as_deref().unwrap_or("info").to_ascii_lowercase();
    let filter = tracing_subscriber::EnvFilter::builder().parse_lossy(level);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // A second call in one process (tests) keeps the first one's log.
    let _ = log.try_init();
}
