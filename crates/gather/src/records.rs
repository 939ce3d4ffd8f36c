//! A store's records as evidence.

use book::load::{self, Progress};
use evidence::books::Whole;
use evidence::{Endpoint, IpamEvidence};
use evidence::{Evidence, Origin, Sighted, Unseen};
use ipam::{Answer, Books, Corrupt};
use jiff::Timestamp;
use model::ipam::IpamConfig;
use model::text::on_one_line;
use model::{Key, KeyRange, Kind, Resource};
use store::{Record, Store, StoreError};

use crate::kubernetes::{self, Purpose, Shows};

/// Kinds that are not read as resources: IPAM's own have lists of their own, and of endpoints, of which there are very
/// many, only what matters is kept.
const READ_OTHERWISE: [Kind; 4] =
    [Kind::WorkloadEndpoint, Kind::IpamBlock, Kind::IpamHandle, Kind::BlockAffinity];

/// Everything a store holds, read page by page, side by side; and of Kubernetes, if it keeps the store, what its objects say besides. The
/// lists are not of one moment: what was found to disagree may just have changed in between, so whoever concludes anything looks twice.
pub async fn of_store(store: &dyn Store, progress: &Progress) -> Result<Evidence, StoreError> {
    // Of the beginning, so that whatever is made while we read counts as young.
    let taken_at = Timestamp::now();
    let (books, endpoints, nodes, others, config, divided) = tokio::try_join!(
        load::books(store, progress),
        endpoints(store, progress),
        nodes(store, progress),
        others(store, progress),
        load::gather(store, vec![KeyRange::IpamConfig], progress, Records::add_record),
        divided_groups(store),
    )?;
    let mut records = Records { books, ..others };
    records.absorb(endpoints.records);
    records.absorb(nodes.records);
    records.absorb(config);
    let mut evidence = records.finish(true);
    evidence.absorb(endpoints.evidence);
    evidence.absorb(nodes.evidence);
    evidence.unseen.extend(divided);
    evidence.taken_at = Some(taken_at);
    Ok(evidence)
}

/// Records of all kinds that have no list of their own. An older Calico has fewer kinds, and pools at least. Whoever may read pools, but
/// not everything, sees the rest.
async fn others(store: &dyn Store, progress: &Progress) -> Result<Records, StoreError> {
    let mut records = Records::default();
    for kind in other_kinds().filter(|kind| *kind != Kind::Node) {
        match load::gather(store, vec![KeyRange::Kind(kind)], progress, Records::add_record).await {
            Ok(found) => records.absorb(found),
            Err(StoreError::Unsupported { .. }) if kind != Kind::IpPool => records.not_served.push(kind),
            Err(error @ StoreError::AccessDenied { .. }) if kind != Kind::IpPool => {
                records.refused.push((kind, kubernetes::with_hint(&error)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(records)
}

async fn divided_groups(store: &dyn Store) -> Result<Option<Unseen>, StoreError> {
    let Some(objects) = store.objects() else { return Ok(None) };
    let divided = objects.divided_groups().await?;
    Ok(divided
        .map(|(read, other)| Unseen::DividedGroups { read: read.api_version(), other: other.api_version() }))
}

/// Where Kubernetes keeps the store, its pods are the endpoints.
async fn endpoints(store: &dyn Store, progress: &Progress) -> Result<Shows, StoreError> {
    match store.objects() {
        Some(objects) => kubernetes::pods(&objects, Purpose::WithRecords, progress).await,
        None => of_kind(store, Kind::WorkloadEndpoint, progress).await,
    }
}

async fn nodes(store: &dyn Store, progress: &Progress) -> Result<Shows, StoreError> {
    match store.objects() {
        Some(objects) => kubernetes::nodes(&objects, Purpose::WithRecords, progress).await,
        None => of_kind(store, Kind::Node, progress).await,
    }
}

async fn of_kind(store: &dyn Store, kind: Kind, progress: &Progress) -> Result<Shows, StoreError> {
    let ranges = vec![KeyRange::Kind(kind)];
    let records = load::gather(store, ranges, progress, Records::add_record).await?;
    Ok(Shows { records, ..Shows::default() })
}

fn other_kinds() -> impl Iterator<Item = Kind> {
    Kind::all().filter(|kind| !READ_OTHERWISE.contains(kind))
}

/// Records that have been read so far, wherever they come from.
#[derive(Default)]
pub(crate) struct Records {
    others: Evidence,
    books: Books,
    endpoints: Vec<Sighted<Endpoint>>,
    config: Option<Sighted<IpamConfig>>,
    unseen: Vec<Unseen>,
    /// Endpoints, nodes and pools that cannot be read: they may use any address, or contain it.
    unreadable: Vec<Corrupt>,
    /// Kinds that the store does not have at all.
    not_served: Vec<Kind>,
    /// Kinds that may not be read, and why.
    refused: Vec<(Kind, String)>,
}

impl Records {
    fn add_record(&mut self, record: &Record) {
        self.add(&record.key, &record.value, record.revision.as_str());
    }

    pub(crate) fn add(&mut self, key: &Key, value: &[u8], revision: &str) {
        let added = match key {
            Key::Resource { kind: Kind::WorkloadEndpoint, .. } => self.add_endpoint(key, value, revision),
            Key::Resource { .. } => self.add_resource(key, value, revision),
            Key::IpamConfig => self.add_config(key, value),
            key => {
                self.books.add(key, Answer::read(key, Some((value, revision))));
                Ok(())
            }
        };
        if let Err(why) = added {
            self.refuse(key, why);
        }
    }

    /// A record that cannot be read.
    pub(crate) fn refuse(&mut self, key: &Key, why: String) {
        if matches!(key, Key::Resource { kind: Kind::WorkloadEndpoint | Kind::Node | Kind::IpPool, .. }) {
            self.unreadable.push(Corrupt { key: key.clone(), contradictions: vec![why.clone()] });
        }
        self.unseen.push(Unseen::Record { key: key.clone(), why });
    }

    fn add_endpoint(&mut self, key: &Key, value: &[u8], revision: &str) -> Result<(), String> {
        let endpoint = Endpoint::of_resource(&read(key, value, revision)?);
        self.endpoints.push(Sighted::new(endpoint, Origin::store(key)));
        Ok(())
    }

    fn add_resource(&mut self, key: &Key, value: &[u8], revision: &str) -> Result<(), String> {
        let resource = read(key, value, revision)?;
        self.others.records.add(Sighted::new(resource, Origin::store(key)));
        Ok(())
    }

    fn add_config(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        let config = IpamConfig::decode(value).map_err(|error| on_one_line(&error))?;
        self.config = Some(Sighted::new(config, Origin::store(key)));
        Ok(())
    }

    /// Takes in other records of the same store, without its books.
    fn absorb(&mut self, other: Records) {
        self.others.absorb(other.others);
        self.endpoints.extend(other.endpoints);
        self.config = self.config.take().or(other.config);
        self.unseen.extend(other.unseen);
        self.unreadable.extend(other.unreadable);
        self.not_served.extend(other.not_served);
        self.refused.extend(other.refused);
    }

    /// `is_whole`: nothing of the store is missing, so what is not there does not exist.
    pub(crate) fn finish(self, is_whole: bool) -> Evidence {
        let mut evidence = self.others;
        evidence.unseen.extend(self.unseen);
        if !self.not_served.is_empty() {
            evidence.unseen.push(Unseen::NotServed { kinds: self.not_served.clone() });
        }
        if let Some((_, why)) = self.refused.first() {
            let kinds = self.refused.iter().map(|(kind, _)| *kind).collect();
            evidence.unseen.push(Unseen::Refused { kinds, why: why.clone() });
        }
        if is_whole {
            let is_refused = |kind: &Kind| self.refused.iter().any(|(refused, _)| refused == kind);
            let seen = other_kinds().filter(|kind| !self.not_served.contains(kind) && !is_refused(kind));
            seen.for_each(|kind| evidence.records.looked_for(kind));
        }
        let is_endpoint =
            |corrupt: &Corrupt| matches!(corrupt.key, Key::Resource { kind: Kind::WorkloadEndpoint, .. });
        // One that cannot be read may be anybody's.
        evidence.partial.endpoints = !is_whole || self.unreadable.iter().any(is_endpoint);
        if is_whole || !self.endpoints.is_empty() {
            evidence.endpoints = Some(self.endpoints);
        }
        let mut ipam = IpamEvidence::of_store(self.books);
        ipam.books.unreadable.extend(self.unreadable);
        ipam.config = self.config;
        if !is_whole {
            ipam.whole = Whole::default();
        }
        evidence.ipam = Some(ipam);
        evidence
    }
}

fn read(key: &Key, value: &[u8], revision: &str) -> Result<Resource, String> {
    let Key::Resource { kind, namespace, name } = key else {
        return Err("it is not a resource".to_owned());
    };
    let mut resource = Resource::decode(key, *kind, value, revision).map_err(|error| on_one_line(&error))?;
    if resource.metadata.name.is_empty() {
        resource.metadata.name.clone_from(name);
        resource.metadata.namespace.clone_from(namespace);
    }
    Ok(resource)
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
            create(Key::Handle("h".into()), &json!({"block": {"10.0.0.0/26": 1}})),
            create(Key::IpamConfig, &json!({"strict_affinity": true})),
        ])
        .await;
        assert_eq!(evidence.unseen, []);
        let pool = evidence.records.find(Kind::IpPool, "pods").unwrap();
        assert_eq!(pool.exhibit("x").file, "/calico/resources/v3/projectcalico.org/ippools/pods");
        let endpoints = evidence.endpoints.as_deref().unwrap();
        assert_eq!((endpoints.len(), endpoints[0].seen.pod.as_deref()), (1, Some("cart")));
        let ipam = evidence.ipam.as_ref().unwrap();
        assert_eq!((ipam.books.handles.len(), ipam.whole), (1, evidence::books::Whole::ALL));
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
        assert!(evidence.partial.endpoints, "the endpoint that cannot be read may be anybody's");
        let unreadable: Vec<String> =
            evidence.ipam.as_ref().unwrap().books.unreadable.iter().map(|one| one.key.to_string()).collect();
        assert_eq!(unreadable, ["IPPool(bad)", "WorkloadEndpoint(n/e)"]);
        let words: Vec<String> = evidence.unseen.iter().map(Unseen::to_string).collect();
        assert_eq!(words.len(), 3, "{words:?}");
        assert!(words[0].starts_with("IPPool(bad) could not be read: "), "{words:?}");
    }
}
