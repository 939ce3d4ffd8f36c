//! A lab's records, past all checks of whoever serves them: for those who break things on purpose.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use host::NetNs;
use store::config::{Overrides, Sources};
use store::{OpenMode, Store, StoreConfig};

use super::Cluster;

impl Cluster {
    /// Where the records are, as a node of the lab sees it.
    pub fn store_config(&self) -> Result<StoreConfig> {
        let variables: BTreeMap<String, String> =
            self.environment_of(self.first_node()?)?.into_iter().collect();
        let sources = Sources {
            overrides: Overrides::default(),
            config_file: None,
            default_config_file: PathBuf::new(),
            environment: &|wanted| variables.get(wanted).map(Into::into),
            agent_settings: None,
        };
        Ok(StoreConfig::from_sources(&sources)?.config)
    }

    /// Does something with the records. etcd stands on the fabric, where only nodes reach it.
    pub fn with_store<T: Send>(&self, act: impl AsyncFnOnce(&dyn Store) -> Result<T> + Send) -> Result<T> {
        let (network, config) = (NetNs::open(&self.network_of(self.first_node()?)?)?, self.store_config()?);
        network.visit(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let store = store::open(&config, OpenMode::Existing).await?;
                act(&*store).await
            })
        })?
    }

    fn first_node(&self) -> Result<&str> {
        Ok(&self.description().nodes.first().context("a lab has nodes")?.name)
    }
}
