//! A handle: in which blocks the addresses of one owner are. A reverse index of the blocks, and less right than
//! they are: its counts may be too high.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{DecodeError, decode, encode, null_is_empty, view};
use crate::{Cidr, HandleId, Key, Kind, Resource, TextMap};

/// The value of a handle's key; the handle's own ID stands in the key alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handle {
    /// By the block's network, as text: how many of its addresses the handle holds.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub block: TextMap<i64>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub deleted: bool,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Handle {
    pub fn decode(id: &HandleId, value: &[u8]) -> Result<Handle, DecodeError> {
        decode(|| Key::Handle(id.clone()), value)
    }

    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// How many addresses of a block the handle holds.
    pub fn count(&self, block: &Cidr) -> i64 {
        self.block.get(&block.to_string()).copied().unwrap_or(0)
    }

    /// The blocks the handle names. Texts that are no network name none.
    pub fn blocks(&self) -> impl Iterator<Item = Cidr> {
        self.block.keys().filter_map(|text| Cidr::parse_masked(text).ok())
    }

    /// The handle as an IPAMHandle resource, whose name is in lower case as Kubernetes wants it.
    pub fn to_resource(&self, id: &HandleId, revision: &str) -> Resource {
        let mut spec = self.extra.clone();
        spec.insert("handleID".into(), id.as_str().into());
        spec.insert("block".into(), json!(self.block));
        spec.insert("deleted".into(), self.deleted.into());
        view(Kind::IpamHandle, id.as_str().to_lowercase(), revision, spec)
    }
}
