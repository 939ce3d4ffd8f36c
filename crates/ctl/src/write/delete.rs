//! Deleting records, with what belongs to them and not while something needs them.

use model::validate::{is_in_tier, refuse_deletion};
use model::{KeyRange, Kind};
use store::Record;

use super::prepare::refuse_kubernetes_policy;
use super::replace::refuse_outdated;
use super::{Done, Tries, WriteError, Writer, refuse_ipam_record};
use crate::failure::Failure;
use crate::report::Verb;
use crate::scope::Named;
use crate::{reader, records};

impl Writer {
    /// Deletes a resource; only the version `wanted` if one is given.
    pub(crate) async fn delete(&self, named: &Named, wanted: Option<&str>) -> Result<Done, WriteError> {
        refuse_ipam_record(named.kind)?;
        self.refuse_view(named, Verb::Delete.word())?;
        refuse_built_in(named)?;
        let mut tries = Tries::default();
        loop {
            let Some(record) = reader::find(&self.store, named).await? else {
                return if self.gone.borrow().contains(&named.key()) {
                    // It went along with something else that this command deleted.
                    Ok(Done::Deleted)
                } else {
                    Err(WriteError::Missing(named.clone()))
                };
            };
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
            Kind::IpPool => return self.delete_pool(named, record).await,
            Kind::Node => return self.delete_node(&named.name, record).await,
            Kind::Tier => self.refuse_tier(named).await?,
            _ => {}
        }
        self.delete_at(record).await
    }

    /// Deletes a record exactly as it was read.
    pub(super) async fn delete_at(&self, record: Record) -> Result<(), WriteError> {
        if !self.dry_run {
            self.store.delete(record.key, record.revision).await?;
        }
        Ok(())
    }

    /// A tier that policies are in stays.
    async fn refuse_tier(&self, named: &Named) -> Result<(), Failure> {
        for kind in Kind::all().filter(|kind| kind.is_tiered()) {
            let (policies, _) = self.store.list_all(KeyRange::Kind(kind)).await?;
            for policy in policies.iter().filter(|policy| !self.is_gone(policy)) {
                if is_in_tier(&records::to_resource(policy)?, &named.name) {
                    return Err(Failure::new(format!(
                        "{named} cannot be deleted: it contains {}",
                        policy.key
                    ))
                    .hint("delete its policies first, or move them to another tier")
                    .in_calicoctl(format!(
                        "operation delete is not supported on {}: Cannot delete a non-empty tier",
                        named.name
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Refuses to delete what every cluster has, and what Kubernetes manages.
fn refuse_built_in(named: &Named) -> Result<(), Failure> {
    if refuse_deletion(&named.key()).is_none() {
        return Ok(());
    }
    let name = &named.name;
    let said = match named.kind {
        Kind::NetworkPolicy => return Err(refuse_kubernetes_policy(named, "delete")),
        Kind::Tier => format!("operation Delete is not supported on {name}: Cannot delete {name} tier"),
        Kind::ClusterInformation => "operation delete is not supported on ClusterInformation".to_owned(),
        _ => format!(
            "operation Delete is not supported on {name}: The profile \"{name}\" is a default provided by Calico and cannot \
             be deleted"
        ),
    };
    Err(Failure::new(format!("{named} is built in and cannot be deleted")).in_calicoctl(said))
}
