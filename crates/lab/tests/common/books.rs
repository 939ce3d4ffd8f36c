//! What a store holds, as tests look at it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use model::ipam::Block;
use model::{Key, KeyRange, Kind, Resource};
use serde_json::Value;
use store::etcd::EtcdConfig;
use store::kube::KubeConfig;
use store::{OpenMode, Store, StoreConfig};

/// The records of one store, read anew for each question.
#[derive(Debug)]
pub(crate) struct Books {
    config: StoreConfig,
}

impl Books {
    pub(crate) fn at(path: impl AsRef<Path>) -> Books {
        Books { config: StoreConfig::Sqlite { path: path.as_ref().to_owned() } }
    }

    /// Only from where this etcd can be reached.
    pub(crate) fn on_etcd(endpoint: String) -> Books {
        Books { config: StoreConfig::Etcd(EtcdConfig::new([endpoint])) }
    }

    /// The same, signed in as somebody.
    pub(crate) fn on_etcd_as(endpoint: String, user: &str, password: &str) -> Books {
        let (username, password) = (Some(user.to_owned()), Some(password.to_owned()));
        Books { config: StoreConfig::Etcd(EtcdConfig { username, password, ..EtcdConfig::new([endpoint]) }) }
    }

    /// Only from where this API server can be reached.
    pub(crate) fn on_kubernetes(kubeconfig: &Path) -> Books {
        let kubeconfig = Some(kubeconfig.to_owned());
        Books { config: StoreConfig::Kubernetes(KubeConfig { kubeconfig, ..KubeConfig::default() }) }
    }

    pub(crate) fn with_store<T>(&self, act: impl AsyncFnOnce(&dyn Store) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = store::open(&self.config, OpenMode::CreateIfMissing).await.unwrap();
            act(&*store).await
        })
    }

    /// Makes a record, or replaces it.
    pub(crate) fn put(&self, kind: Kind, name: &str, spec: Value) {
        let mut resource = Resource::new(kind, name);
        resource.body.insert("spec".to_owned(), spec);
        resource.fill_defaults();
        let (key, value) = (resource.key(), resource.encode());
        self.with_store(async |store| {
            loop {
                let written = match store.get(&key).await.unwrap() {
                    Some(known) => store.update(key.clone(), value.clone(), known.revision).await,
                    None => store.create(key.clone(), value.clone()).await,
                };
                match written {
                    Ok(_) => return,
                    // An agent that starts writes some of these itself.
                    Err(error) if error.is_lost_race() => {}
                    Err(error) => panic!("{key}: {error:?}"),
                }
            }
        });
    }

    /// Every record, as text.
    pub(crate) fn records(&self) -> BTreeMap<Key, String> {
        let (records, _) = self.with_store(async |store| store.list_all(KeyRange::Everything).await.unwrap());
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        records.iter().map(|record| (record.key.clone(), text(&record.value))).collect()
    }

    /// Who holds which address, by the blocks, where everybody holds one.
    pub(crate) fn allocations(&self) -> BTreeMap<String, IpAddr> {
        let single = |(handle, addresses): (String, BTreeSet<IpAddr>)| {
            assert_eq!(addresses.len(), 1, "several addresses of {handle}");
            (handle, *addresses.first().expect("one"))
        };
        self.addresses().into_iter().map(single).collect()
    }

    /// Who holds which addresses, by the blocks, which must be consistent in themselves.
    pub(crate) fn addresses(&self) -> BTreeMap<String, BTreeSet<IpAddr>> {
        let mut found: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
        for (key, value) in self.records() {
            let Key::Block(cidr) = &key else { continue };
            let block = Block::decode(cidr, value.as_bytes()).unwrap();
            assert_eq!(block.contradictions(), [] as [String; 0]);
            for ordinal in 0..block.capacity() {
                let Some(attribute) = block.attribute(ordinal) else { continue };
                let holder = found.entry(attribute.handle().unwrap().to_string()).or_default();
                assert!(holder.insert(block.address(ordinal).unwrap()), "an address in two blocks");
            }
        }
        found
    }

    /// The names of all handles that have a record.
    pub(crate) fn handles(&self) -> Vec<String> {
        let names = self
            .records()
            .into_keys()
            .filter_map(|key| if let Key::Handle(id) = key { Some(id.to_string()) } else { None });
        names.collect()
    }

    /// All endpoint records, as text. In Kubernetes a pod without a network is shown as one without sandbox and addresses.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        let is_endpoint = |key: &Key| matches!(key, Key::Resource { kind: Kind::WorkloadEndpoint, .. });
        let endpoints = self.records().into_iter().filter(|(key, _)| is_endpoint(key));
        endpoints.map(|(_, value)| value).filter(|value| has_network(value)).collect()
    }
}

fn has_network(endpoint: &str) -> bool {
    let endpoint: Value = serde_json::from_str(endpoint).unwrap();
    let says =
        |field: &str| !matches!(&endpoint["spec"][field], Value::Null) && endpoint["spec"][field] != "";
    says("containerID") || says("ipNetworks")
}
