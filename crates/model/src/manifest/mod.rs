//! Manifests: YAML or JSON text in, resources out.
//!
//! Strict, because a field that is silently ignored is a setting that silently does not apply: unknown fields,
//! keys given twice and values of the wrong type are errors. Whether the values are *allowed* is the question
//! of [`crate::validate`], not of this module.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod error;
mod json;
mod tree;
mod typed;

pub use error::{ManifestError, Place};
pub(crate) use typed::expected;

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::path::FieldPath;
use crate::resource::API_VERSION;
use crate::{Kind, Metadata, Resource, schema, suggest};
use tree::{Content, Documents, Entry, Node};
use typed::{Typist, found};

/// A larger text is refused before it is read: nobody edits it by hand, and its tree would need many times
/// its size in memory.
pub const MANIFEST_BYTES_MAX: usize = 32 << 20;

/// A resource and where it stood.
#[derive(Clone, Debug, PartialEq)]
pub struct Located {
    pub resource: Resource,
    pub at: Place,
}

/// Reads every resource of a text: several YAML documents, lists (`kind: IPPoolList`, `kind: List`), arrays.
/// Empty documents are skipped.
pub fn parse(text: &str) -> Result<Vec<Resource>, ManifestError> {
    Ok(parse_located(text)?.into_iter().map(|located| located.resource).collect())
}

/// Like [`parse`], for callers who report more about a resource later and want to say where it was.
pub fn parse_located(text: &str) -> Result<Vec<Located>, ManifestError> {
    if text.len() > MANIFEST_BYTES_MAX {
        return Err(ManifestError::TooLarge { bytes: text.len(), limit: MANIFEST_BYTES_MAX });
    }
    let is_json = json::is_json(text);
    let text = if is_json { json::as_yaml(text) } else { Cow::Borrowed(text) };
    let mut documents = Documents::new(&text, is_json);
    let mut resources = Vec::new();
    while let Some(node) = documents.next()? {
        let mut reader = Reader { document: documents.number(), resources: &mut resources };
        reader.read(&node, FieldPath::root(), None)?;
    }
    Ok(resources)
}

/// Reads the resources of one document.
struct Reader<'a> {
    document: usize,
    resources: &'a mut Vec<Located>,
}

impl Reader<'_> {
    /// `implied` is the kind that the items of a typed list have without saying so.
    fn read(&mut self, node: &Node, path: FieldPath, implied: Option<Kind>) -> Result<(), ManifestError> {
        match &node.content {
            Content::List(items) if implied.is_none() => self.read_items(items, &path, None),
            Content::Map(entries) => {
                let said = node.get("kind").and_then(Node::text);
                let items = node.get("items").filter(|_| said.is_some_and(is_list));
                match (said, implied, items) {
                    (Some(word), _, Some(items)) => self.read_list(word, entries, items, &path),
                    (Some(word), _, None) if is_list(word) => {
                        Err(self.not_a_list(node.line, &path.key("items"), "nothing"))
                    }
                    (Some(word), ..) => {
                        let line = node.get("kind").map_or(node.line, |kind| kind.line);
                        let version = node.get("apiVersion").and_then(Node::text).unwrap_or_default();
                        let kind = self.kind(word, version, line)?;
                        self.read_resource(kind, node, entries, path, implied.is_some())
                    }
                    (None, Some(kind), _) => self.read_resource(kind, node, entries, path, true),
                    (None, None, _) => {
                        let field = path.to_string();
                        Err(ManifestError::MissingKind { at: self.place(node.line), field })
                    }
                }
            }
            _ => {
                let (at, field) = (self.place(node.line), path.to_string());
                Err(ManifestError::NotAResource { at, field, found: found(node) })
            }
        }
    }

    fn read_list(
        &mut self,
        word: &str,
        entries: &[Entry],
        items: &Node,
        path: &FieldPath,
    ) -> Result<(), ManifestError> {
        let line = entries.iter().find(|entry| entry.key == "kind").map_or(items.line, |entry| entry.line);
        let implied = match word.strip_suffix("List") {
            None | Some("") => None,
            Some(kind) => {
                let version = entries.iter().find(|entry| entry.key == "apiVersion");
                let version = version.and_then(|entry| entry.value.text()).unwrap_or_default();
                Some(self.kind(kind, version, line)?)
            }
        };
        let path = path.key("items");
        match &items.content {
            Content::List(items) => self.read_items(items, &path, implied),
            _ if items.is_null() => Ok(()),
            _ => Err(self.not_a_list(items.line, &path, &found(items))),
        }
    }

    fn not_a_list(&self, line: usize, path: &FieldPath, found: &str) -> ManifestError {
        ManifestError::WrongType {
            at: self.place(line),
            field: path.to_string(),
            found: found.to_owned(),
            expected: "a list",
            advice: None,
        }
    }

    fn read_items(
        &mut self,
        items: &[Node],
        path: &FieldPath,
        implied: Option<Kind>,
    ) -> Result<(), ManifestError> {
        for (index, item) in items.iter().enumerate() {
            self.read(item, path.index(index), implied)?;
        }
        Ok(())
    }

    fn read_resource(
        &mut self,
        kind: Kind,
        node: &Node,
        entries: &[Entry],
        path: FieldPath,
        version_implied: bool,
    ) -> Result<(), ManifestError> {
        self.check_api_version(kind, node, version_implied)?;
        let mut typist = Typist { kind, document: self.document, path };
        let mut body = typist.object(entries, schema::document(kind))?;
        body.remove("apiVersion");
        body.remove("kind");
        let metadata = metadata(body.remove("metadata"));
        let at = self.place(node.line);
        self.resources.push(Located { resource: Resource { kind, metadata, body }, at });
        Ok(())
    }

    fn check_api_version(&self, kind: Kind, node: &Node, implied: bool) -> Result<(), ManifestError> {
        match node.get("apiVersion").map(|version| (version.text().unwrap_or_default(), version.line)) {
            Some((API_VERSION, _)) => Ok(()),
            None if implied => Ok(()),
            None => Err(ManifestError::MissingApiVersion { at: self.place(node.line), kind }),
            Some((found, line)) => {
                Err(ManifestError::ApiVersion { at: self.place(line), kind, found: found.to_owned() })
            }
        }
    }

    fn kind(&self, word: &str, version: &str, line: usize) -> Result<Kind, ManifestError> {
        Kind::from_manifest(word).ok_or_else(|| ManifestError::UnknownKind {
            at: self.place(line),
            kind: word.to_owned(),
            version: version.to_owned(),
            suggestion: suggest::nearest(word, Kind::all().map(Kind::name)),
        })
    }

    fn place(&self, line: usize) -> Place {
        Place { document: self.document, line }
    }
}

fn is_list(kind: &str) -> bool {
    kind.ends_with("List")
}

fn metadata(value: Option<Value>) -> Metadata {
    let value = value.unwrap_or_else(|| Value::Object(Map::new()));
    serde_json::from_value(value).expect("the schema types metadata as the struct does")
}
