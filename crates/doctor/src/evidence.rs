//! What the checks look at: records, each with the place where it was seen.

use model::Resource;
use serde_json::Value;

use crate::Exhibit;

/// Everything that was collected. `None` means that nobody looked, which is not the same as an empty list.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// WorkloadEndpoint records.
    pub endpoints: Option<Vec<Sighted<Resource>>>,
    /// IPPool records.
    pub pools: Option<Vec<Sighted<Resource>>>,
}

/// Something, and where it was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sighted<T> {
    pub seen: T,
    pub origin: Origin,
}

/// Where an operator finds it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A record of the live store, named by its own key.
    Store,
    /// A text that was collected or pasted. Lines count from 1.
    File { name: String, line: Option<u32> },
}

impl Sighted<Resource> {
    /// A record as it was read from the store.
    pub fn in_store(seen: Resource) -> Sighted<Resource> {
        Sighted { seen, origin: Origin::Store }
    }

    /// The record as an exhibit, with the words that matter about it.
    pub(crate) fn exhibit(&self, text: String) -> Exhibit {
        match &self.origin {
            Origin::Store => Exhibit { file: self.seen.key().etcd_text(), line: None, text },
            Origin::File { name, line } => Exhibit { file: name.clone(), line: *line, text },
        }
    }

    /// A field of the spec that is a text and not empty.
    pub(crate) fn spec_text(&self, field: &str) -> Option<&str> {
        self.seen.spec(field).and_then(Value::as_str).filter(|text| !text.is_empty())
    }
}
