//! Whether a record in the destination says what the copy would write.
//!
//! What a store assigns itself (UID, times, revisions) says nothing. In Kubernetes, controllers set owners, finalizers and status, so
//! these are not compared either; a status that is missing is noticed, because it is written with a request of its own.

use serde_json::{Map, Value};

use super::Destination;
use crate::kube::views::calicos_part;
use crate::kube::{self, OF_CUSTOM_RESOURCE, has_status_apart, is_custom_resource, place};
use crate::{Key, Resource};

/// How two values of one record relate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Likeness {
    Same,
    /// The destination has all but these fields.
    Lacks(Vec<String>),
    /// The destination has all, and these fields besides.
    Adds(Vec<String>),
    /// These fields differ.
    Differs(Vec<String>),
}

const ASSIGNED: [&str; 6] =
    ["uid", "creationTimestamp", "resourceVersion", "selfLink", "managedFields", "generation"];
const ACTING: [&str; 2] = ["ownerReferences", "finalizers"];
const STATUS: &str = "status";

pub(super) fn likeness(to: &Destination, key: &Key, planned: &[u8], stored: &[u8]) -> Likeness {
    if planned == stored {
        return Likeness::Same;
    }
    let planned = image(to, key, planned).and_then(|shown| normal(to, key, &shown));
    let (Some(planned), Some(mut stored)) = (planned, normal(to, key, stored)) else {
        return Likeness::Differs(vec!["the whole value".to_owned()]);
    };
    let kind = place(key).map(|place| place.kind);
    if matches!(to, Destination::Kubernetes(_)) && kind.is_some_and(has_status_apart) {
        overlay_status(&planned, &mut stored);
    }
    let mut difference = Difference::default();
    difference.walk("", &planned, &stored);
    let Difference { missing, added, changed } = difference;
    match (missing.is_empty(), added.is_empty(), changed.is_empty()) {
        (true, true, true) => Likeness::Same,
        (false, true, true) => Likeness::Lacks(missing),
        (true, false, true) => Likeness::Adds(added),
        _ => Likeness::Differs([missing, added, changed].concat()),
    }
}

/// A status that somebody has written counts as the planned one.
fn overlay_status(planned: &Value, stored: &mut Value) {
    let Some(stored) = stored.as_object_mut().filter(|stored| stored.contains_key(STATUS)) else { return };
    match planned.get(STATUS) {
        Some(status) => drop(stored.insert(STATUS.to_owned(), status.clone())),
        None => drop(stored.remove(STATUS)),
    }
}

/// What the destination shows of a value that was written to it.
fn image(to: &Destination, key: &Key, value: &[u8]) -> Option<Vec<u8>> {
    match (to, place(key)) {
        (Destination::Kubernetes(cluster), Some(place)) => {
            let document = kube::encode(cluster.layout, key, value).ok()?;
            Some(kube::decode(cluster.layout, place.kind, document).ok()?.value)
        }
        _ => Some(value.to_vec()),
    }
}

/// What a value says. `None` if it cannot be read.
fn normal(to: &Destination, key: &Key, value: &[u8]) -> Option<Value> {
    let mut body = match key {
        Key::Resource { kind, .. } => {
            let mut resource = Resource::decode(key, *kind, value, "").ok()?;
            if matches!(to, Destination::Kubernetes(_)) && !is_custom_resource(*kind) {
                return Some(calicos_part(&resource));
            }
            resource.fill_defaults_on_read();
            resource.to_document()
        }
        _ if value.is_empty() => Map::new(),
        _ => serde_json::from_slice(value).ok()?,
    };
    let is_resource = matches!(key, Key::Resource { .. });
    let metadata = if is_resource { body.get_mut("metadata")?.as_object_mut()? } else { &mut body };
    if is_resource {
        ASSIGNED.iter().for_each(|field| drop(metadata.remove(*field)));
    }
    if matches!(to, Destination::Kubernetes(_)) {
        without_acting(metadata);
    }
    Some(Value::Object(body))
}

fn without_acting(map: &mut Map<String, Value>) {
    ACTING.iter().for_each(|field| drop(map.remove(*field)));
    if let Some(Value::Object(own)) = map.get_mut(OF_CUSTOM_RESOURCE) {
        ACTING.iter().for_each(|field| drop(own.remove(*field)));
        if own.is_empty() {
            map.remove(OF_CUSTOM_RESOURCE);
        }
    }
}

/// Paths of fields, also of the objects in a list. Where a list has other entries than that, it differs as a whole.
#[derive(Default)]
struct Difference {
    missing: Vec<String>,
    added: Vec<String>,
    changed: Vec<String>,
}

impl Difference {
    fn walk(&mut self, path: &str, planned: &Value, stored: &Value) {
        match (planned, stored) {
            (Value::Object(planned), Value::Object(stored)) => self.walk_fields(path, planned, stored),
            (Value::Array(planned), Value::Array(stored)) if have_same_entries(planned, stored) => {
                for (index, (planned, stored)) in planned.iter().zip(stored).enumerate() {
                    self.walk(&format!("{path}[{index}]"), planned, stored);
                }
            }
            _ if planned != stored => self.changed.push(path.to_owned()),
            _ => {}
        }
    }

    fn walk_fields(&mut self, path: &str, planned: &Map<String, Value>, stored: &Map<String, Value>) {
        let below = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
        for (field, value) in planned {
            match stored.get(field) {
                Some(found) => self.walk(&below(field), value, found),
                None => self.missing.push(below(field)),
            }
        }
        self.added
            .extend(stored.keys().filter(|field| !planned.contains_key(*field)).map(|field| below(field)));
    }
}

/// Whether two lists differ at most within their objects and lists.
fn have_same_entries(planned: &[Value], stored: &[Value]) -> bool {
    let is_entered = |pair: (&Value, &Value)| {
        matches!(pair, (Value::Object(_), Value::Object(_)) | (Value::Array(_), Value::Array(_)))
    };
    planned.len() == stored.len()
        && planned.iter().zip(stored).all(|pair| pair.0 == pair.1 || is_entered(pair))
}

/// The value that replaces a stored one. In Kubernetes an object keeps its identity, and what acts on it there.
pub(super) fn onto(to: &Destination, key: &Key, planned: &[u8], stored: &[u8]) -> Vec<u8> {
    let parse = |value: &[u8]| serde_json::from_slice::<Map<String, Value>>(value).ok();
    let (Destination::Kubernetes(_), Some(mut body), Some(there)) = (to, parse(planned), parse(stored))
    else {
        return planned.to_vec();
    };
    if matches!(key, Key::Resource { .. }) {
        let metadata = body.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let (Some(metadata), Some(there)) =
            (metadata.as_object_mut(), there.get("metadata").and_then(Value::as_object))
        else {
            return planned.to_vec();
        };
        for field in ["uid", "creationTimestamp"].into_iter().chain(ACTING) {
            keep(metadata, there, field);
        }
        keep_acting(metadata, there);
    } else {
        keep_acting(&mut body, &there);
    }
    serde_json::to_vec(&body).expect("a JSON value can always be written")
}

fn keep(map: &mut Map<String, Value>, there: &Map<String, Value>, field: &str) {
    match there.get(field) {
        Some(value) => drop(map.insert(field.to_owned(), value.clone())),
        None => drop(map.remove(field)),
    }
}

fn keep_acting(map: &mut Map<String, Value>, there: &Map<String, Value>) {
    let empty = Map::new();
    let there = there.get(OF_CUSTOM_RESOURCE).and_then(Value::as_object).unwrap_or(&empty);
    let mut own = match map.remove(OF_CUSTOM_RESOURCE) {
        Some(Value::Object(own)) => own,
        _ => Map::new(),
    };
    ACTING.iter().for_each(|field| keep(&mut own, there, field));
    if !own.is_empty() {
        map.insert(OF_CUSTOM_RESOURCE.to_owned(), Value::Object(own));
    }
}
