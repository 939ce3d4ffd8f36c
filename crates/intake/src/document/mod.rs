//! Documents in JSON or YAML: lists are taken apart item by item, so that a large one needs no more memory than its
//! largest item.

mod calico;
mod crd;
mod cut;
mod etcd;
mod json;
mod kube;
mod legacy;
mod listed;
mod runtime;
mod settings;
mod yaml;

use model::{Key, Kind};
use serde_json::Value;

use evidence::Sighted;
use evidence::firewall::Firewall;
use evidence::kernel::Kernel;

use super::draft::{Draft, Section};
use model::text::Line;

use listed::Listed;

pub(crate) use json::JsonSplitter;
pub(crate) use yaml::YamlSplitter;

/// An item of a list, or a whole document.
#[derive(Debug, Default)]
pub(crate) struct Item {
    /// Its lines. The first says where it is.
    pub(crate) lines: Vec<Line>,
    pub(crate) value: Option<Value>,
    /// About how many bytes its value takes.
    pub(crate) bytes: usize,
    /// It is one of several in a list.
    pub(crate) is_listed: bool,
    /// It is what stands around a list that was given to its end: its kind, and whether there is more.
    pub(crate) is_frame: bool,
}

/// Where items end up.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// The key that `etcdctl get` printed above a value.
    key: Option<AnyKey>,
    /// What `ip -j` told.
    pub(crate) kernel: Kernel,
    /// What the list that is being read has shown so far.
    listed: Listed,
}

#[derive(Debug)]
enum AnyKey {
    Now(Key),
    Of2017(legacy::EndpointKey),
}

impl Documents {
    /// Takes in a key, whose value will follow. `false`: it is none.
    pub(crate) fn key(&mut self, text: &str) -> bool {
        let now = Key::from_etcd_text(text).ok().map(AnyKey::Now);
        let key = now.or_else(|| legacy::EndpointKey::read(text).map(AnyKey::Of2017));
        let is_key = key.is_some();
        if is_key {
            self.key = key;
        }
        is_key
    }

    /// `etcdctl` of 2017 prints values alone: the key stands in the command.
    pub(crate) fn command(&mut self, command: &str) {
        self.key = None;
        if command.contains("etcdctl") && !command.contains("--prefix") {
            command.split_whitespace().any(|word| self.key(word.trim_matches(['"', '\''])));
        }
    }

    /// Takes in an item. `false`: nobody here knows it.
    pub(crate) fn item(&mut self, item: Item, section: &Section, draft: &mut Draft) -> bool {
        let Some(first) = item.lines.first() else { return true };
        if item.is_frame {
            self.listed.end(item.value.as_ref(), section, draft);
            return true;
        }
        let Some(value) = &item.value else {
            self.listed.note_unread();
            return cut::block(&item, draft) || cut::tell(&item, draft);
        };
        let origin = draft.origin_at(first.number, &shown(&item));
        match self.key.take() {
            Some(AnyKey::Now(key)) => {
                keep_record(&key, item.bytes, draft);
                return calico::stored(&key, value, origin, draft);
            }
            Some(AnyKey::Of2017(key)) => return legacy::endpoint(&key, value, &origin, draft),
            None => {}
        }
        if let Some(records) = etcd::records(value) {
            let mut is_known = records.is_empty();
            for (key, value) in records {
                draft.keep_one();
                self.key(&key);
                is_known |= match self.key.take() {
                    Some(AnyKey::Now(key)) => {
                        // Of all that are in the item: there is hardly ever more than one.
                        keep_record(&key, item.bytes, draft);
                        calico::stored(&key, &value, origin.clone(), draft)
                    }
                    Some(AnyKey::Of2017(key)) => legacy::endpoint(&key, &value, &origin, draft),
                    None => false,
                };
            }
            return is_known;
        }
        if let Some(firewall) = Firewall::read(value) {
            draft.keep(item.bytes);
            draft.replace_firewall(section, Sighted::new(firewall, origin));
            return true;
        }
        if super::iproute::json::element(value, &mut self.kernel, &origin) {
            return true;
        }
        if runtime::element(value, &origin, section, draft) {
            return true;
        }
        if value["kind"].is_null() && settings::of_cloud(value, &origin, draft) {
            return true;
        }
        let known = kube::object(value, &origin, draft)
            || calico::object(value, &origin, draft) && keep_object(value, item.bytes, draft)
            || legacy::block(value, &origin, draft);
        if known && item.is_listed {
            self.listed.note(value);
        }
        known
    }
}

/// Of endpoints, which are very many, only what matters is kept; other records are kept as they are.
fn keep_record(key: &Key, bytes: usize, draft: &Draft) {
    if !matches!(key, Key::Resource { kind: Kind::WorkloadEndpoint, .. }) {
        draft.keep(bytes);
    }
}

fn keep_object(value: &Value, bytes: usize, draft: &Draft) -> bool {
    if value["kind"] != Kind::WorkloadEndpoint.name() {
        draft.keep(bytes);
    }
    true
}

/// What stands for an item in a report: its kind and name, since its first line is hardly more than a brace.
fn shown(item: &Item) -> String {
    let value = item.value.as_ref().unwrap_or(&Value::Null);
    // Those of 2017 have the interface for a name.
    let metadata = &value["metadata"];
    let name = metadata["workload"]
        .as_str()
        .or_else(|| metadata["name"].as_str())
        .or_else(|| value["ifname"].as_str())
        .or_else(|| value["dst"].as_str());
    let first = item.lines.first().map_or("", |line| line.text.trim());
    match (value["kind"].as_str(), metadata["namespace"].as_str(), name) {
        (Some(kind), Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (Some(kind), None, Some(name)) => format!("{kind} {name}"),
        (None, _, Some(name)) => name.to_owned(),
        _ => first.to_owned(),
    }
}
