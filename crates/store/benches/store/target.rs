//! The stores that are measured, and how another process is told which.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use store::etcd::EtcdConfig;
use store::{OpenMode, Store, StoreConfig};

#[derive(Clone, Debug)]
pub(crate) enum Target {
    Sqlite(PathBuf),
    Etcd(String),
}

impl Target {
    pub(crate) async fn open(&self) -> anyhow::Result<Arc<dyn Store>> {
        let config = match self {
            Target::Sqlite(path) => StoreConfig::Sqlite { path: path.clone() },
            Target::Etcd(endpoint) => StoreConfig::Etcd(EtcdConfig::new([endpoint.as_str()])),
        };
        Ok(store::open(&config, OpenMode::CreateIfMissing).await?)
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Target::Sqlite(path) => format!("sqlite {}", path.display()),
            Target::Etcd(endpoint) => format!("etcd {endpoint}"),
        }
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Target> {
        match text.split_once(' ') {
            Some(("sqlite", path)) => Ok(Target::Sqlite(path.into())),
            Some(("etcd", endpoint)) => Ok(Target::Etcd(endpoint.to_owned())),
            _ => bail!("{text:?} is no store"),
        }
    }
}
