//! Records that Kubernetes keeps as objects of its own: a Pod is an endpoint, a Node a node, a Namespace or a ServiceAccount a
//! profile. [`view`] shows what an object is to Calico; the patches are how Calico writes such a record.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod computed;
mod node;
mod onto;
mod patch;
mod pod;
mod profile;
mod qos;

pub use computed::{Kept, keep_computed};
pub use onto::{NodeOnto, calicos_part, node_onto};
pub use patch::{Fence, endpoint_patch, endpoint_removal_patch, node_patch};

use std::cell::Cell;

use serde_json::{Map, Value, json};

use super::{DecodeError, Decoded, Undecodable};
use crate::names::EndpointName;
use crate::{DevicePrefixes, Key, Kind, Resource};

/// Which of Kubernetes' objects a view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shown {
    Pod,
    Node,
    Namespace,
    ServiceAccount,
}

/// The object behind a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    pub shown: Shown,
    pub namespace: Option<String>,
    pub name: String,
}

impl Shown {
    /// As objects of this kind are called in a path of the core API.
    pub fn plural(self) -> &'static str {
        match self {
            Shown::Pod => "pods",
            Shown::Node => "nodes",
            Shown::Namespace => "namespaces",
            Shown::ServiceAccount => "serviceaccounts",
        }
    }
}

/// What shows the records of a kind, in the order of their keys; none if the kind is not a view.
pub fn shown_as(kind: Kind) -> &'static [Shown] {
    match kind {
        Kind::WorkloadEndpoint => &[Shown::Pod],
        Kind::Node => &[Shown::Node],
        Kind::Profile => &[Shown::Namespace, Shown::ServiceAccount],
        _ => &[],
    }
}

/// The object that a key of a view names; `None` if none can be it.
pub fn behind(key: &Key) -> Option<Behind> {
    let Key::Resource { kind, namespace, name } = key else { return None };
    let of = |shown, namespace: Option<&str>, name: &str| {
        Some(Behind { shown, namespace: namespace.map(str::to_owned), name: name.to_owned() })
    };
    match kind {
        Kind::Node => of(Shown::Node, None, name),
        Kind::WorkloadEndpoint => {
            let parts: EndpointName = name.parse().ok()?;
            let is_pod = parts.orchestrator == "k8s" && parts.endpoint == pod::INTERFACE;
            is_pod.then(|| of(Shown::Pod, namespace.as_deref(), &parts.workload))?
        }
        Kind::Profile => match name.split_once('.')? {
            ("kns", namespace) => of(Shown::Namespace, None, namespace),
            ("ksa", account) => {
                let (namespace, account) = account.split_once('.')?;
                of(Shown::ServiceAccount, Some(namespace), account)
            }
            _ => None,
        },
        _ => None,
    }
}

/// The UIDs of the pod behind an endpoint: a static pod has one UID to the runtime and, as the pod that the kubelet shows for it,
/// another one in the API.
pub fn uids(endpoint: &Resource) -> Vec<String> {
    let metadata = &endpoint.metadata;
    metadata.uid.iter().chain(metadata.annotations.get(pod::MIRROR)).cloned().collect()
}

/// The record that an object shows; `None` if it shows none, as a pod does that uses its node's network. For whoever does not know what
/// devices of pods are called in the cluster.
pub fn view(shown: Shown, object: &Map<String, Value>) -> Result<Option<Decoded>, Undecodable> {
    view_with(shown, object, &DevicePrefixes::default())
}

/// The same where devices of pods are called so.
pub fn view_with(
    shown: Shown,
    object: &Map<String, Value>,
    prefixes: &DevicePrefixes,
) -> Result<Option<Decoded>, Undecodable> {
    let object = Object::new(shown, object);
    let resource = match shown {
        Shown::Pod => pod::endpoint(&object, prefixes),
        Shown::Node => Some(node::node(&object)),
        Shown::Namespace => Some(profile::of_namespace(&object)),
        Shown::ServiceAccount => Some(profile::of_service_account(&object)),
    };
    let decoded = resource.map(|resource| Decoded {
        key: resource.key(),
        value: resource.encode(),
        revision: object.metadata("resourceVersion").to_owned(),
        is_tombstone: false,
    });
    match object.unusable.get() {
        None => Ok(decoded),
        Some(field) => Err(Undecodable { error: object.error(field), stand_in: decoded.map(Box::new) }),
    }
}

/// An object of Kubernetes, and what is often asked of it.
struct Object<'a> {
    shown: Shown,
    object: &'a Map<String, Value>,
    /// The last part that could not be understood.
    unusable: Cell<Option<&'static str>>,
}

impl<'a> Object<'a> {
    fn new(shown: Shown, object: &'a Map<String, Value>) -> Object<'a> {
        Object { shown, object, unusable: Cell::new(None) }
    }

    fn at(&self, path: &[&str]) -> Option<&'a Value> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.object.get(*first)?, |value, field| value.get(field))
    }

    fn text(&self, path: &[&str]) -> &'a str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    fn list(&self, path: &[&str]) -> &'a [Value] {
        self.at(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn metadata(&self, field: &str) -> &'a str {
        self.text(&["metadata", field])
    }

    fn name(&self) -> &'a str {
        self.metadata("name")
    }

    fn labels(&self) -> impl Iterator<Item = (&'a String, &'a str)> {
        let labels = self.at(&["metadata", "labels"]).and_then(Value::as_object);
        labels.into_iter().flatten().filter_map(|(name, value)| Some((name, value.as_str()?)))
    }

    fn annotations(&self) -> impl Iterator<Item = (&'a String, &'a str)> {
        let annotations = self.at(&["metadata", "annotations"]).and_then(Value::as_object);
        annotations.into_iter().flatten().filter_map(|(name, value)| Some((name, value.as_str()?)))
    }

    fn annotation(&self, name: &str) -> Option<&'a str> {
        self.at(&["metadata", "annotations", name]).and_then(Value::as_str)
    }

    /// A record of this object, with what both have in common.
    fn record(&self, kind: Kind, name: String) -> Resource {
        let mut resource = Resource::new(kind, name);
        let kept = |field| Some(self.metadata(field)).filter(|text| !text.is_empty()).map(str::to_owned);
        resource.metadata.uid = kept("uid");
        resource.metadata.creation_timestamp = kept("creationTimestamp");
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            if let Some(value) = self.at(&["metadata", field]) {
                resource.metadata.extra.insert(field.to_owned(), value.clone());
            }
        }
        resource
    }

    /// A part cannot be understood. What else the object says counts.
    fn doubt(&self, part: &'static str) {
        self.unusable.set(Some(part));
    }

    fn error(&self, field: &'static str) -> DecodeError {
        let kind = match self.shown {
            Shown::Pod => Kind::WorkloadEndpoint,
            Shown::Node => Kind::Node,
            Shown::Namespace | Shown::ServiceAccount => Kind::Profile,
        };
        DecodeError::Field { kind, name: self.name().to_owned(), field }
    }
}

fn set_unless_empty(spec: &mut Map<String, Value>, field: &str, text: &str) {
    if !text.is_empty() {
        spec.insert(field.to_owned(), json!(text));
    }
}

#[cfg(test)]
mod tests;
