//! A store's records as evidence.

use book::load::{self, Progress};
use doctor::evidence::{Endpoint, IpamEvidence};
use doctor::{Evidence, Origin, Sighted};
use jiff::Timestamp;
use model::ipam::IpamConfig;
use model::{Key, KeyRange, Kind, Resource};
use store::{Record, Store, StoreError};

/// Kinds that are not read as resources: IPAM's own have lists of their own, and of endpoints, of which there are very
/// many, only what matters is kept.
const READ_OTHERWISE: [Kind; 5] =
    [Kind::WorkloadEndpoint, Kind::IpamBlock, Kind::IpamHandle, Kind::BlockAffinity, Kind::IpamConfiguration];

/// Everything a store holds, read page by page, side by side. The lists are not of one moment: what was found to
/// disagree may just have changed in between, so whoever concludes anything looks twice.
pub async fn of_store(store: &dyn Store, progress: &Progress) -> Result<Evidence, StoreError> {
    // Of the beginning, so that whatever is made while we read counts as young.
    let taken_at = Timestamp::now();
    let (books, endpoints, mut evidence, config) = tokio::try_join!(
        load::books(store, progress),
        load::gather(store, vec![KeyRange::Kind(Kind::WorkloadEndpoint)], progress, Endpoints::add),
        resources(store, progress),
        async { store.get(&Key::IpamConfig).await },
    )?;
    evidence.taken_at = Some(taken_at);
    evidence.endpoints = Some(endpoints.seen);
    evidence.unread.extend(endpoints.unread);
    let mut ipam = IpamEvidence::of_store(books);
    if let Some(record) = config {
        match IpamConfig::decode(&record.value) {
            Ok(config) => ipam.config = Some(Sighted::new(config, Origin::store(&record.key))),
            Err(error) => evidence.unread.push(unread(&record.key, &error)),
        }
    }
    evidence.ipam = Some(ipam);
    Ok(evidence)
}

/// All other records.
async fn resources(store: &dyn Store, progress: &Progress) -> Result<Evidence, StoreError> {
    let kinds: Vec<Kind> = Kind::all().filter(|kind| !READ_OTHERWISE.contains(kind)).collect();
    let ranges = kinds.iter().map(|kind| KeyRange::Kind(*kind)).collect();
    let mut evidence = load::gather(store, ranges, progress, add_resource).await?;
    for kind in kinds {
        evidence.records.looked_for(kind);
    }
    Ok(evidence)
}

fn add_resource(evidence: &mut Evidence, record: &Record) {
    match read(record) {
        Ok(resource) => evidence.records.add(Sighted::new(resource, Origin::store(&record.key))),
        Err(reason) => evidence.unread.push(reason),
    }
}

#[derive(Default)]
struct Endpoints {
    seen: Vec<Sighted<Endpoint>>,
    unread: Vec<String>,
}

impl Endpoints {
    fn add(&mut self, record: &Record) {
        match read(record) {
            Ok(resource) => {
                self.seen.push(Sighted::new(Endpoint::of_resource(&resource), Origin::store(&record.key)));
            }
            Err(reason) => self.unread.push(reason),
        }
    }
}

fn read(record: &Record) -> Result<Resource, String> {
    let Key::Resource { kind, namespace, name } = &record.key else {
        return Err(format!("{} is no resource", record.key));
    };
    let mut resource = Resource::decode(&record.key, *kind, &record.value, record.revision.as_str())
        .map_err(|error| unread(&record.key, &error))?;
    if resource.metadata.name.is_empty() {
        resource.metadata.name.clone_from(name);
        resource.metadata.namespace.clone_from(namespace);
    }
    Ok(resource)
}

fn unread(key: &Key, error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    format!("{key} could not be read: {words}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::{Change, MemoryStore};

    use super::*;

    async fn look(changes: Vec<Change>) -> Evidence {
        let store = MemoryStore::new();
        store.commit(changes).await.unwrap();
        of_store(&store, &Progress::default()).await.unwrap()
    }

    fn create(key: Key, value: &serde_json::Value) -> Change {
        Change::create(key, value.to_string())
    }

    #[tokio::test]
    async fn every_record_is_evidence_with_its_place() {
        let endpoint = json!({"spec": {"node": "a", "ipNetworks": ["10.0.0.1/32"]}});
        let evidence = look(vec![
            create(Key::cluster(Kind::IpPool, "pods"), &json!({"spec": {"cidr": "10.0.0.0/16"}})),
            create(Key::cluster(Kind::Node, "a"), &json!({"metadata": {"name": "a"}})),
            create(Key::namespaced(Kind::WorkloadEndpoint, "shop", "a-k8s-cart-eth0"), &endpoint),
            create(Key::Handle("h".to_owned()), &json!({"block": {"10.0.0.0/26": 1}})),
            create(Key::IpamConfig, &json!({"strict_affinity": true})),
        ])
        .await;
        assert_eq!(evidence.unread, [] as [&str; 0]);
        let pool = evidence.records.find(Kind::IpPool, "pods").unwrap();
        assert_eq!(pool.exhibit("x").file, "/calico/resources/v3/projectcalico.org/ippools/pods");
        let endpoints = evidence.endpoints.as_deref().unwrap();
        assert_eq!((endpoints.len(), endpoints[0].seen.pod.as_deref()), (1, Some("cart")));
        let ipam = evidence.ipam.as_ref().unwrap();
        assert_eq!((ipam.books.handles.len(), ipam.whole), (1, doctor::evidence::books::Whole::ALL));
        assert!(ipam.config.is_some() && evidence.taken_at.is_some());
        assert!(evidence.records.of(Kind::BgpPeer).is_some(), "looked for, even if there is none");
    }

    #[tokio::test]
    async fn what_is_damaged_is_named_and_hides_nothing() {
        let evidence = look(vec![
            Change::create(Key::cluster(Kind::IpPool, "bad"), "{"),
            create(Key::cluster(Kind::IpPool, "good"), &json!({})),
            Change::create(Key::namespaced(Kind::WorkloadEndpoint, "n", "e"), "7"),
            Change::create(Key::IpamConfig, "no"),
        ])
        .await;
        assert_eq!(evidence.records.all(Kind::IpPool).len(), 1);
        assert_eq!(evidence.unread.len(), 3, "{:?}", evidence.unread);
        assert!(evidence.unread[0].starts_with("IPPool(bad) could not be read: "), "{:?}", evidence.unread);
    }
}
