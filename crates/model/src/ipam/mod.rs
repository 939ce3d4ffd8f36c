//! The records of address management: allocation blocks, affinities, handles, settings.
//!
//! Each type reads and writes the JSON of Calico's etcd layout. Fields that are not named here are kept in `extra`
//! and written back, so that a newer Calico's data survives our writes. Each also has a view as the v3 resource
//! that operators ask for.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod affinity;
mod block;
mod config;
mod handle;
mod invariants;

pub use affinity::{Affinity, AffinityState};
pub use block::{Block, BlockAttribute, StoredHandle};
pub use config::{CONFIG_NAME, IpamConfig};
pub use handle::Handle;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::resource::null_is_empty;
use crate::{Cidr, Key, Kind, Resource};

/// A stored value that is not the record its key names.
#[derive(Debug, thiserror::Error)]
#[error("{key}: the stored value cannot be read")]
pub struct DecodeError {
    pub key: Key,
    #[source]
    source: serde_json::Error,
}

fn decode<'a, T: Deserialize<'a>>(key: impl FnOnce() -> Key, value: &'a [u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(value).map_err(|source| DecodeError { key: key(), source })
}

fn encode(record: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("an IPAM record can always be written")
}

/// A network as Calico names custom resources by it: `10-244-7-64-26`.
fn resource_name(cidr: &Cidr) -> String {
    cidr.to_string().replace(['.', ':', '/'], "-")
}

fn view(kind: Kind, name: String, revision: &str, spec: Map<String, Value>) -> Resource {
    let mut resource = Resource::new(kind, name);
    resource.metadata.resource_version = Some(revision.to_owned());
    resource.body.insert("spec".to_owned(), Value::Object(spec));
    resource
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AffinityOwner;

    #[test]
    fn null_is_nothing_set() {
        let cidr: Cidr = "10.0.0.0/30".parse().unwrap();
        let block = br#"{"cidr":"10.0.0.0/30","affinity":null,"allocations":null,"unallocated":null,
            "attributes":null,"sequenceNumber":null,"sequenceNumberForAllocation":null,"deleted":null}"#;
        assert_eq!(Block::decode(&cidr, block).unwrap().sequence_number, 0);
        let owner = AffinityOwner::Host("a".to_owned());
        let affinity = Affinity::decode(&owner, &cidr, br#"{"state":null,"deleted":null}"#).unwrap();
        assert_eq!(affinity, Affinity::new(AffinityState::Confirmed));
        assert_eq!(
            Handle::decode(&"a".into(), br#"{"block":null,"deleted":null}"#).unwrap(),
            Handle::default()
        );
    }
}
