//! Deleting records, with what belongs to them and not while something needs them.

use model::{KeyRange, Kind};
use store::{Record, StoreError};

use super::basics::is_basic_tier;
use super::{Done, Tries, WriteError, Writer, refuse_ipam_record};
use crate::failure::Failure;
use crate::scope::Named;
use crate::{reader, records};

impl Writer {
    /// Deletes a resource; only the version `wanted` if one is given.
    pub(crate) async fn delete(&self, named: &Named, wanted: Option<&str>) -> Result<Done, WriteError> {
        refuse_ipam_record(named.kind)?;
        let mut tries = Tries::default();
        loop {
            let record = reader::find(&self.store, named).await?;
            let record = record.ok_or_else(|| WriteError::Missing(named.clone()))?;
            if let Some(wanted) = wanted.filter(|wanted| *wanted != record.revision.as_str()) {
                return Err(Failure::new(format!(
                    "update conflict: {named}: resource version '{wanted}' is out of date (latest: {})",
                    record.revision
                ))
                .hint("read it again, or leave resourceVersion out to delete whatever is there")
                .into());
            }
            let key = record.key.clone();
            match self.delete_record(named, record).await {
                Err(Lost::Race(_)) if wanted.is_none() && tries.again().await => {}
                Err(Lost::Race(error)) => return Err(error.into()),
                Err(Lost::Other(error)) => return Err(error),
                Ok(done) => {
                    self.gone.borrow_mut().insert(key);
                    return Ok(done);
                }
            }
        }
    }

    async fn delete_record(&self, named: &Named, record: Record) -> Result<Done, Lost> {
        match named.kind {
            Kind::IpPool => Ok(self.delete_pool(record).await?),
            Kind::Node => Ok(self.delete_node(&named.name, record).await?),
            Kind::Profile if records::is_default_profile(&record.key) => {
                Err(Failure::new(format!("{named} is always there and cannot be deleted")).into())
            }
            Kind::Tier => {
                self.refuse_tier(named).await?;
                self.delete_plain(record).await
            }
            _ => self.delete_plain(record).await,
        }
    }

    async fn delete_plain(&self, record: Record) -> Result<Done, Lost> {
        if !self.dry_run {
            match self.store.delete(record.key, record.revision).await {
                Ok(_) => {}
                Err(error) if error.is_lost_race() => return Err(Lost::Race(error)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Done::Deleted)
    }

    /// A tier that policies are in, or that must always be there, stays.
    async fn refuse_tier(&self, named: &Named) -> Result<(), Failure> {
        if is_basic_tier(&named.name) {
            return Err(Failure::new(format!("{named} is always there and cannot be deleted")));
        }
        for kind in Kind::all().filter(|kind| kind.is_tiered()) {
            let (policies, _) = self.store.list_all(KeyRange::Kind(kind)).await?;
            for policy in policies.iter().filter(|policy| !self.is_gone(policy)) {
                if records::to_resource(policy)?.tier() == named.name {
                    return Err(Failure::new(format!("{named} cannot be deleted: {} is in it", policy.key))
                        .hint("delete its policies first, or move them to another tier"));
                }
            }
        }
        Ok(())
    }
}

/// Why a record was not deleted: someone else changed it first, or anything else.
enum Lost {
    Race(StoreError),
    Other(WriteError),
}

impl<T: Into<WriteError>> From<T> for Lost {
    fn from(error: T) -> Lost {
        Lost::Other(error.into())
    }
}
