//! What a repair changes in the store: single edits of records, each as "from" and "to".
//!
//! An edit says as little as it relies on: that an address is held by a handle, not what else its block holds. So a plan outlives
//! whatever goes on meanwhile, and stops where its own ground has changed.

use std::fmt;
use std::net::IpAddr;

use model::ipam::BlockAttribute;
use model::{Cidr, HandleId, Key};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One edit. `None` stands for: not there, free, nobody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "edit", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Edit {
    /// Whose an address of a block is.
    Allocation { block: Cidr, address: IpAddr, from: Option<Holding>, to: Option<Holding> },
    /// Whom a block belongs to: `host:NODE`.
    Owner { block: Cidr, from: Option<String>, to: Option<String> },
    /// How many addresses of a block a handle counts. A handle that counts none goes away; one that is not there is made.
    Count { handle: HandleId, block: Cidr, from: i64, to: i64 },
    /// The lists of a block that contradict each other, made to agree with its allocations. Addresses whose owner is lost
    /// in it get the one named here, or become free.
    Lists { block: Cidr, owners: Vec<(IpAddr, BlockAttribute)> },
    /// A block that is not there, or that nobody can read, with these addresses taken.
    NewBlock {
        block: Cidr,
        owner: Option<String>,
        holds: Vec<(IpAddr, BlockAttribute)>,
        /// It takes the place of a record that cannot be read.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replaces_unreadable: bool,
    },
    /// A field of a record, by its JSON pointer.
    Field {
        #[serde(with = "key_text")]
        key: Key,
        field: String,
        from: Option<Value>,
        to: Option<Value>,
    },
    /// A whole record.
    Record {
        #[serde(with = "key_text")]
        key: Key,
        from: Option<Is>,
        to: Option<String>,
    },
}

/// By whom an address is held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holding {
    pub attribute: BlockAttribute,
    /// Of the allocation that is meant. An address that was given back and out again has another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
}

/// What makes a record the one that is meant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Is {
    /// Its revision, as the store tells it.
    Revision(String),
    /// Its very text.
    Text(String),
    /// An endpoint of this sandbox; of none, if the record names none.
    Sandbox(Option<String>),
    /// Nobody can read it.
    Unreadable,
    /// A block of which no address is taken.
    EmptyBlock,
}

impl Edit {
    /// A record goes, if it is the one that is meant.
    pub(super) fn delete(key: Key, is: Is) -> Edit {
        Edit::Record { key, from: Some(is), to: None }
    }

    /// The record it changes.
    pub fn key(&self) -> Key {
        match self {
            Edit::Allocation { block, .. }
            | Edit::Owner { block, .. }
            | Edit::Lists { block, .. }
            | Edit::NewBlock { block, .. } => Key::Block(*block),
            Edit::Count { handle, .. } => Key::Handle(handle.clone()),
            Edit::Field { key, .. } | Edit::Record { key, .. } => key.clone(),
        }
    }

    /// Whether it takes something away that may be on its way in: others write what belongs together one after the other.
    pub fn takes(&self) -> bool {
        match self {
            Edit::Allocation { from, to, .. } => from.is_some() && to.is_none(),
            Edit::Owner { to, .. } => to.is_none(),
            Edit::Count { from, to, .. } => to < from,
            Edit::Record { to, .. } => to.is_none(),
            // Whatever else stood in it is free from then on.
            Edit::NewBlock { replaces_unreadable, .. } => *replaces_unreadable,
            Edit::Lists { .. } | Edit::Field { .. } => false,
        }
    }

    /// Whether its undo is the whole record as it was: nothing else may change the record in the same commit.
    pub fn is_whole(&self) -> bool {
        matches!(self, Edit::Lists { .. } | Edit::NewBlock { .. })
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Edit::Allocation { block, address, from, to } => match (from, to) {
                (Some(from), None) => write!(f, "block {block}: release {address}, held by {from}"),
                (None, Some(to)) => write!(f, "block {block}: allocate {address} to {to}"),
                (Some(from), Some(to)) => {
                    write!(f, "block {block}: allocate {address} to {to} instead of {from}")
                }
                (None, None) => write!(f, "block {block}: {address} stays free"),
            },
            Edit::Owner { block, from, to } => {
                write!(f, "block {block}: owner becomes {} instead of {}", or_none(to), or_none(from))
            }
            Edit::Count { handle, block, from, to } => {
                write!(f, "handle {handle}: count {to} instead of {from} in {block}")
            }
            Edit::Lists { block, .. } => write!(f, "block {block}: make its lists match"),
            Edit::NewBlock { block, owner, holds, replaces_unreadable } => {
                let addresses = holds.iter().map(|(address, _)| address.to_string()).collect::<Vec<_>>();
                let verb = if *replaces_unreadable { "rebuild" } else { "create" };
                write!(f, "{verb} block {block}, owner {}, in use: {}", or_none(owner), addresses.join(", "))
            }
            Edit::Field { key, field, from, to } => {
                let words =
                    |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), Value::to_string);
                write!(f, "{key}: {field} becomes {} instead of {}", words(to), words(from))
            }
            Edit::Record { key, from: None, .. } => write!(f, "create {key}"),
            Edit::Record { key, to: None, .. } => write!(f, "delete {key}"),
            Edit::Record { key, .. } => write!(f, "replace {key}"),
        }
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.attribute.handle().map_or("no handle", HandleId::as_str))
    }
}

fn or_none(owner: &Option<String>) -> &str {
    owner.as_deref().unwrap_or("none")
}

/// Keys as the store spells them.
mod key_text {
    use model::Key;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(key: &Key, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&key.etcd_text())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let text = String::deserialize(deserializer)?;
        Key::from_etcd_text(&text).map_err(D::Error::custom)
    }
}
