//! The two stores of a copy: how they are named, and whether they are two.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::kube::Layout;
use store::config::{Overrides, Selected};
use store::kube::KubeStore;
use store::{MemoryStore, OpenMode, Store, StoreConfig};

use crate::cli::Global;
use crate::connect;
use crate::failure::Failure;

const FORMS: &str = "use sqlite:PATH, etcdv3:ENDPOINT,… or kubernetes[:KUBECONFIG[#CONTEXT]]";

/// One of the two stores.
#[derive(Debug)]
pub(super) struct Side {
    selected: Selected,
}

/// A store that is open.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    /// Of custom resources, where records are those.
    pub(super) layout: Option<Layout>,
}

impl Side {
    /// The store that a text like `sqlite:plumb.db` names, with what a configuration file adds.
    pub(super) fn named(
        global: &Global,
        flag: &str,
        text: Option<&str>,
        config: Option<&Path>,
    ) -> Result<Side, Failure> {
        let overrides = match text {
            Some(text) => parse(text).ok_or_else(|| {
                // Only the first word: what follows may hold a password.
                let word = text.split(':').next().unwrap_or_default();
                Failure::usage(format!("{flag}: {word:?} is not a kind of store")).hint(FORMS)
            })?,
            None => Overrides::default(),
        };
        Ok(Side { selected: connect::select_with(global, config.map(Path::to_owned), overrides)? })
    }

    pub(super) fn config(&self) -> &StoreConfig {
        &self.selected.config
    }

    /// Only looks. A SQLite file that does not exist is empty if it would be made.
    pub(super) async fn look(&self, may_be_missing: bool) -> Result<Opened, Failure> {
        match self.config() {
            StoreConfig::Sqlite { path } if may_be_missing && !path.exists() => {
                Ok(Opened { store: Arc::new(MemoryStore::new()), layout: None })
            }
            _ => self.open(OpenMode::ReadOnly).await,
        }
    }

    pub(super) async fn open(&self, mode: OpenMode) -> Result<Opened, Failure> {
        connect::say_opening(&self.selected);
        Ok(match self.config() {
            StoreConfig::Kubernetes(kube) => {
                let store = KubeStore::connect(kube.clone()).await?;
                let layout = Some(store.layout());
                Opened { store: Arc::new(store), layout }
            }
            config => Opened { store: store::open(config, mode).await?, layout: None },
        })
    }

    /// Whether both are one store, as far as their names tell.
    pub(super) fn is(&self, other: &Side) -> bool {
        match (self.config(), other.config()) {
            (StoreConfig::Sqlite { path: one }, StoreConfig::Sqlite { path: other }) => {
                one == other || matches!((file(one), file(other)), (Some(one), Some(other)) if one == other)
            }
            (StoreConfig::Etcd(one), StoreConfig::Etcd(other)) => {
                one.endpoints.iter().any(|endpoint| other.endpoints.contains(endpoint))
            }
            (one, other) => one == other,
        }
    }

    /// Whether a record at the same revision in both means that both are one. A copy of a SQLite file has the revisions of the
    /// original, and files are told apart by [`Side::is`].
    pub(super) fn is_told_by_revisions(&self) -> bool {
        !matches!(self.config(), StoreConfig::Sqlite { .. })
    }
}

/// Device and inode.
fn file(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

fn parse(text: &str) -> Option<Overrides> {
    let (kind, rest) = match text.split_once(':') {
        Some((kind, rest)) => (kind, Some(rest).filter(|rest| !rest.is_empty())),
        None => (text, None),
    };
    let mut overrides = Overrides { datastore_type: Some(kind.to_owned()), ..Overrides::default() };
    match kind {
        "sqlite" => overrides.sqlite_path = rest.map(PathBuf::from),
        "etcdv3" => overrides.etcd_endpoints = rest.map(str::to_owned),
        "kubernetes" => {
            let (path, context) = match rest.and_then(|rest| rest.rsplit_once('#')) {
                Some((path, context)) => (Some(path), Some(context)),
                None => (rest, None),
            };
            overrides.kubeconfig = path.filter(|path| !path.is_empty()).map(PathBuf::from);
            overrides.kube_context = context.filter(|context| !context.is_empty()).map(str::to_owned);
        }
        _ => return None,
    }
    Some(overrides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_named_by_their_kind_and_place() {
        let sqlite = parse("sqlite:/a:b.db").unwrap();
        assert_eq!(sqlite.sqlite_path, Some("/a:b.db".into()));
        let etcd = parse("etcdv3:https://a:2379,https://b:2379").unwrap();
        assert_eq!(etcd.etcd_endpoints.as_deref(), Some("https://a:2379,https://b:2379"));
        for (text, path, context) in [
            ("kubernetes", None, None),
            ("kubernetes:", None, None),
            ("kubernetes:/k", Some("/k"), None),
            ("kubernetes:/k:/l#far", Some("/k:/l"), Some("far")),
            ("kubernetes:/with#sign/k#far", Some("/with#sign/k"), Some("far")),
            ("kubernetes:#far", None, Some("far")),
        ] {
            let overrides = parse(text).unwrap();
            assert_eq!(overrides.kubeconfig, path.map(PathBuf::from), "{text}");
            assert_eq!(overrides.kube_context.as_deref(), context, "{text}");
        }
        for bad in ["", "mysql:x", "https://a:2379", "SQLITE:x", "/var/lib/plumb/plumb.db"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
