//! Where a piece of evidence was seen, so that an operator finds it again.

use std::sync::Arc;

use model::NodeName;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Something, and where it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighted<T> {
    pub seen: T,
    pub origin: Origin,
}

/// Where an operator finds it again. Names are shared: there may be very many of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// A record of the live store, by its key.
    Store(SharedText),
    /// An object of the Kubernetes API, as `kubectl` names it: `pod/default/web-0`.
    Api(SharedText),
    /// Something a node was asked: which node, and what (`routes`, `sysctl net/ipv4/ip_forward`).
    Probe { node: NodeName, what: SharedText },
    /// A text that was collected or pasted. Lines count from 1; `text` is the line itself, made safe to print.
    File { name: SharedText, line: Option<u32>, text: Option<Box<str>> },
}

/// A piece of evidence as an operator can look it up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Exhibit {
    /// The file, the key of the record in the store, the API's object, or what a node was asked.
    pub file: String,
    /// Counted from 1; `null` where the whole file or record is meant.
    pub line: Option<u32>,
    pub text: String,
}

/// A text that many share.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedText(Arc<str>);

impl<T> Sighted<T> {
    pub fn new(seen: T, origin: Origin) -> Sighted<T> {
        Sighted { seen, origin }
    }

    /// The place as an exhibit. A line of a file speaks for itself; `words` say what matters about anything else.
    pub fn exhibit(&self, words: impl Into<String>) -> Exhibit {
        self.origin.exhibit(words)
    }

    /// Another thing that was seen at the same place.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Sighted<U> {
        Sighted { seen: change(self.seen), origin: self.origin }
    }
}

impl Origin {
    /// A record of the store.
    pub fn store(key: &model::Key) -> Origin {
        Origin::Store(key.etcd_text().into())
    }

    /// What a node answered when it was asked.
    pub fn probe(node: impl Into<NodeName>, what: impl Into<SharedText>) -> Origin {
        Origin::Probe { node: node.into(), what: what.into() }
    }

    /// A whole file.
    pub fn file(name: impl Into<SharedText>) -> Origin {
        Origin::File { name: name.into(), line: None, text: None }
    }

    /// A line of a file.
    pub fn line(name: impl Into<SharedText>, line: u32, text: &str) -> Origin {
        Origin::File { name: name.into(), line: Some(line), text: Some(text.into()) }
    }

    pub fn exhibit(&self, words: impl Into<String>) -> Exhibit {
        let (file, line, text) = match self {
            Origin::Store(key) => (key.to_string(), None, None),
            Origin::Api(object) => (object.to_string(), None, None),
            Origin::Probe { node, what } => (format!("{node}: {what}"), None, None),
            Origin::File { name, line, text } => (name.to_string(), *line, text.as_deref()),
        };
        Exhibit { file, line, text: text.map_or_else(|| words.into(), str::to_owned) }
    }
}

impl SharedText {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SharedText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> SharedText {
        SharedText(text.into())
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> SharedText {
        SharedText(text.into())
    }
}

impl From<&SharedText> for SharedText {
    fn from(text: &SharedText) -> SharedText {
        text.clone()
    }
}

impl Serialize for SharedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SharedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SharedText, D::Error> {
        String::deserialize(deserializer).map(SharedText::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_speaks_for_itself_and_a_record_is_described() {
        let line = Origin::line("a.txt", 3, "10.0.0.1 dev cali1");
        let exhibit = line.exhibit("a route");
        assert_eq!(
            (exhibit.file.as_str(), exhibit.line, exhibit.text.as_str()),
            ("a.txt", Some(3), "10.0.0.1 dev cali1")
        );
        let record = Origin::store(&model::Key::Handle("h".into()));
        assert_eq!(record.exhibit("counts 2").text, "counts 2");
        assert_eq!(record.exhibit("").file, "/calico/ipam/v2/handle/h");
        assert_eq!(Origin::probe("node-a", "routes").exhibit("none").file, "node-a: routes");
    }

    #[test]
    fn origins_survive_a_bundle() {
        for origin in [
            Origin::Store("k".into()),
            Origin::Api("pod/a/b".into()),
            Origin::probe("n", "routes"),
            Origin::file("f"),
            Origin::line("f", 7, "x"),
        ] {
            let text = serde_json::to_string(&origin).unwrap();
            assert_eq!(serde_json::from_str::<Origin>(&text).unwrap(), origin, "{text}");
        }
    }
}
