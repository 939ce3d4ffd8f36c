//! What both stores hold before the copy, and afterwards.

use std::collections::BTreeMap;

use book::load::{Progress, gather};
use bytes::Bytes;
use model::kube::is_custom_resource;
use model::transfer::{Cluster, Destination, Meeting, Obstacle, Plan, Rule};
use model::{IpVersion, Key, KeyRange, Kind};
use store::{ListRequest, Record, Revision, Store, StoreError};

use super::side::Opened;
use crate::progress::while_reading;

/// Every record of a store, at one moment.
pub(super) async fn everything(store: &dyn Store) -> Result<Vec<Record>, StoreError> {
    let progress = Progress::default();
    let add = |records: &mut Vec<Record>, record: &Record| records.push(record.clone());
    while_reading(&progress, gather(store, vec![KeyRange::Everything], &progress, add)).await
}

/// What a destination is, and the objects of Kubernetes that records may be put onto.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) to: Destination,
    /// Endpoints; what else is known of them is in `to`.
    pods: BTreeMap<Key, Revision>,
}

pub(super) async fn survey(opened: &Opened, source: &[Record]) -> Result<Survey, StoreError> {
    let Some(layout) = opened.layout else {
        return Ok(Survey { to: Destination::Records, pods: BTreeMap::new() });
    };
    let store = &*opened.store;
    let mut cluster = Cluster::new(layout);
    for kind in Kind::all().filter(|kind| is_custom_resource(*kind)) {
        match store.list(ListRequest::new(range_of(kind)).with_limit(1)).await {
            Err(StoreError::Unsupported { .. }) if !is_indispensable(kind) => {
                cluster.unserved.insert(kind);
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    let has_endpoints = source.iter().any(|record| record.key.kind() == Kind::WorkloadEndpoint);
    let mut survey = Survey { to: Destination::Records, pods: BTreeMap::new() };
    for kind in [Kind::Profile, Kind::Node, Kind::WorkloadEndpoint] {
        if kind == Kind::WorkloadEndpoint && !has_endpoints {
            continue;
        }
        let mut request = ListRequest::new(range_of(kind));
        loop {
            let page = store.list(request.clone()).await?;
            for record in page.records {
                cluster.note(&record.key, &record.value);
                if kind == Kind::WorkloadEndpoint {
                    survey.pods.insert(record.key, record.revision);
                }
            }
            match page.next {
                Some(next) => request = request.continued(next),
                None => break,
            }
        }
    }
    survey.to = Destination::Kubernetes(cluster);
    Ok(survey)
}

/// Without these there is no Calico in the cluster.
fn is_indispensable(kind: Kind) -> bool {
    matches!(kind, Kind::ClusterInformation | Kind::IpPool | Kind::IpamBlock)
}

fn range_of(kind: Kind) -> KeyRange {
    match kind {
        Kind::IpamBlock => KeyRange::Blocks(IpVersion::V4),
        Kind::BlockAffinity => KeyRange::HostAffinities,
        Kind::IpamHandle => KeyRange::Handles,
        Kind::IpamConfiguration => KeyRange::IpamConfig,
        Kind::Node => KeyRange::NodesInBrief,
        _ => KeyRange::Kind(kind),
    }
}

/// What becomes of a record that the destination holds.
#[derive(Debug)]
pub(super) enum Met {
    Same,
    Lacks(Vec<String>),
    Kept(Vec<String>),
    Replaced { value: Bytes, revision: Revision },
    Removed { revision: Revision },
    InTheWay(Obstacle),
}

/// By keys. What has nothing to do with the copy is not in it.
pub(super) type There = BTreeMap<Key, Met>;

impl Survey {
    /// Holds what the destination has against the plan.
    pub(super) async fn meet(
        &self,
        store: &dyn Store,
        plan: &Plan<Bytes>,
        rule: Rule,
    ) -> Result<There, StoreError> {
        let mut there =
            self.gather(store, |there: &mut There, record| self.add(there, plan, rule, record)).await?;
        for (key, revision) in self.pods.iter().filter(|(key, _)| plan.writes.contains_key(*key)) {
            let value = plan.writes[key].clone();
            there.insert(key.clone(), Met::Replaced { value, revision: revision.clone() });
        }
        Ok(there)
    }

    fn add(&self, there: &mut There, plan: &Plan<Bytes>, rule: Rule, record: &Record) {
        let Record { key, value, revision } = record;
        let met = match plan.meet(&self.to, rule, key, value) {
            Meeting::Ignore => return,
            Meeting::Same => Met::Same,
            Meeting::Lacks(fields) => Met::Lacks(fields),
            Meeting::Keep(fields) => Met::Kept(fields),
            Meeting::Replace => {
                let value = plan.replacement(&self.to, key, value).unwrap_or_default().into();
                Met::Replaced { value, revision: revision.clone() }
            }
            Meeting::Remove => Met::Removed { revision: revision.clone() },
            Meeting::InTheWay(obstacle) => Met::InTheWay(obstacle),
        };
        there.insert(key.clone(), met);
    }

    /// Whether nothing is there but what a program makes at its first start, and what Kubernetes has of its own.
    pub(super) fn is_bare(&self, there: &There) -> bool {
        let is_of_kubernetes =
            |kind: Kind| matches!(self.to, Destination::Kubernetes(_)) && !is_custom_resource(kind);
        there.keys().all(|key| key.kind() == Kind::Tier || is_of_kubernetes(key.kind()))
    }

    /// Every record of the destination, apart from endpoints and profiles that are views.
    pub(super) async fn gather<T: Default>(
        &self,
        store: &dyn Store,
        add: impl Fn(&mut T, &Record),
    ) -> Result<T, StoreError> {
        let progress = Progress::default();
        while_reading(&progress, gather(store, self.ranges(), &progress, add)).await
    }

    fn ranges(&self) -> Vec<KeyRange> {
        let Destination::Kubernetes(cluster) = &self.to else { return vec![KeyRange::Everything] };
        let is_kept = |kind: &Kind| is_custom_resource(*kind) && !cluster.unserved.contains(kind);
        let kept = Kind::all().filter(is_kept).chain([Kind::Node]);
        let mut ranges: Vec<KeyRange> = kept.map(range_of).collect();
        for (first, second) in [
            (KeyRange::Blocks(IpVersion::V4), KeyRange::Blocks(IpVersion::V6)),
            (KeyRange::HostAffinities, KeyRange::VirtualAffinities),
        ] {
            if ranges.contains(&first) {
                ranges.push(second);
            }
        }
        ranges
    }
}
