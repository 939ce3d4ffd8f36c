//! Deleting records, with what belongs to them and not while something needs them.

use model::{KeyRange, Kind};
use store::Record;

use super::basics::is_basic_tier;
use super::replace::refuse_outdated;
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
            refuse_outdated(named, wanted, &record)?;
            let key = record.key.clone();
            match self.delete_record(named, record).await {
                Err(WriteError::Overtaken(_)) if wanted.is_none() && tries.again().await => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    self.gone.borrow_mut().insert(key);
                    return Ok(Done::Deleted);
                }
            }
        }
    }

    async fn delete_record(&self, named: &Named, record: Record) -> Result<(), WriteError> {
        match named.kind {
            Kind::IpPool => return self.delete_pool(record).await,
            Kind::Node => return self.delete_node(&named.name, record).await,
            Kind::Tier => self.refuse_tier(named).await?,
            Kind::Profile if records::is_default_profile(&record.key) => {
                return Err(Failure::new(format!("{named} is always there and cannot be deleted")).into());
            }
            _ => {}
        }
        if !self.dry_run {
            self.store.delete(record.key, record.revision).await?;
        }
        Ok(())
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
