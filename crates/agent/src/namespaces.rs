//! What namespaces ask for their pods, cached: pools and IP versions. Only where Kubernetes keeps the records; elsewhere a profile says
//! nothing of the kind.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{Key, KeyRange, Kind};
use store::{Record, Store};

use crate::follow::{Update, decode, follow};

/// How the profiles are called that namespaces show.
const PREFIX: &str = "kns.";

/// Annotations by name.
pub(crate) type Annotations = BTreeMap<String, String>;

/// Of all namespaces, because a pod of any may come. Those that ask for nothing cost their name.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    cached: Mutex<BTreeMap<String, Annotations>>,
}

impl Namespaces {
    /// `None` if the namespace is not cached, or not yet.
    pub(crate) fn annotations_of(&self, namespace: &str) -> Option<Annotations> {
        self.cached().get(namespace).cloned()
    }

    /// Follows the store; never ends.
    pub(crate) async fn follow(&self, store: &dyn Store) {
        if store.capabilities().endpoints_are_records {
            return std::future::pending().await;
        }
        let range = KeyRange::NamePrefix { kind: Kind::Profile, namespace: None, prefix: PREFIX.to_owned() };
        let mut listed = BTreeMap::new();
        let on_update = |update| match update {
            Update::ListBegins => listed.clear(),
            Update::Listed(record) => listed.extend(read(&record)),
            Update::ListEnds => *self.cached() = std::mem::take(&mut listed),
            Update::Put(record) => self.cached().extend(read(&record)),
            Update::Deleted(key) => {
                if let Some(namespace) = namespace_of(&key) {
                    self.cached().remove(namespace);
                }
            }
            // What is cached is used until it is listed again.
            Update::OutOfSync => {}
        };
        follow(store, range, "namespaces", on_update).await;
    }

    fn cached(&self) -> MutexGuard<'_, BTreeMap<String, Annotations>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record of a namespace.
pub(crate) fn key_of(namespace: &str) -> Key {
    Key::cluster(Kind::Profile, format!("{PREFIX}{namespace}"))
}

fn namespace_of(key: &Key) -> Option<&str> {
    let Key::Resource { kind: Kind::Profile, name, .. } = key else { return None };
    name.strip_prefix(PREFIX)
}

/// A namespace and what it asks for; `None` if the record is no namespace's or cannot be read.
pub(crate) fn read(record: &Record) -> Option<(String, Annotations)> {
    let namespace = namespace_of(&record.key)?;
    Some((namespace.to_owned(), decode(record, Kind::Profile)?.metadata.annotations))
}

#[cfg(test)]
mod tests {
    use store::Revision;

    use super::*;

    #[test]
    fn a_namespace_is_known_by_its_profile() {
        let value = r#"{"kind":"Profile","metadata":{"name":"kns.shop","annotations":{"a":"b"}}}"#;
        let record = |name: &str| Record {
            key: Key::cluster(Kind::Profile, name),
            value: value.into(),
            revision: Revision::new("1"),
        };
        let (namespace, annotations) = read(&record("kns.shop")).unwrap();
        assert_eq!((namespace.as_str(), annotations["a"].as_str()), ("shop", "b"));
        assert_eq!(read(&record("ksa.shop.robot")), None);
    }
}
