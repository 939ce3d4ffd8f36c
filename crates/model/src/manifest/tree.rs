//! The text of a manifest as nodes that still know their line and whether they were quoted.
//!
//! The tree is built from the YAML parser's events and not through serde, for three reasons: `kind` may stand
//! after `spec`, so nothing can be typed before a document is read; a serde deserializer has already decided
//! what `017` or `yes` means before a schema can say that the field is text; and every error can name its line.
//! JSON is read by the same code, because YAML contains it.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::error::{ManifestError, Place};
use crate::path::FieldPath;

/// No v3 resource is nested nearly as deep.
const DEPTH_MAX: usize = 64;
/// How many bytes all anchors of one document together may hold, and all aliases stand for. Counted in bytes and
/// not in nodes, because a single text can be as large as the manifest.
const ALIASED_BYTES_MAX: usize = 4 << 20;
/// What a node counts besides its text.
const NODE_BYTES: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) content: Content,
    /// How much there is from here down, this node included, in bytes.
    size: usize,
    /// How many levels there are from here down, this one included.
    height: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Scalar {
        text: String,
        /// Written without quotes, so that `5` may be a number and `null` nothing.
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: Node,
}

impl Node {
    fn scalar(line: usize, text: String, plain: bool) -> Node {
        let size = NODE_BYTES + text.len();
        Node { line, content: Content::Scalar { text, plain }, size, height: 1 }
    }

    fn list(line: usize, items: Vec<Node>) -> Node {
        let size = NODE_BYTES + items.iter().map(|item| item.size).sum::<usize>();
        let height = 1 + items.iter().map(|item| item.height).max().unwrap_or(0);
        Node { line, content: Content::List(items), size, height }
    }

    fn map(line: usize, entries: Vec<Entry>) -> Node {
        let size = NODE_BYTES + entries.iter().map(|entry| entry.key.len() + entry.value.size).sum::<usize>();
        let height = 1 + entries.iter().map(|entry| entry.value.height).max().unwrap_or(0);
        Node { line, content: Content::Map(entries), size, height }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        match &self.content {
            Content::Map(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value),
            _ => None,
        }
    }

    /// The text of a scalar that is not null.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }
}

/// Reads one document after the other, so that a large file of small documents needs little memory.
pub(super) struct Documents<'text> {
    parser: Parser<'text, StrInput<'text>>,
    document: usize,
}

impl<'text> Documents<'text> {
    /// JSON's keys may be longer than YAML's.
    pub(super) fn new(text: &'text str, is_json: bool) -> Documents<'text> {
        let mut options = Options::default();
        if is_json {
            options.simple_key_max_lookahead = usize::MAX;
        }
        options.set_emit_comments(false);
        options.flow_nesting_limit = DEPTH_MAX;
        options.block_nesting_limit = DEPTH_MAX;
        Documents { parser: Parser::new_from_str_with_options(text, options), document: 0 }
    }

    /// The number of the document that was read last.
    pub(super) fn number(&self) -> usize {
        self.document
    }

    /// The next document that is not empty.
    pub(super) fn next(&mut self) -> Result<Option<Node>, ManifestError> {
        let mut builder: Option<Builder> = None;
        while let Some(event) = self.parser.next() {
            let (event, span) = event.map_err(|error| self.syntax(&error))?;
            match event {
                Event::DocumentStart(..) => {
                    self.document += 1;
                    builder = Some(Builder::new(self.document));
                }
                Event::DocumentEnd => {
                    let root = builder.take().and_then(|builder| builder.root);
                    if let Some(node) = root.filter(|node| !node.is_null()) {
                        return Ok(Some(node));
                    }
                }
                event => {
                    if let Some(builder) = &mut builder {
                        builder.take(event, span)?;
                    }
                }
            }
        }
        Ok(None)
    }

    fn syntax(&self, error: &ScanError) -> ManifestError {
        let at = Place { document: self.document.max(1), line: error.marker().line() };
        ManifestError::Syntax { at, problem: error.info() }
    }
}

/// Puts the nodes of one document together. Keeps its own stack, so that depth is a check and not a crash.
struct Builder {
    document: usize,
    open: Vec<Frame>,
    root: Option<Node>,
    anchors: BTreeMap<usize, Node>,
    anchored: usize,
    aliased: usize,
}

struct Frame {
    line: usize,
    anchor: usize,
    parts: Parts,
}

enum Parts {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        /// Values of `<<` keys; they give way to keys that stand in the map itself.
        merged: Vec<Node>,
        key: Option<(String, bool, usize)>,
    },
}

impl Builder {
    fn new(document: usize) -> Builder {
        Builder { document, open: Vec::new(), root: None, anchors: BTreeMap::new(), anchored: 0, aliased: 0 }
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), ManifestError> {
        let line = span.start.line();
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let forced = self.tag_forces_text(tag.as_deref().map(ToString::to_string), line)?;
                let plain = style == ScalarStyle::Plain && !forced;
                self.scalar(Node::scalar(line, text.into_owned(), plain), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.tag_forces_text(tag.as_deref().map(ToString::to_string), line)?;
                self.open(line, anchor, Parts::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.tag_forces_text(tag.as_deref().map(ToString::to_string), line)?;
                self.open(line, anchor, Parts::Map { entries: Vec::new(), merged: Vec::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(anchor, line),
            _ => Ok(()),
        }
    }

    fn place(&self, line: usize) -> Place {
        Place { document: self.document, line }
    }

    fn excess(&self, line: usize, problem: String) -> ManifestError {
        ManifestError::Excess { at: self.place(line), problem }
    }

    fn syntax(&self, line: usize, problem: impl Into<String>) -> ManifestError {
        ManifestError::Syntax { at: self.place(line), problem: problem.into() }
    }

    /// Whether the tag says `!!str`. Tags that would change a value in a way no schema knows are refused.
    fn tag_forces_text(&self, tag: Option<String>, line: usize) -> Result<bool, ManifestError> {
        let Some(tag) = tag else { return Ok(false) };
        let core = tag.strip_prefix("tag:yaml.org,2002:").or_else(|| tag.strip_prefix("!!"));
        match core {
            Some("str") => Ok(true),
            Some("map" | "seq" | "int" | "float" | "bool" | "null") => Ok(false),
            _ => Err(self.syntax(line, format!("the tag {tag} is not supported"))),
        }
    }

    fn open(&mut self, line: usize, anchor: usize, parts: Parts) -> Result<(), ManifestError> {
        if let Some(Frame { parts: Parts::Map { key: None, .. }, .. }) = self.open.last() {
            return Err(self.syntax(line, "a key must be plain text"));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(self.excess(line, format!("nested more than {DEPTH_MAX} levels deep")));
        }
        self.open.push(Frame { line, anchor, parts });
        Ok(())
    }

    fn close(&mut self) -> Result<(), ManifestError> {
        let Some(Frame { line, anchor, parts }) = self.open.pop() else { return Ok(()) };
        let node = match parts {
            Parts::List(items) => Node::list(line, items),
            Parts::Map { mut entries, merged, .. } => {
                self.refuse_duplicates(&entries)?;
                self.merge(&mut entries, merged)?;
                Node::map(line, entries)
            }
        };
        self.remember(anchor, &node)?;
        self.attach(node)
    }

    fn scalar(&mut self, node: Node, anchor: usize) -> Result<(), ManifestError> {
        self.remember(anchor, &node)?;
        self.attach(node)
    }

    fn remember(&mut self, anchor: usize, node: &Node) -> Result<(), ManifestError> {
        if anchor == 0 {
            return Ok(());
        }
        self.anchored += node.size;
        if self.anchored > ALIASED_BYTES_MAX {
            return Err(self.excess(node.line, format!("anchors hold more than {ALIASED_BYTES_MAX} bytes")));
        }
        self.anchors.insert(anchor, node.clone());
        Ok(())
    }

    fn alias(&mut self, anchor: usize, line: usize) -> Result<(), ManifestError> {
        let Some(target) = self.anchors.get(&anchor) else {
            return Err(self.syntax(line, "an alias refers to a value that contains it"));
        };
        self.aliased += target.size;
        if self.aliased > ALIASED_BYTES_MAX {
            return Err(self.excess(line, format!("aliases expand to more than {ALIASED_BYTES_MAX} bytes")));
        }
        if self.open.len() + target.height > DEPTH_MAX {
            return Err(self.excess(line, format!("nested more than {DEPTH_MAX} levels deep")));
        }
        let node = target.clone();
        self.attach(node)
    }

    /// Puts a finished node where it belongs: the next item, key or value, or the document itself.
    fn attach(&mut self, node: Node) -> Result<(), ManifestError> {
        let line = node.line;
        match self.open.last_mut().map(|frame| &mut frame.parts) {
            None => self.root = Some(node),
            Some(Parts::List(items)) => items.push(node),
            Some(Parts::Map { entries, merged, key }) => match key.take() {
                None => match node.content {
                    Content::Scalar { text, plain } => *key = Some((text, plain, line)),
                    _ => return Err(self.syntax(line, "a key must be plain text")),
                },
                Some((text, true, _)) if text == "<<" => merged.push(node),
                Some((text, _, line)) => entries.push(Entry { key: text, line, value: node }),
            },
        }
        Ok(())
    }

    /// Looks at a whole map at once: comparing each new key with all before it would let a large map hang us.
    fn refuse_duplicates(&self, entries: &[Entry]) -> Result<(), ManifestError> {
        let mut seen = BTreeSet::new();
        match entries.iter().find(|entry| !seen.insert(entry.key.as_str())) {
            None => Ok(()),
            Some(Entry { key, line, .. }) => {
                let field = self.path(key).to_string();
                Err(ManifestError::DuplicateKey { at: self.place(*line), field })
            }
        }
    }

    fn merge(&self, entries: &mut Vec<Entry>, merged: Vec<Node>) -> Result<(), ManifestError> {
        if merged.is_empty() {
            return Ok(());
        }
        let mut known: BTreeSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
        for node in merged {
            let sources = match node.content {
                Content::List(items) => items,
                _ => vec![node],
            };
            for source in sources {
                let Content::Map(more) = source.content else {
                    return Err(self.syntax(source.line, "<< can only merge maps"));
                };
                for entry in more {
                    if known.insert(entry.key.clone()) {
                        entries.push(entry);
                    }
                }
            }
        }
        Ok(())
    }

    fn path(&self, last: &str) -> FieldPath {
        let mut path = FieldPath::root();
        for frame in &self.open {
            match &frame.parts {
                Parts::List(items) => path.push_index(items.len()),
                Parts::Map { key: Some((key, ..)), .. } => path.push_key(key),
                Parts::Map { .. } => {}
            }
        }
        path.push_key(last);
        path
    }
}
