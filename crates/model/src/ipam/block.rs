//! An allocation block: which addresses of a small network are taken, by whom, and since which write.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{DecodeError, decode, encode, null_is_empty, resource_name, view};
use crate::{AffinityOwner, Cidr, HandleId, Key, Kind, Resource, TextMap};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    #[serde(deserialize_with = "masked")]
    pub cidr: Cidr,
    /// `host:NODE`, `virtual:OWNER`, or nothing. Read it through [`Block::owner`].
    #[serde(default)]
    pub affinity: Option<String>,
    /// When the affinity was claimed; RFC 3339, absent on old blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_claim_time: Option<String>,
    /// One entry per address, by its offset in the block: an index into `attributes`, or free.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub allocations: Vec<Option<usize>>,
    /// Free offsets, oldest first: take from the front, give back at the end.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub unallocated: Vec<usize>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub attributes: Vec<BlockAttribute>,
    /// Grows by one with every write of the block.
    #[serde(default, rename = "sequenceNumber", deserialize_with = "null_is_empty")]
    pub sequence_number: u64,
    /// By offset as text: the block's number when that address was taken.
    #[serde(default, rename = "sequenceNumberForAllocation", deserialize_with = "null_is_empty")]
    pub sequence_number_for_allocation: BTreeMap<String, u64>,
    /// A tombstone of the Kubernetes store; never set in etcd.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub deleted: bool,
    /// The bare node name that very old releases wrote instead of `affinity`.
    #[serde(default, rename = "hostAffinity", skip_serializing_if = "Option::is_none")]
    pub host_affinity: Option<String>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What is known about one or more addresses of a block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockAttribute {
    /// As stored. What it means is [`BlockAttribute::handle`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle_id: Option<StoredHandle>,
    /// Attributes of the active owner: `pod`, `namespace`, `node`, `type` …
    #[serde(default, skip_serializing_if = "TextMap::is_empty", deserialize_with = "null_is_empty")]
    pub secondary: TextMap<String>,
    /// Attributes of the other owner during a live migration.
    #[serde(
        default,
        rename = "alternateOwnerAttrs",
        skip_serializing_if = "TextMap::is_empty",
        deserialize_with = "null_is_empty"
    )]
    pub alternate_owner: TextMap<String>,
    /// Set while an address cools down after its release; RFC 3339.
    #[serde(default, rename = "releasedAt", skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl BlockAttribute {
    /// The handle that holds these addresses.
    pub fn handle(&self) -> Option<&HandleId> {
        Some(&self.handle_id.as_ref()?.id)
    }
}

/// A handle as a block has it. Migrations of old once left a carriage return and more behind the ID; the record keeps that, its meaning
/// does not.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "HandleId")]
pub struct StoredHandle {
    id: HandleId,
    behind: Option<Box<str>>,
}

impl From<HandleId> for StoredHandle {
    fn from(id: HandleId) -> StoredHandle {
        match id.as_str().split_once('\r') {
            Some((start, behind)) => StoredHandle { id: start.into(), behind: Some(behind.into()) },
            None => StoredHandle { id, behind: None },
        }
    }
}

impl From<&HandleId> for StoredHandle {
    fn from(id: &HandleId) -> StoredHandle {
        id.clone().into()
    }
}

impl From<&str> for StoredHandle {
    fn from(text: &str) -> StoredHandle {
        HandleId::from(text).into()
    }
}

impl Serialize for StoredHandle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.behind {
            Some(behind) => serializer.collect_str(&format_args!("{}\r{behind}", self.id)),
            None => self.id.serialize(serializer),
        }
    }
}

impl Block {
    /// A block with every address free. `sequence_number` is the clock in nanoseconds.
    pub fn new(cidr: Cidr, owner: Option<&AffinityOwner>, sequence_number: u64) -> Block {
        let mut block = Block {
            cidr,
            affinity: None,
            affinity_claim_time: None,
            allocations: Vec::new(),
            unallocated: Vec::new(),
            attributes: Vec::new(),
            sequence_number,
            sequence_number_for_allocation: BTreeMap::new(),
            deleted: false,
            host_affinity: None,
            extra: Map::new(),
        };
        let capacity = block.capacity();
        block.allocations = vec![None; capacity];
        block.unallocated = (0..capacity).collect();
        block.set_owner(owner);
        block
    }

    pub fn decode(cidr: &Cidr, value: &[u8]) -> Result<Block, DecodeError> {
        decode(|| Key::Block(*cidr), value)
    }

    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub fn key(&self) -> Key {
        Key::Block(self.cidr)
    }

    /// Who the block belongs to. An affinity of a form not known here belongs to nobody we could name.
    pub fn owner(&self) -> Option<AffinityOwner> {
        match &self.affinity {
            Some(affinity) => match affinity.split_once(':') {
                Some(("host", name)) => Some(AffinityOwner::Host(name.to_owned())),
                Some(("virtual", name)) => Some(AffinityOwner::Virtual(name.to_owned())),
                _ => None,
            },
            None => self.host_affinity.clone().map(AffinityOwner::Host),
        }
    }

    pub fn set_owner(&mut self, owner: Option<&AffinityOwner>) {
        self.affinity = owner.map(|owner| format!("{}:{}", owner.type_word(), owner.name()));
        self.host_affinity = None;
    }

    /// How many addresses the block's network has. A network too large to be a block counts as empty.
    pub fn capacity(&self) -> usize {
        let host_bits = self.cidr.version().bits() - self.cidr.prefix_len();
        if host_bits > LARGEST_HOST_BITS { 0 } else { 1 << host_bits }
    }

    /// The address at an offset.
    pub fn address(&self, ordinal: usize) -> Option<IpAddr> {
        if ordinal >= self.capacity() {
            return None;
        }
        Some(match self.cidr.network() {
            IpAddr::V4(base) => IpAddr::V4((u32::from(base) + ordinal as u32).into()),
            IpAddr::V6(base) => IpAddr::V6((u128::from(base) + ordinal as u128).into()),
        })
    }

    /// The offset of an address.
    pub fn ordinal(&self, address: IpAddr) -> Option<usize> {
        if !self.cidr.contains(address) || self.capacity() == 0 {
            return None;
        }
        match (self.cidr.network(), address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => Some((u32::from(address) - u32::from(base)) as usize),
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                Some((u128::from(address) - u128::from(base)) as usize)
            }
            _ => None,
        }
    }

    /// What is known about the address at an offset; none if it is free or the block contradicts itself.
    pub fn attribute(&self, ordinal: usize) -> Option<&BlockAttribute> {
        self.attributes.get((*self.allocations.get(ordinal)?)?)
    }

    /// The block's number when the address was taken; 0 if none is recorded.
    pub fn sequence_of(&self, ordinal: usize) -> u64 {
        self.sequence_number_for_allocation.get(&ordinal.to_string()).copied().unwrap_or(0)
    }

    /// The block as an IPAMBlock resource.
    pub fn to_resource(&self, revision: &str) -> Resource {
        let mut spec = self.extra.clone();
        let affinity = self.owner().map(|owner| format!("{}:{}", owner.type_word(), owner.name()));
        if let Some(affinity) = affinity.or_else(|| self.affinity.clone()) {
            spec.insert("affinity".into(), affinity.into());
        }
        if let Some(time) = &self.affinity_claim_time {
            spec.insert("affinityClaimTime".into(), time.clone().into());
        }
        spec.insert("cidr".into(), self.cidr.to_string().into());
        spec.insert("allocations".into(), json!(self.allocations));
        spec.insert("unallocated".into(), json!(self.unallocated));
        spec.insert("attributes".into(), json!(self.attributes));
        spec.insert("sequenceNumber".into(), self.sequence_number.into());
        spec.insert("sequenceNumberForAllocation".into(), json!(self.sequence_number_for_allocation));
        // A dead field that the schema of the custom resource still demands.
        spec.insert("strictAffinity".into(), false.into());
        spec.insert("deleted".into(), self.deleted.into());
        view(Kind::IpamBlock, resource_name(&self.cidr), revision, spec)
    }
}

/// Larger than any block Calico allows (2^12), small enough that a wrong prefix cannot exhaust memory.
const LARGEST_HOST_BITS: u8 = 16;

fn masked<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cidr, D::Error> {
    let text = String::deserialize(deserializer)?;
    Cidr::parse_masked(&text).map_err(serde::de::Error::custom)
}
