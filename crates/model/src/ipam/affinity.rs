//! An affinity: that a block belongs to a node, or to something that is no node.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{DecodeError, decode, encode, null_is_empty, resource_name, view};
use crate::{AffinityOwner, Cidr, Key, Kind, Resource};

/// The value of an affinity's key; owner and block stand in the key itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Affinity {
    #[serde(default, deserialize_with = "null_is_empty")]
    pub state: AffinityState,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub deleted: bool,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How far a claim or its release has come. Only a confirmed affinity together with a block that names the same
/// owner means ownership; where they disagree the block is right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AffinityState {
    /// A claim has started.
    Pending,
    /// Also what very old records without a state mean.
    #[default]
    Confirmed,
    /// A release has started.
    PendingDeletion,
    /// A word of a release newer than this one, kept as it is.
    Other(String),
}

impl AffinityState {
    pub fn as_str(&self) -> &str {
        match self {
            AffinityState::Pending => "pending",
            AffinityState::Confirmed => "confirmed",
            AffinityState::PendingDeletion => "pendingDeletion",
            AffinityState::Other(word) => word,
        }
    }
}

impl From<String> for AffinityState {
    fn from(word: String) -> AffinityState {
        match word.as_str() {
            "pending" => AffinityState::Pending,
            "" | "confirmed" => AffinityState::Confirmed,
            "pendingDeletion" => AffinityState::PendingDeletion,
            _ => AffinityState::Other(word),
        }
    }
}

impl Serialize for AffinityState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for AffinityState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AffinityState, D::Error> {
        String::deserialize(deserializer).map(AffinityState::from)
    }
}

impl Affinity {
    pub fn new(state: AffinityState) -> Affinity {
        Affinity { state, ..Affinity::default() }
    }

    /// Reads a stored value. None at all, as very old releases wrote it, is a confirmed affinity.
    pub fn decode(owner: &AffinityOwner, block: &Cidr, value: &[u8]) -> Result<Affinity, DecodeError> {
        if value.is_empty() {
            return Ok(Affinity::default());
        }
        decode(|| Key::Affinity { owner: owner.clone(), block: *block }, value)
    }

    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// The affinity as a BlockAffinity resource.
    pub fn to_resource(&self, owner: &AffinityOwner, block: &Cidr, revision: &str) -> Resource {
        let mut spec = self.extra.clone();
        spec.insert("state".into(), self.state.as_str().into());
        spec.insert("node".into(), owner.name().into());
        spec.insert("type".into(), owner.type_word().into());
        spec.insert("cidr".into(), block.to_string().into());
        spec.insert("deleted".into(), self.deleted.into());
        let name = format!("{}-{}", owner.name(), resource_name(block));
        view(Kind::BlockAffinity, name, revision, spec)
    }
}
