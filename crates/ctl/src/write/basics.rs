//! The records that Calico's tools cannot do without: the cluster's own, and the tiers every policy may name.

use jiff::{Timestamp, Unit};
use model::cluster::{
    CLUSTER_INFORMATION, basic_tiers, complete_cluster_information, is_locked, new_cluster_information,
};
use model::{Key, Kind, Resource};
use store::{Change, StoreError};
use uuid::Uuid;

use super::Writer;
use crate::{compat, records};

/// Makes the basic records that are missing. What cannot be made is left out: it may be that this user may write
/// only some kinds, and the records that were asked for are more important.
pub(crate) async fn ensure_basics(writer: &Writer) {
    if let Err(error) = ensure_cluster_information(writer).await {
        tracing::info!(%error, "cannot create ClusterInformation");
    }
    for tier in basic_tiers() {
        let (key, name) = (tier.key(), tier.metadata.name.clone());
        match writer.store.get(&key).await {
            Ok(None) => match writer.store.create(key, born(tier).encode()).await {
                Ok(_) | Err(StoreError::AlreadyExists { .. }) => {}
                Err(error) => tracing::info!(%error, tier = name, "cannot create a tier"),
            },
            Ok(Some(_)) => {}
            Err(error) => tracing::info!(%error, tier = name, "cannot read a tier"),
        }
    }
}

async fn ensure_cluster_information(writer: &Writer) -> Result<(), StoreError> {
    let key = Key::cluster(Kind::ClusterInformation, CLUSTER_INFORMATION);
    let Some(record) = writer.store.get(&key).await? else {
        return match writer.store.create(key, born(new_cluster_information(&new_guid())).encode()).await {
            Ok(_) | Err(StoreError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error),
        };
    };
    let Ok(mut information) = records::to_resource(&record) else { return Ok(()) };
    if !complete_cluster_information(&mut information, new_guid) {
        return Ok(());
    }
    match writer.store.update(key, information.encode(), record.revision).await {
        // Somebody else is at it; they know better.
        Ok(_) | Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A change that writes the cluster's own record as it is. Two commits that both hold it cannot both happen, so
/// what one of them checked before is still true when it commits.
pub(super) async fn one_at_a_time(writer: &Writer) -> Result<Change, StoreError> {
    let key = Key::cluster(Kind::ClusterInformation, CLUSTER_INFORMATION);
    Ok(match writer.store.get(&key).await? {
        Some(record) => Change::update(key, record.value, record.revision),
        None => Change::create(key, born(new_cluster_information(&new_guid())).encode()),
    })
}

/// Says so if the store is locked. Changes go through all the same, as with calicoctl: a lock stops pods, not
/// operators. But what is changed after the records were copied elsewhere is lost.
pub(crate) async fn warn_if_locked(writer: &Writer) {
    let key = Key::cluster(Kind::ClusterInformation, CLUSTER_INFORMATION);
    let Ok(Some(record)) = writer.store.get(&key).await else { return };
    let Ok(information) = records::to_resource(&record) else { return };
    if is_locked(&information) {
        compat::say(
            "warning: the datastore is locked for a migration; a change made now may not be carried over\n\
             hint: after the migration, unlock it with plumb datastore migrate unlock",
        );
    }
}

pub(crate) fn new_guid() -> String {
    Uuid::new_v4().simple().to_string()
}

/// Gives a new resource the metadata that every stored one has.
pub(crate) fn born(mut resource: Resource) -> Resource {
    let now = Timestamp::now();
    let seconds = now.round(Unit::Second).unwrap_or(now);
    resource.metadata.uid = Some(Uuid::new_v4().to_string());
    resource.metadata.creation_timestamp = Some(seconds.to_string());
    resource
}
