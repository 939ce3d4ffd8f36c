//! Reading a bundle, within bounds.

use std::io::{self, BufRead};

use evidence::{Evidence, FileGap, NodeEvidence, Unseen};
use model::Key;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::mask::mask;
use super::{KUBE_NODE, KUBE_NODES, POD, PODS, VERSION, WHOLE_KUBERNETES};
use crate::kubernetes::of_this_cluster;
use crate::records::Records;

/// No piece of evidence is longer, or has more values: a node with a thousand pods has some megabytes. What is larger is left out.
pub(super) const LINE_BYTES_MAX: usize = 32 << 20;
pub(super) const VALUES_MAX: usize = 2_000_000;
/// More lines that cannot be used are counted, and not named.
pub(super) const UNSEEN_MAX: usize = 100;

/// No more than about this much is kept of bundles: twice what a cluster of 150,000 pods takes.
pub const KEPT_BYTES_MAX: usize = 2 << 30;
/// What a line takes besides its text, about, and each of its values.
const LINE_BYTES: usize = 300;
const VALUE_BYTES: usize = 32;
/// What an object takes besides, in a record that is kept as it is, and a node of which little else is said.
const OBJECT_BYTES: usize = 640;
const NODE_BYTES: usize = 2_600;

/// A bundle that was read, and about how many bytes are kept of it.
#[derive(Debug, Default)]
pub struct Taken {
    pub evidence: Evidence,
    pub kept: Kept,
}

/// About how many bytes are kept: of the store's records, of what Kubernetes says, and of everything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub store: usize,
    pub kubernetes: usize,
    pub others: usize,
}

impl Kept {
    pub fn sum(self) -> usize {
        self.store.saturating_add(self.kubernetes).saturating_add(self.others)
    }

    fn add(&mut self, other: Kept) {
        self.store = self.store.saturating_add(other.store);
        self.kubernetes = self.kubernetes.saturating_add(other.kubernetes);
        self.others = self.others.saturating_add(other.others);
    }
}

/// Reads a bundle. Of several looks, the one before the last is the earlier one; those before it are of no use to anybody, and are forgotten
/// as soon as there is a newer one, so that any number of them takes no more memory than two. A line that cannot be used is said, and hides
/// no other.
pub fn read(name: &str, from: &mut dyn BufRead) -> io::Result<Evidence> {
    Ok(read_within(name, from, KEPT_BYTES_MAX)?.evidence)
}

/// The same, if no more than about so many bytes may be kept of it. The last look matters most, and of a look its nodes: where there is too
/// much, the earlier look is forgotten, then the lists, which are of use only as a whole.
pub fn read_within(name: &str, from: &mut dyn BufRead, room: usize) -> io::Result<Taken> {
    let (mut earlier, mut look): (Option<Reading>, Option<Reading>) = (None, None);
    let (mut number, mut skipped) = (0, 0);
    while let Some(line) = next_line(from)? {
        number += 1;
        let (parsed, bytes, objects) = match &line {
            Line::Whole(line) if line.trim_ascii().is_empty() => continue,
            Line::Whole(line) => (parse(line), cost(line), objects(line)),
            Line::TooLong => (Err("it is too long".to_owned()), 0, 0),
        };
        drop(line);
        let began = parsed.as_ref().is_ok_and(|value| value.get("plumbBundle").is_some());
        if began && let Some(before) = look.take() {
            earlier = Some(before);
        }
        let look = look.get_or_insert_default();
        let kind = parsed.as_ref().map_or(LineKind::Mark, LineKind::of);
        let bytes = bytes + parsed.as_ref().map_or(0, |value| look.more_of(value, objects));
        if kind != LineKind::Mark && !has_room(room, bytes, kind, &mut earlier, look, &mut skipped) {
            skipped += 1;
            continue;
        }
        match parsed.and_then(|value| look.take(value)) {
            Ok(()) => look.note(kind, bytes),
            Err(problem) => {
                look.unseen(Unseen::file(name, FileGap::BundleLine { line: number, why: problem }))
            }
        }
    }
    let mut kept = look.as_ref().map(|look| look.kept).unwrap_or_default();
    kept.add(earlier.as_ref().map(|earlier| earlier.kept).unwrap_or_default());
    let earlier = earlier.map(|earlier| Box::new(earlier.finish(name)));
    let mut evidence = look.map(|look| look.finish(name)).unwrap_or_default();
    if skipped > 0 {
        evidence.unseen.push(Unseen::file(name, FileGap::BeyondMemory(skipped)));
    }
    Ok(Taken { evidence: Evidence { earlier, ..evidence }, kept })
}

/// Makes room for a line, if it can be made. Counts the lines that are forgotten.
fn has_room(
    room: usize,
    bytes: usize,
    kind: LineKind,
    earlier: &mut Option<Reading>,
    look: &mut Reading,
    skipped: &mut u64,
) -> bool {
    let has_room = |earlier: &Option<Reading>, look: &Reading| {
        let before = earlier.as_ref().map_or(0, |earlier| earlier.kept.sum());
        before.saturating_add(look.kept.sum()).saturating_add(bytes) <= room
    };
    if look.has_forgotten && kind != LineKind::Other {
        return false;
    }
    if !has_room(earlier, look) {
        *skipped += earlier.take().map_or(0, |earlier| earlier.lines);
    }
    if !has_room(earlier, look) {
        *skipped += look.forget_lists();
    }
    has_room(earlier, look) && (!look.has_forgotten || kind == LineKind::Other)
}

/// About how much memory is kept of a line.
fn cost(line: &[u8]) -> usize {
    LINE_BYTES + line.len() + values(line) * VALUE_BYTES
}

fn objects(line: &[u8]) -> usize {
    line.iter().filter(|byte| **byte == b'{').count()
}

/// About how many values it has.
fn values(line: &[u8]) -> usize {
    line.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}

/// What a line is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    /// Nothing is kept of it.
    Mark,
    Store,
    Kubernetes,
    Other,
}

impl LineKind {
    fn of(value: &Value) -> LineKind {
        let has = |name: &str| value.get(name).is_some();
        match () {
            () if has("plumbBundle") => LineKind::Mark,
            () if has("record") => LineKind::Store,
            () if has("node") => LineKind::Other,
            () if has(POD) || has(KUBE_NODE) => LineKind::Kubernetes,
            () if has("unread") => LineKind::Other,
            () => LineKind::Mark,
        }
    }
}

/// Without more than a line is worth: a value of two letters takes a hundred bytes of memory.
fn parse(line: &[u8]) -> Result<Value, String> {
    if values(line) > VALUES_MAX {
        return Err("it has too many values".to_owned());
    }
    let mut value: Value = serde_json::from_slice(line).map_err(|_| "it is not JSON".to_owned())?;
    mask(&mut value);
    Ok(value)
}

enum Line {
    Whole(Vec<u8>),
    /// It is skipped, and the next one can be read.
    TooLong,
}

/// A line without its end; `None` at the end of the file.
fn next_line(from: &mut dyn BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut bounded = io::Read::take(&mut *from, LINE_BYTES_MAX as u64);
    if bounded.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.len() < LINE_BYTES_MAX || line.ends_with(b"\n") {
        return Ok(Some(Line::Whole(line)));
    }
    from.skip_until(b'\n')?;
    Ok(Some(Line::TooLong))
}

#[derive(Default)]
struct Reading {
    evidence: Evidence,
    /// What Kubernetes said.
    kubernetes: Evidence,
    has_whole_pods: bool,
    has_whole_nodes: bool,
    records: Records,
    has_records: bool,
    is_whole: bool,
    /// What could not be used and is only counted.
    more_unseen: usize,
    /// About how much is kept, and of how many lines.
    kept: Kept,
    lines: u64,
    list_lines: u64,
    /// The store's records and the lists of Kubernetes were too large: they are not kept.
    has_forgotten: bool,
}

impl Reading {
    fn unseen(&mut self, unseen: Unseen) {
        if self.evidence.unseen.len() < UNSEEN_MAX {
            self.evidence.unseen.push(unseen);
        } else {
            self.more_unseen += 1;
        }
    }

    /// What is kept of a line takes more than its text tells: a record that stays as it is, and a node that is new.
    fn more_of(&self, value: &Value, objects: usize) -> usize {
        let text = |part: &str, name: &str| value.get(part)?.get(name)?.as_str();
        match (text("record", "key"), text("node", "name")) {
            // Of endpoints, which are very many, only what matters is kept.
            (Some(key), _) if !key.contains("/workloadendpoints/") => objects * OBJECT_BYTES,
            (_, Some(node)) if !self.evidence.nodes.contains_key(&node.into()) => NODE_BYTES,
            _ => 0,
        }
    }

    /// Counts a line that is kept.
    fn note(&mut self, kind: LineKind, bytes: usize) {
        let (kept, is_of_list) = match kind {
            LineKind::Mark => return,
            LineKind::Store => (&mut self.kept.store, true),
            LineKind::Kubernetes => (&mut self.kept.kubernetes, true),
            LineKind::Other => (&mut self.kept.others, false),
        };
        *kept = kept.saturating_add(bytes);
        self.lines += 1;
        self.list_lines += u64::from(is_of_list);
    }

    /// Forgets records and lists, and says how many lines they were. A part of them is no use, and another bundle may have the whole.
    fn forget_lists(&mut self) -> u64 {
        (self.records, self.kubernetes) = (Records::default(), Evidence::default());
        (self.kept.store, self.kept.kubernetes) = (0, 0);
        self.has_forgotten = true;
        self.lines -= self.list_lines;
        std::mem::take(&mut self.list_lines)
    }

    fn take(&mut self, mut value: Value) -> Result<(), String> {
        if let Some(version) = value.get("plumbBundle") {
            if version.as_u64() != Some(VERSION) {
                return Err(format!("bundle version {version} is not supported"));
            }
            let taken_at = value.get("takenAt").and_then(Value::as_str);
            self.evidence.taken_at = taken_at.and_then(|text| text.parse().ok());
        } else if let Some(record) = value.get("record") {
            self.record(record)?;
        } else if let Some(node) = value.get_mut("node").filter(|node| node.is_object()) {
            let node: NodeEvidence = read_as(node)?;
            self.evidence.node_mut(node.name.clone()).absorb(node);
        } else if let Some(pod) = value.get_mut(POD) {
            self.kubernetes.pods.get_or_insert_default().push(read_as(pod)?);
        } else if let Some(node) = value.get_mut(KUBE_NODE) {
            self.kubernetes.kube_nodes.get_or_insert_default().push(read_as(node)?);
        } else if let Some(lists) = value.get(WHOLE_KUBERNETES).and_then(Value::as_array) {
            self.has_whole_pods |= lists.iter().any(|list| list == PODS);
            self.has_whole_nodes |= lists.iter().any(|list| list == KUBE_NODES);
        } else if let Some(what) = value.get("unread").and_then(Value::as_str) {
            self.unseen(Unseen::Reported(what.to_owned()));
        } else if value.get("wholeStore") == Some(&Value::Bool(true)) {
            self.is_whole = true;
        } else {
            return Err("its kind is unknown".to_owned());
        }
        Ok(())
    }

    fn record(&mut self, record: &Value) -> Result<(), String> {
        let text = |name: &str| record.get(name).and_then(Value::as_str);
        let key = text("key").ok_or("the record has no key")?;
        let key = Key::from_etcd_text(key).map_err(|error| error.to_string())?;
        let value = match (record.get("value"), text("text")) {
            (Some(value), _) => value.to_string().into_bytes(),
            (None, Some(text)) => text.as_bytes().to_vec(),
            (None, None) => return Err("the record has no value".to_owned()),
        };
        self.has_records = true;
        self.records.add(&key, &value, "");
        Ok(())
    }

    fn finish(self, name: &str) -> Evidence {
        let mut evidence = self.evidence;
        if self.more_unseen > 0 {
            evidence.unseen.push(Unseen::file(name, FileGap::MoreBundleLines(self.more_unseen)));
        }
        if (self.has_records || self.is_whole) && !self.has_forgotten {
            let mut of_store = self.records.finish(self.is_whole);
            of_store.taken_at = evidence.taken_at;
            evidence.absorb(of_store);
        }
        if self.has_forgotten {
            return evidence;
        }
        let mut kubernetes = self.kubernetes;
        if self.has_whole_pods {
            kubernetes.pods.get_or_insert_default();
        }
        if self.has_whole_nodes {
            kubernetes.kube_nodes.get_or_insert_default();
        }
        kubernetes.partial.pods = kubernetes.pods.is_some() && !self.has_whole_pods;
        kubernetes.partial.kube_nodes = kubernetes.kube_nodes.is_some() && !self.has_whole_nodes;
        let kubernetes = of_this_cluster(kubernetes, &evidence);
        evidence.absorb(kubernetes);
        evidence
    }
}

fn read_as<T: DeserializeOwned>(value: &mut Value) -> Result<T, String> {
    serde_json::from_value(value.take()).map_err(|error| error.to_string())
}
