//! What Kubernetes knows, written into a store of its own: profiles of namespaces and service accounts, labels of endpoints and nodes, and
//! network policies. Where Kubernetes keeps the records, they show all of that by themselves, and nothing is to be done.
//!
//! Objects are listed once and then followed. Records are read in batches and written one by one, by compare-and-swap. A record whose object is
//! gone is removed when it has been gone for the grace, Kubernetes confirms it, and no endpoint refers to it.

mod part;
mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::text::on_one_line;
use model::{Key, KeyRange, Kind, Resource};
use store::follow::{Update, follow};
use store::kube::KubeObjects;
use store::{Lookup, MAX_CHANGES, Record, Revision, Store, StoreError};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::configured::Configured;
use crate::pages::Status;
use part::{Projected, kubernetes_node, without_revision};

const POLICIES: &str = "/apis/networking.k8s.io/v1/networkpolicies";
/// Policies are listed so often: there are few, and only they are.
const POLICIES_EVERY: Duration = Duration::from_secs(10);
/// How long to wait for a change before something else is done.
const TICK: Duration = Duration::from_secs(1);

/// What projecting needs.
pub(crate) struct Projecting {
    /// Limited, and changed only while this replica leads.
    pub(crate) store: Arc<dyn Store>,
    /// Objects of Kubernetes as the records that they show.
    pub(crate) views: Arc<dyn Store>,
    pub(crate) objects: KubeObjects,
    pub(crate) status: Arc<Status>,
    pub(crate) grace: Duration,
    /// What the record of settings asked for last.
    pub(crate) configured: watch::Receiver<Configured>,
}

/// Records whose objects are gone, and since when.
#[derive(Debug, Default)]
struct Absent(BTreeMap<Key, Instant>);

impl Absent {
    /// Those that have been absent for the grace, of all that are.
    fn due(&mut self, absent: BTreeSet<Key>, grace: Duration) -> Vec<Key> {
        let now = Instant::now();
        self.0.retain(|key, _| absent.contains(key));
        for key in absent {
            self.0.entry(key).or_insert(now);
        }
        let is_due = |since: &Instant| now.duration_since(*since) >= grace;
        self.0.iter().filter(|(_, since)| is_due(since)).map(|(key, _)| key.clone()).collect()
    }
}

impl Projecting {
    /// Never ends. Whoever runs it drops it when this replica does not lead any more.
    pub(crate) async fn run(&self) {
        tokio::join!(
            self.project(Projected::Profiles, "namespaces and service accounts"),
            self.project(Projected::Endpoints, "pods"),
            self.project(Projected::Nodes, "nodes"),
            self.policies(),
        );
    }

    async fn project(&self, what: Projected, words: &str) {
        let (sender, updates) = mpsc::unbounded_channel();
        let following = follow(&*self.views, KeyRange::Kind(what.kind()), words, move |update| {
            // The other end lives as long as this.
            let _ = sender.send(update);
        });
        tokio::join!(following, self.work(what, updates));
    }

    async fn work(&self, what: Projected, mut updates: UnboundedReceiver<Update>) {
        let (mut known, mut absent) = (BTreeSet::new(), Absent::default());
        let mut waiting: Vec<Record> = Vec::new();
        let (mut is_in_sync, mut looked) = (false, Instant::now());
        loop {
            // As many as there are, so that one request reads them all.
            let mut next = timeout(TICK, updates.recv()).await.ok().flatten();
            while let Some(update) = next {
                match update {
                    Update::ListBegins => known.clear(),
                    Update::ListEnds => is_in_sync = true,
                    Update::OutOfSync => is_in_sync = false,
                    Update::Listed(record) | Update::Put(record) => {
                        known.insert(record.key.clone());
                        waiting.push(record);
                    }
                    Update::Deleted(key) => drop(known.remove(&key)),
                }
                next = if waiting.len() < MAX_CHANGES { updates.try_recv().ok() } else { None };
            }
            let batch = latest(std::mem::take(&mut waiting));
            waiting = match self.write(what, &batch).await {
                Ok(lost) => lost,
                Err(error) => {
                    warn!(error = %on_one_line(&error), kind = %what.kind(), "cannot write what Kubernetes shows; retrying");
                    sleep(TICK).await;
                    batch
                }
            };
            if what.owns() && is_in_sync && looked.elapsed() >= self.grace.max(TICK) / 2 {
                looked = Instant::now();
                if let Err(error) = self.remove_profiles(&known, &mut absent).await {
                    warn!(error = %on_one_line(&error), "cannot remove profiles of what is gone; retrying");
                }
            }
        }
    }

    /// Brings the records of these views up to date. Returns those that another process changed at the same time.
    async fn write(&self, what: Projected, views: &[Record]) -> Result<Vec<Record>, StoreError> {
        let mut lost = Vec::new();
        let is_wanted = what != Projected::Nodes || self.configured.borrow().syncs_labels;
        if views.is_empty() || !is_wanted {
            return Ok(lost);
        }
        let keys: Vec<Key> = views.iter().map(|view| view.key.clone()).collect();
        for (keys, views) in keys.chunks(MAX_CHANGES).zip(views.chunks(MAX_CHANGES)) {
            let found = self.store.read(keys.iter().cloned().map(Lookup::Record).collect()).await?;
            for (record, found) in views.iter().zip(found) {
                let Some(view) = decode(record, what.kind()) else { continue };
                let existing = match found.first() {
                    Some(record) => match decode(record, what.kind()) {
                        Some(existing) => Some((existing, record.revision.clone())),
                        // What cannot be read is not overwritten.
                        None => continue,
                    },
                    None => None,
                };
                // A Node that names no such node is another's.
                let is_its =
                    |(node, _): &(Resource, Revision)| kubernetes_node(node) == Some(&view.metadata.name);
                if what == Projected::Nodes && !existing.as_ref().is_some_and(is_its) {
                    continue;
                }
                let Some(wanted) = what.onto(&view, existing.as_ref().map(|(existing, _)| existing)) else {
                    continue;
                };
                if !self.put(&wanted, existing.map(|(_, revision)| revision)).await? {
                    lost.push(record.clone());
                }
            }
        }
        Ok(lost)
    }

    /// Creates or replaces a record. Whether it did: another process may have been faster.
    async fn put(&self, wanted: &Resource, revision: Option<Revision>) -> Result<bool, StoreError> {
        let (key, value) = (wanted.key(), wanted.encode());
        let written = match revision {
            Some(revision) => self.store.update(key.clone(), value, revision).await,
            None => self.store.create(key.clone(), value).await,
        };
        match written {
            Ok(_) => {
                info!(record = %key, "wrote what Kubernetes shows");
                self.status.metrics.projected.count(wanted.kind.name());
                Ok(true)
            }
            Err(
                StoreError::Conflict { .. } | StoreError::NotFound { .. } | StoreError::AlreadyExists { .. },
            ) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn remove_profiles(&self, known: &BTreeSet<Key>, absent: &mut Absent) -> Result<(), StoreError> {
        let (records, _) = self.store.list_all(KeyRange::Kind(Kind::Profile)).await?;
        let is_orphan = |record: &&Record| {
            let Key::Resource { name, .. } = &record.key else { return false };
            Projected::Profiles.is_ours(name) && !known.contains(&record.key)
        };
        let orphans: Vec<&Record> = records.iter().filter(is_orphan).collect();
        let due = absent.due(orphans.iter().map(|record| record.key.clone()).collect(), self.grace);
        for record in orphans.into_iter().filter(|record| due.contains(&record.key)) {
            // The last word is Kubernetes' own: what was followed may be late.
            if self.views.get(&record.key).await?.is_some() || self.is_profile_in_use(&record.key).await? {
                continue;
            }
            self.remove(record).await?;
        }
        Ok(())
    }

    async fn is_profile_in_use(&self, profile: &Key) -> Result<bool, StoreError> {
        let Key::Resource { name, .. } = profile else { return Ok(true) };
        let Some(namespace) = name.split('.').nth(1) else { return Ok(true) };
        let range = KeyRange::Namespace(Kind::WorkloadEndpoint, namespace.to_owned());
        let (endpoints, _) = self.store.list_all(range).await?;
        let refers = |record: &Record| {
            let Some(endpoint) = decode(record, Kind::WorkloadEndpoint) else { return true };
            let profiles = endpoint.spec("profiles").and_then(|list| list.as_array()).into_iter().flatten();
            profiles.into_iter().any(|profile| profile == name.as_str())
        };
        Ok(endpoints.iter().any(refers))
    }

    async fn remove(&self, record: &Record) -> Result<(), StoreError> {
        match self.store.delete(record.key.clone(), record.revision.clone()).await {
            Ok(_) => {
                info!(record = %record.key, "removed it: its object in Kubernetes is gone");
                self.status.metrics.projected.count(record.key.kind().name());
                Ok(())
            }
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn policies(&self) {
        let (mut absent, mut warned) = (Absent::default(), BTreeSet::new());
        loop {
            if let Err(error) = self.write_policies(&mut absent, &mut warned).await {
                warn!(error = %on_one_line(&error), "cannot write the network policies of Kubernetes; retrying");
            }
            sleep(POLICIES_EVERY.min(self.grace)).await;
        }
    }

    async fn write_policies(
        &self,
        absent: &mut Absent,
        warned: &mut BTreeSet<String>,
    ) -> Result<(), StoreError> {
        let mut wanted = BTreeMap::new();
        for object in self.objects.list(POLICIES).await? {
            let Some(converted) = policy::convert(&object) else { continue };
            let key = converted.policy.key();
            for what in converted.left_out {
                let words = format!("{key}: {what}");
                if warned.insert(words.clone()) {
                    warn!("left out, and so not allowed: {words} cannot be understood");
                }
            }
            wanted.insert(key, converted.policy);
        }
        let (records, _) = self.store.list_all(KeyRange::Kind(Kind::NetworkPolicy)).await?;
        let is_ours = |record: &&Record| matches!(&record.key, Key::Resource { name, .. } if name.starts_with(policy::PREFIX));
        let existing: BTreeMap<&Key, &Record> =
            records.iter().filter(is_ours).map(|record| (&record.key, record)).collect();
        for (key, policy) in &wanted {
            let Some(record) = existing.get(key) else {
                self.put(policy, None).await?;
                continue;
            };
            let Some(mut found) = decode(record, Kind::NetworkPolicy) else { continue };
            if found.body.get("spec") != policy.body.get("spec") {
                found.body.insert("spec".to_owned(), policy.body.get("spec").cloned().unwrap_or_default());
                self.put(&found, Some(record.revision.clone())).await?;
            }
        }
        let orphans: BTreeSet<Key> =
            existing.keys().filter(|key| !wanted.contains_key(**key)).map(|key| (*key).clone()).collect();
        for key in absent.due(orphans, self.grace) {
            if let Some(record) = existing.get(&key) {
                self.remove(record).await?;
            }
        }
        Ok(())
    }
}

/// The last of each record, in the order in which they came last.
fn latest(records: Vec<Record>) -> Vec<Record> {
    let mut seen = BTreeSet::new();
    let mut latest: Vec<Record> =
        records.into_iter().rev().filter(|record| seen.insert(record.key.clone())).collect();
    latest.reverse();
    latest
}

fn decode(record: &Record, kind: Kind) -> Option<Resource> {
    store::follow::decode(record, kind).map(without_revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_starts_over() {
        let key = |name: &str| Key::cluster(Kind::Profile, name);
        let mut absent = Absent::default();
        assert_eq!(absent.due([key("a")].into(), Duration::from_secs(1000)), []);
        assert_eq!(absent.due([key("a"), key("b")].into(), Duration::ZERO), [key("a"), key("b")]);
        assert_eq!(absent.due([key("b")].into(), Duration::ZERO), [key("b")]);
        assert_eq!(absent.0.len(), 1);
    }
}
