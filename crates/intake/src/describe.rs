//! `kubectl describe node` and `kubectl describe pod`: fields at the left edge, whatever belongs to them indented below.

use std::collections::BTreeMap;

use model::NodeName;

use evidence::kubernetes::Condition;
use evidence::{KubeNode, Origin, Pod, Sighted};

use super::draft::{Draft, Section};
use super::tables::Table;
use super::words;
use evidence::answers::Header;
use model::text::Line;

/// Lines beyond this are not a description.
const LINES_MAX: usize = 20_000;
const BYTES_MAX: usize = 4 << 20;

/// Lines of one description.
#[derive(Debug, Default)]
pub(crate) struct Description {
    lines: Vec<Line>,
    bytes: usize,
}

/// Whether a description begins here: it always starts with the name.
pub(crate) fn begins(line: &str) -> bool {
    line.strip_prefix("Name:")
        .is_some_and(|rest| rest.starts_with("  ") && rest.split_whitespace().count() == 1)
}

impl Description {
    pub(crate) fn push(&mut self, line: Line) {
        self.bytes = self.bytes.saturating_add(line.text.len());
        if self.lines.len() < LINES_MAX && self.bytes <= BYTES_MAX {
            self.lines.push(line);
        }
    }

    pub(crate) fn finish(self, section: &Section, draft: &mut Draft) {
        let Some(first) = self.lines.first() else { return };
        let fields = fields(&self.lines);
        // What its events are about.
        let mut object = None;
        let has = |name: &str| fields.iter().any(|field| field.name == name);
        if has("System Info") || has("Unschedulable") || has("Allocatable") {
            let node = KubeNode { places: places(&fields, draft), ..node(&fields) };
            let origin = draft.origin(first);
            draft.cluster.kube_nodes.get_or_insert_default().push(Sighted::new(node, origin));
        } else if has("Containers") || has("Node") {
            let pod = pod(&fields);
            object = pod.name.namespace.as_ref().map(|_| format!("Pod/{}", pod.name));
            let origin = draft.origin(first);
            draft.cluster.pods.get_or_insert_default().push(Sighted::new(pod, origin));
        }
        if let Some(events) = fields.iter().find(|field| field.name == "Events") {
            let known = draft.cluster.events.as_ref().map_or(0, Vec::len);
            read_events(events, section, draft);
            let told = draft.cluster.events.iter_mut().flatten().skip(known);
            told.for_each(|event| event.seen.object = event.seen.object.take().or_else(|| object.clone()));
        }
    }
}

/// A field at the left edge: its own value, and the lines below it.
struct Field<'a> {
    line: &'a Line,
    name: &'a str,
    value: &'a str,
    below: Vec<&'a Line>,
}

impl Field<'_> {
    /// The value and, where it goes on below, the rest: labels, annotations.
    fn entries(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.value)
            .chain(self.below.iter().map(|line| line.text.trim()))
            .filter(|entry| !entry.is_empty())
    }
}

fn fields(lines: &[Line]) -> Vec<Field<'_>> {
    let mut fields: Vec<Field<'_>> = Vec::new();
    for line in lines {
        match line.text.split_once(':') {
            Some((name, value)) if !line.text.starts_with([' ', '\t']) => {
                fields.push(Field { line, name, value: value.trim(), below: Vec::new() });
            }
            _ => {
                if let Some(field) = fields.last_mut() {
                    field.below.push(line);
                }
            }
        }
    }
    fields
}

fn node(fields: &[Field<'_>]) -> KubeNode {
    let mut node = KubeNode::default();
    for field in fields {
        match field.name {
            "Name" => node.name = field.value.into(),
            "Labels" => node.labels.extend(field.entries().filter_map(|entry| pair(entry, '='))),
            "Annotations" => node.annotations.extend(field.entries().filter_map(|entry| pair(entry, ':'))),
            "CreationTimestamp" => node.created_at = words::moment(field.value),
            "Lease" => {
                let mut renewed = field.entries().filter_map(|entry| entry.strip_prefix("RenewTime:"));
                node.lease_renewed_at = renewed.next().and_then(|text| words::moment(text.trim()));
            }
            "Conditions" => node.conditions = conditions(field),
            "Taints" => {
                node.taints = field.entries().filter(|taint| *taint != "<none>").map(str::to_owned).collect();
            }
            "ProviderID" => node.provider = field.value.to_owned(),
            "Addresses" => node.internal_ips = internal_ips(field),
            _ => {}
        }
    }
    node
}

/// The lines of annotations, conditions and addresses.
fn places(fields: &[Field<'_>], draft: &Draft) -> BTreeMap<String, Origin> {
    let mut places = BTreeMap::new();
    for field in fields {
        let lines = std::iter::once(field.line).chain(field.below.iter().copied());
        for line in lines {
            let text = line.text.trim();
            let text = if std::ptr::eq(line, field.line) { field.value } else { text };
            let name = match field.name {
                "Annotations" | "Addresses" => text.split_once(':').map(|(name, _)| name),
                "Conditions" => text.split_whitespace().next(),
                _ => None,
            };
            if let Some(name) = name {
                places.entry(name.to_owned()).or_insert_with(|| draft.origin(line));
            }
        }
    }
    places
}

fn pair(entry: &str, separator: char) -> Option<(String, String)> {
    let (name, value) = entry.split_once(separator)?;
    Some((name.trim().to_owned(), value.trim().to_owned()))
}

fn conditions(field: &Field<'_>) -> Vec<Condition> {
    let mut rows = field.below.iter();
    let Some(header) = rows.next().and_then(|line| Header::read(&line.text)) else { return Vec::new() };
    let condition = |line: &&Line| {
        let row = header.row(&line.text)?;
        let text = |name: &str| row.get(name).unwrap_or_default().to_owned();
        let kind = row.get("TYPE").filter(|kind| !kind.starts_with('-'))?.to_owned();
        Some(Condition {
            kind,
            status: text("STATUS"),
            reason: text("REASON"),
            message: text("MESSAGE"),
            heartbeat_at: row.get("LASTHEARTBEATTIME").and_then(words::moment),
            changed_at: row.get("LASTTRANSITIONTIME").and_then(words::moment),
        })
    };
    rows.filter_map(condition).collect()
}

fn internal_ips(field: &Field<'_>) -> Vec<std::net::IpAddr> {
    let values = field.below.iter().filter_map(|line| line.text.trim().split_once(':'));
    values
        .filter(|(kind, _)| *kind == "InternalIP")
        .filter_map(|(_, value)| value.trim().parse().ok())
        .collect()
}

fn pod(fields: &[Field<'_>]) -> Pod {
    let mut pod = Pod::default();
    for field in fields {
        match field.name {
            "Name" => pod.name.name = field.value.to_owned(),
            "Namespace" => pod.name.namespace = Some(field.value.to_owned()),
            // `node/10.0.0.1`
            "Node" => {
                pod.node = field.value.split('/').next().filter(|node| *node != "<none>").map(NodeName::from)
            }
            "Start Time" => pod.created_at = words::moment(field.value),
            "Status" => pod.status = field.value.split_whitespace().next().unwrap_or_default().to_owned(),
            "IP" => pod.addresses.extend(words::address(field.value)),
            "IPs" => {
                let told = field.below.iter().filter_map(|line| line.text.trim().strip_prefix("IP:"));
                for address in told.filter_map(|text| words::address(text.trim())) {
                    if !pod.addresses.contains(&address) {
                        pod.addresses.push(address);
                    }
                }
            }
            "Annotations" => {
                let all = field.entries().filter_map(|entry| pair(entry, ':'));
                pod.annotations.extend(all.filter(|(name, _)| name.contains("projectcalico.org")));
            }
            "Containers" => pod.ready = ready(field),
            _ => {}
        }
    }
    pod
}

/// How many containers there are, and how many of them are ready. A container's name is indented by two, what it says about itself by
/// more.
fn ready(field: &Field<'_>) -> Option<(u32, u32)> {
    let (mut ready, mut all) = (0, 0);
    for line in &field.below {
        let indent = line.text.len() - line.text.trim_start().len();
        match (indent, line.text.trim().split_once(':')) {
            (2, Some(_)) => all += 1,
            (4, Some(("Ready", value))) if value.trim() == "True" => ready += 1,
            _ => {}
        }
    }
    (all > 0).then_some((ready, all))
}

fn read_events(field: &Field<'_>, section: &Section, draft: &mut Draft) {
    draft.cluster.events.get_or_insert_default();
    let mut rows = field.below.iter();
    let Some(table) = rows.next().and_then(|line| Table::begin(&line.text, section)) else { return };
    for line in rows {
        table.row(line, section, draft);
    }
}
