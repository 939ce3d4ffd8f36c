//! Opens the store that the flags, the configuration file or the environment name.

use std::sync::Arc;

use store::config::{Origin, Overrides, Selected, Sources};
use store::{MemoryStore, OpenMode, Store, StoreConfig};

use crate::cli::Global;
use crate::failure::Failure;

/// For commands that only look.
pub(crate) async fn open_for_reading(global: &Global) -> Result<Arc<dyn Store>, Failure> {
    open(global, OpenMode::ReadOnly).await
}

/// For commands that change what is there, and fail if nothing is.
pub(crate) async fn open_for_changing(global: &Global) -> Result<Arc<dyn Store>, Failure> {
    open(global, OpenMode::Existing).await
}

/// For commands that make new records, and the store too if need be.
pub(crate) async fn open_for_creating(global: &Global) -> Result<Arc<dyn Store>, Failure> {
    open(global, OpenMode::CreateIfMissing).await
}

/// For dry runs of commands that would make the store: one that is not there yet counts as empty.
pub(crate) async fn open_for_trying(global: &Global) -> Result<Arc<dyn Store>, Failure> {
    match select(global)?.config {
        StoreConfig::Sqlite { path } if !path.exists() => Ok(Arc::new(MemoryStore::new())),
        _ => open_for_reading(global).await,
    }
}

async fn open(global: &Global, mode: OpenMode) -> Result<Arc<dyn Store>, Failure> {
    let selected = select(global)?;
    say_origin(&selected);
    let config = selected.config;
    tracing::info!(store = %config, origin = %selected.origin, "opening the store");
    if let Some(warning) = config.warning() {
        eprintln!("warning: {warning}");
    }
    Ok(store::open(&config, mode).await?)
}

pub(crate) fn select(global: &Global) -> Result<Selected, Failure> {
    let overrides = Overrides { kube_context: global.context.clone(), ..Overrides::default() };
    Ok(StoreConfig::from_sources(&Sources::of_process(global.config.clone(), overrides))?)
}

/// Nobody has named this store on the command line or in the shell, so it is said which one it is and why.
fn say_origin(selected: &Selected) {
    if matches!(selected.origin, Origin::AgentSettings(_)) {
        eprintln!("store: {} (from {})", selected.config, selected.origin);
    }
}
