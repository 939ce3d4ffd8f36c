//! The destination's own record: read, locked and marked before anything else is written, and opened at the end.

use model::Resource;
use model::cluster::new_cluster_information;
use model::transfer::information::{self, Standing, begun, finished, replacement, says, stand};
use model::transfer::{Destination, Existing, Rule};
use store::{Change, Record, Revision, Store, StoreError};

use crate::failure::Failure;
use crate::records;
use crate::write::{Tries, born, new_guid};

/// What the copy finds and leaves as the destination's ClusterInformation.
#[derive(Debug)]
pub(super) struct Beginning {
    /// What it is to say, apart from the lock.
    planned: Resource,
    existing: Existing,
    pub(super) there: Option<(Resource, Record)>,
    /// `None` if there is no such record.
    pub(super) standing: Option<Standing>,
}

impl Beginning {
    pub(super) async fn read(
        store: &dyn Store,
        to: &Destination,
        source: Option<&Resource>,
        existing: Existing,
    ) -> Result<Beginning, Failure> {
        let found = store.get(&information::key()).await?;
        let there = found.map(|record| records::to_resource(&record).map(|own| (own, record))).transpose()?;
        // Without one in the source, the destination keeps or gets its own: Calico's tools need it.
        let planned = source.or(there.as_ref().map(|(resource, _)| resource)).cloned();
        let planned = planned.unwrap_or_else(|| born(new_cluster_information(&new_guid())));
        let mut beginning = Beginning { planned, existing, there, standing: None };
        beginning.consider(to, false);
        Ok(beginning)
    }

    /// `is_bare`: the destination holds nothing else that counts.
    pub(super) fn consider(&mut self, to: &Destination, is_bare: bool) {
        let stand = |(there, _): &(Resource, Record)| stand(to, &self.planned, there, self.existing, is_bare);
        self.standing = self.there.as_ref().map(stand);
    }

    pub(super) fn rule(&self) -> Rule {
        match &self.standing {
            Some(standing) => standing.rule(self.existing),
            None => Rule { existing: self.existing, is_unfinished: false },
        }
    }

    /// Whether the record is already as a finished copy leaves it.
    pub(super) fn is_final(&self, is_ready: bool) -> bool {
        match self.standing {
            Some(Standing::Same { is_locked } | Standing::Kept { is_locked }) => is_locked != is_ready,
            _ => false,
        }
    }

    /// Locks the destination and marks it. The revision is what every later write relies on. A copy that is resumed gets a new one,
    /// so that another process at the same copy stops.
    pub(super) async fn lock(
        &self,
        store: &dyn Store,
        to: &Destination,
        from: &str,
    ) -> Result<Revision, Failure> {
        let stays = match &self.standing {
            Some(Standing::Same { .. } | Standing::Kept { .. }) => true,
            Some(Standing::Unfinished) => self.existing == Existing::Keep,
            _ => false,
        };
        let own = self.there.as_ref().map(|(own, _)| own).filter(|_| stays);
        let information = begun(own.unwrap_or(&self.planned).clone(), from, &self.planned);
        let there = self.there.as_ref().map(|(_, record)| record);
        let change = match there {
            Some(Record { key, value, revision }) => {
                Change::update(key.clone(), replacement(to, &information, value), revision.clone())
            }
            None => Change::create(information::key(), information.encode()),
        };
        let locked = settle(store, to, change, &information).await;
        locked.map_err(|error| Failure::from(error).within("cannot lock the destination"))
    }
}

/// Makes a change to the destination's own record, and finds out whether it was made if the answer is lost.
async fn settle(
    store: &dyn Store,
    to: &Destination,
    change: Change,
    information: &Resource,
) -> Result<Revision, StoreError> {
    let mut tries = Tries::default();
    loop {
        match store.commit(vec![change.clone()]).await {
            Ok(mut committed) => return Ok(committed.revisions.remove(0)),
            Err(StoreError::Uncertain { .. } | StoreError::Unreachable { .. }) if tries.again().await => {
                match store.get(&change.key).await {
                    Ok(Some(found)) if says(to, information, &found.value) => return Ok(found.revision),
                    // If it is another program's, the next try is refused.
                    _ => {}
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Makes the destination ready, or leaves it locked without the mark.
pub(super) async fn release(
    store: &dyn Store,
    to: &Destination,
    lock: &Revision,
    is_ready: bool,
) -> Result<(), Failure> {
    let failed = |error: StoreError| {
        Failure::from(error)
            .within("every record is written, but the destination's lock could not be changed")
            .hint("run the same command again")
    };
    let record = store.get(&information::key()).await.map_err(failed)?;
    let Some(record) = record.filter(|record| record.revision == *lock) else {
        return Err(Failure::new("another program changed ClusterInformation(default) in the destination")
            .hint("stop what uses the destination, then run the same command again"));
    };
    let information = finished(records::to_resource(&record)?, is_ready);
    let change = Change::update(record.key, information.encode(), record.revision);
    settle(store, to, change, &information).await.map(drop).map_err(failed)
}
