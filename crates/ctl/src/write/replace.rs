//! Replacing a record by what a manifest says, or by what a change makes of it.

use model::ipam::IpamConfig;
use model::resource::DEFAULT_ALLOW_PROFILE;
use model::validate::{Violation, validate_update};
use model::{Kind, Metadata, Resource};
use store::{Record, StoreError};

use super::view::{Author, warn_of_kept};
use super::{Done, Tries, WriteError, Writer, restore_unknown};
use crate::compat;
use crate::failure::Failure;
use crate::scope::Named;
use crate::{reader, records};

impl Writer {
    /// Replaces a resource. Labels, annotations and the body are the author's; other metadata stays. With a
    /// resourceVersion exactly that version is replaced; without one, whatever is there.
    pub(crate) async fn replace(&self, input: &Resource) -> Result<Done, WriteError> {
        let wanted = input.metadata.resource_version.as_deref();
        self.rewrite(&Named::of(input), wanted, Author::Manifest, |stored| Ok(merged(stored, input))).await
    }

    /// Changes a resource as an operator asks for; only the version `wanted` if one is given.
    pub(crate) async fn change(
        &self,
        named: &Named,
        wanted: Option<&str>,
        change: impl Fn(&Resource) -> Result<Resource, Failure>,
    ) -> Result<Done, WriteError> {
        self.rewrite(named, wanted, Author::Operator, change).await
    }

    /// Reads a resource, has it changed, and writes it back if nobody else wrote meanwhile; else again from the
    /// start, unless the change was meant for the version `wanted` alone.
    async fn rewrite(
        &self,
        named: &Named,
        wanted: Option<&str>,
        author: Author,
        change: impl Fn(&Resource) -> Result<Resource, Failure>,
    ) -> Result<Done, WriteError> {
        let mut tries = Tries::default();
        loop {
            let record = reader::find(&self.store, named).await?;
            let record = record.ok_or_else(|| WriteError::Missing(named.clone()))?;
            refuse_outdated(named, wanted, &record)?;
            let stored = records::to_resource(&record)?;
            let mut next = change(&stored)?;
            let kept = self.keep_computed(named, &stored, &mut next, author)?;
            // Where Kubernetes does not keep the records, writing one again raises its version, as with calicoctl.
            let is_written_again =
                !(self.dry_run || self.has_views() || records::is_default_profile(&record.key));
            if next == stored && !is_written_again {
                warn_of_kept(named, &kept);
                return Ok(Done::Unchanged);
            }
            refuse(named, &next, validate_update(&stored, &next))?;
            refuse(named, &next, self.missing_references(&next, false).await?)?;
            let value = encode(named, &next, &record)?;
            let written = match self.dry_run {
                true => Ok(record.revision),
                false => self.store.update(record.key.clone(), value, record.revision).await,
            };
            match written {
                Ok(_) => {
                    warn_of_kept(named, &kept);
                    return Ok(Done::Replaced);
                }
                Err(StoreError::Conflict { .. }) if wanted.is_none() && tries.again().await => {}
                Err(StoreError::NotFound { .. }) => return Err(WriteError::Missing(named.clone())),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A stored resource as a manifest wants it to be. What only the store knows stays: other metadata, a status, and
/// fields of a newer release that no manifest can name.
fn merged(stored: &Resource, input: &Resource) -> Resource {
    let metadata = Metadata {
        labels: input.metadata.labels.clone(),
        annotations: input.metadata.annotations.clone(),
        ..stored.metadata.clone()
    };
    let mut next = Resource { kind: input.kind, metadata, body: input.body.clone() };
    if let (false, Some(status)) = (next.body.contains_key("status"), stored.body.get("status")) {
        next.body.insert("status".into(), status.clone());
    }
    restore_unknown(&mut next, stored);
    next
}

fn encode(named: &Named, next: &Resource, record: &Record) -> Result<Vec<u8>, WriteError> {
    if next.kind != Kind::IpamConfiguration {
        return Ok(next.encode());
    }
    match (IpamConfig::from_resource(next), IpamConfig::decode(&record.value)) {
        (Ok(config), Ok(stored)) => Ok(config.keep_unknown(&stored).encode()),
        (Ok(config), Err(_)) => Ok(config.encode()),
        (Err(violations), _) => refuse(named, next, violations).map(|()| Vec::new()),
    }
}

fn refuse(named: &Named, resource: &Resource, violations: Vec<Violation>) -> Result<(), WriteError> {
    if violations.is_empty() {
        return Ok(());
    }
    let broken: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let said = compat::violations_text(resource, &violations);
    Err(Failure::new(format!("{named}: {}", broken.join("; "))).in_calicoctl(said).into())
}

/// Refuses to touch another version than the one that is meant.
pub(super) fn refuse_outdated(
    named: &Named,
    wanted: Option<&str>,
    record: &Record,
) -> Result<(), WriteError> {
    match wanted {
        Some(wanted) if wanted != record.revision.as_str() => Err(Failure::new(format!(
            "update conflict: {named}: resource version '{wanted}' is out of date (latest: {})",
            record.revision
        ))
        .hint("get it again, review what changed, and repeat your change")
        .in_calicoctl(format!("update conflict: {named}"))
        .into()),
        _ => Ok(()),
    }
}

/// What calicoctl neither patches nor labels.
pub(crate) fn refuse_as_calicoctl(named: &Named) -> Result<(), WriteError> {
    let refusal = match named.kind {
        _ if !compat::is_strict() => return Ok(()),
        Kind::ClusterInformation => {
            Failure::new("operation apply or replace is not supported on ClusterInformation")
        }
        Kind::Profile if named.name == DEFAULT_ALLOW_PROFILE => Failure::new(format!(
            "operation Update is not supported on {DEFAULT_ALLOW_PROFILE}: The profile \"{DEFAULT_ALLOW_PROFILE}\" is a default \
             provided by Calico and cannot be updated"
        )),
        _ => return Ok(()),
    };
    Err(refusal.into())
}
