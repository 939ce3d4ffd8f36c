//! A single call without an agent: everything it needs to know is in its network configuration.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use book::Book;
use store::{OpenMode, StoreConfig};

use super::{Common, FoundBook};
use crate::health::Health;
use crate::verbs::{CniError, NetConf, node, records};

#[derive(Debug)]
pub(crate) struct OneShot(Common);

impl Deref for OneShot {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.0
    }
}

impl OneShot {
    pub(crate) fn new(state_dir: &Path) -> OneShot {
        OneShot(Common::new(state_dir, Arc::new(Health::new())))
    }

    pub(super) async fn book(&self, netconf: &NetConf) -> Result<Book, CniError> {
        records::open(&records::store_config(netconf)?, OpenMode::CreateIfMissing).await
    }

    pub(super) async fn existing_book(&self, netconf: &NetConf) -> Result<FoundBook, CniError> {
        let config = records::store_config(netconf)?;
        if let StoreConfig::Sqlite { path } = &config
            && !path.exists()
        {
            return Ok(FoundBook::NoStore(format!("store {} does not exist", path.display())));
        }
        Ok(FoundBook::Book(records::open(&config, OpenMode::Existing).await?))
    }

    pub(super) fn node_name(&self, netconf: &NetConf) -> Result<String, CniError> {
        node::name(netconf)
    }
}
