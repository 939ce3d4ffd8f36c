//! Making a record that must not exist yet.

use model::ipam::IpamConfig;
use model::{Key, Kind, Metadata, Resource};
use store::StoreError;

use super::basics::born;
use super::{Done, WriteError, Writer};
use crate::reader;
use crate::scope::Named;

impl Writer {
    /// Creates a resource. Of its metadata only name, namespace, labels and annotations are the author's.
    pub(crate) async fn create(&self, input: &Resource) -> Result<Done, WriteError> {
        let named = Named::of(input);
        // A policy may also be there under the name that an old release gave it.
        if (self.dry_run || input.kind.is_tiered()) && reader::find(&self.store, &named).await?.is_some() {
            return Err(WriteError::Exists(named));
        }
        if self.dry_run {
            return Ok(Done::Created);
        }
        let resource = born(Resource { metadata: authored(&input.metadata), ..input.clone() });
        let created = match resource.kind {
            Kind::IpPool => return self.create_pool(resource).await,
            Kind::IpamConfiguration => {
                let config = IpamConfig::from_resource(&resource).unwrap_or_default();
                self.store.create(Key::IpamConfig, config.encode()).await
            }
            _ => self.store.create(resource.key(), resource.encode()).await,
        };
        match created {
            Ok(_) => Ok(Done::Created),
            Err(StoreError::AlreadyExists { .. }) => Err(WriteError::Exists(named)),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a resource, or replaces it if it exists.
    pub(crate) async fn apply(&self, input: &Resource) -> Result<Done, WriteError> {
        let named = Named::of(input);
        // Others may create and delete it meanwhile, but hardly again and again.
        for _ in 0..super::TRIES {
            let tried = match reader::find(&self.store, &named).await? {
                Some(_) => self.replace(input).await,
                None => self.create(input).await,
            };
            match tried {
                Err(WriteError::Exists(_) | WriteError::Missing(_)) => {}
                done => return done,
            }
        }
        Err(WriteError::Exists(named))
    }
}

fn authored(given: &Metadata) -> Metadata {
    Metadata {
        name: given.name.clone(),
        namespace: given.namespace.clone(),
        labels: given.labels.clone(),
        annotations: given.annotations.clone(),
        ..Metadata::default()
    }
}
