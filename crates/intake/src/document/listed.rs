//! Which lists are whole: `kubectl get … -A -o yaml`, a `List` without a continuation.

use std::collections::{BTreeMap, BTreeSet};

use model::Kind;
use serde_json::Value;

use crate::command;
use crate::draft::{Draft, Section};

/// What one list has shown so far.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// The kinds of its elements, each with their namespaces.
    kinds: BTreeMap<String, BTreeSet<String>>,
    has_unread: bool,
}

impl Listed {
    pub(super) fn note(&mut self, element: &Value) {
        let Some(kind) = element["kind"].as_str() else { return };
        let namespaces = match self.kinds.get_mut(kind) {
            Some(namespaces) => namespaces,
            None => self.kinds.entry(kind.to_owned()).or_default(),
        };
        if let Some(namespace) = element.pointer("/metadata/namespace").and_then(Value::as_str)
            && !namespaces.contains(namespace)
        {
            namespaces.insert(namespace.to_owned());
        }
    }

    /// An element of it was cut or broken: whatever it was is not in the evidence.
    pub(super) fn note_unread(&mut self) {
        self.has_unread = true;
    }

    /// The list has ended. Nothing is missing in it unless it continues elsewhere, or its command asked for a part.
    pub(super) fn end(&mut self, frame: Option<&Value>, section: &Section, draft: &mut Draft) {
        let Listed { kinds, has_unread } = std::mem::take(self);
        let frame = frame.unwrap_or(&Value::Null);
        let continues = frame
            .pointer("/metadata/continue")
            .and_then(Value::as_str)
            .is_some_and(|token| !token.is_empty());
        let command = section.command.as_deref().unwrap_or_default();
        if continues || has_unread || command::is_selective(command) {
            return;
        }
        let is_everywhere = command::is_of_all_namespaces(command);
        // Of a namespace alone no more is said than that somebody looked there.
        let is_elsewhere = command::namespace(command).is_some();
        for (kind, namespaces) in &kinds {
            let has_all = is_everywhere || namespaces.len() > 1;
            note_whole(kind, has_all && !is_elsewhere, draft);
        }
        if kinds.is_empty() {
            let told = frame["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
            let told = told.filter(|kind| !kind.is_empty());
            told.into_iter().for_each(|kind| note_none(kind, is_everywhere, draft));
            command::kinds(command).into_iter().for_each(|kind| note_none(kind, is_everywhere, draft));
        }
    }
}

/// All objects of a kind were listed; `is_everywhere`: in all namespaces, where there are any.
fn note_whole(kind: &str, is_everywhere: bool, draft: &mut Draft) {
    match kind {
        "Pod" => draft.whole.pods |= is_everywhere,
        "WorkloadEndpoint" => draft.whole.endpoints |= is_everywhere,
        "Node" => draft.whole.kube_nodes = true,
        "IPAMBlock" => draft.ipam().whole.blocks = true,
        "IPAMHandle" => draft.ipam().whole.handles = true,
        "BlockAffinity" => draft.ipam().whole.affinities = true,
        _ => {}
    }
}

/// A list of a kind that has none.
fn note_none(kind: &str, is_everywhere: bool, draft: &mut Draft) {
    note_whole(kind, is_everywhere, draft);
    match kind {
        "Pod" => drop(draft.cluster.pods.get_or_insert_default()),
        "WorkloadEndpoint" => drop(draft.cluster.endpoints.get_or_insert_default()),
        "Node" | "IPAMBlock" | "IPAMHandle" | "BlockAffinity" => {}
        "Event" => drop(draft.cluster.events.get_or_insert_default()),
        kind => {
            if let Some(kind) = Kind::from_manifest(kind) {
                draft.cluster.records.looked_for(kind);
            }
        }
    }
}
