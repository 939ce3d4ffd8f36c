//! Opens the store that the flags, the configuration file or the environment name.

use std::path::PathBuf;
use std::sync::Arc;

use store::config::{Origin, Overrides, Selected, Sources};
use store::{MemoryStore, OpenMode, Store, StoreConfig};

use crate::cli::Global;
use crate::compat;
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
    say_opening(&selected);
    Ok(store::open(&selected.config, mode).await?)
}

/// Says in the log which store is used, and on the terminal what is wrong with how it is reached.
pub(crate) fn say_opening(selected: &Selected) {
    tracing::info!(store = %selected.config, origin = %selected.origin, "opening the store");
    if let Some(warning) = selected.config.warning() {
        compat::say(&format!("warning: {warning}"));
    }
}

pub(crate) fn select(global: &Global) -> Result<Selected, Failure> {
    select_with(global, None, Overrides::default())
}

/// The store that is meant by more than the flags that every command takes.
pub(crate) fn select_with(
    global: &Global,
    config: Option<PathBuf>,
    mut overrides: Overrides,
) -> Result<Selected, Failure> {
    overrides.kube_context = overrides.kube_context.or_else(|| global.context.clone());
    let config = config.or_else(|| global.config.clone());
    Ok(StoreConfig::from_sources(&Sources::of_process(config, overrides))?)
}

/// Nobody has named this store on the command line or in the shell, so it is said which one it is and why.
fn say_origin(selected: &Selected) {
    if matches!(selected.origin, Origin::AgentSettings(_)) {
        compat::say(&format!("store: {} (from {})", selected.config, selected.origin));
    }
}
