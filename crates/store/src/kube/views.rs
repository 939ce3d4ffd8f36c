//! Changes of views: patches of the Pods and Nodes behind them, as Calico makes them.
//!
//! Kubernetes makes and removes these objects itself. So an endpoint is written onto a pod that is there, and removing it takes the
//! addresses off that pod. A node's record can be changed, and nothing else.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use model::kube::views::{Fence, Shown, endpoint_patch, endpoint_removal_patch, node_patch};
use model::{Key, Kind, Resource};
use serde_json::Value;

use super::Shared;
use super::client::Request;
use super::failure::{Status, refusal};
use super::range::{Location, Source};
use super::write::{not_kept, revision_of};
use crate::{Change, Precondition, Revision, StoreError, Write};

impl Shared {
    pub(super) async fn change_view(&self, change: &Change) -> Result<Revision, StoreError> {
        let location = Location::of(&change.key).ok_or_else(|| not_kept(&change.key))?;
        let fence = match &change.precondition {
            Precondition::Absent => return self.refuse_creation(change).await,
            // The server would take some of these for "whatever is there".
            Precondition::At(revision) if revision.number().is_none_or(|number| number == 0) => {
                return self.unmet(change).await;
            }
            Precondition::At(revision) => Fence::Revision(revision.as_str()),
            Precondition::Uid(uid) => Fence::Uid(uid),
        };
        let patch = match (location.source, &change.write) {
            (Source::View(Shown::Pod), Write::Put(value)) => {
                let endpoint = resource(&change.key, Kind::WorkloadEndpoint, value)?;
                endpoint_patch(&endpoint, fence, &self.prefixes)
            }
            (Source::View(Shown::Pod), Write::Delete) => endpoint_removal_patch(fence),
            (Source::View(Shown::Node), Write::Put(value)) => {
                let node = resource(&change.key, Kind::Node, value)?;
                node_patch(&node, &self.annotations(&change.key, &location).await?, fence)
            }
            (Source::View(Shown::Node), Write::Delete) => {
                return Err(unsupported(
                    "remove",
                    &change.key,
                    "delete the Node of Kubernetes: kubectl delete node",
                ));
            }
            _ => {
                let how = "it is made from the labels of a namespace or a service account; change those";
                return Err(unsupported("change", &change.key, how));
            }
        };
        self.patch(change, &location, &patch).await
    }

    /// Those of an object now. The patch that they decide about is refused where they changed since the fence's revision.
    async fn annotations(
        &self,
        key: &Key,
        location: &Location,
    ) -> Result<BTreeMap<String, String>, StoreError> {
        let request = Request::get(location.path(self.layout)).metadata_only(true);
        let answer = self.client.send(&request).await?;
        match answer.status {
            StatusCode::OK => {
                let object: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let listed = object.pointer("/metadata/annotations").and_then(Value::as_object);
                let texts = listed.into_iter().flatten();
                Ok(texts.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned()))).collect())
            }
            StatusCode::NOT_FOUND => Ok(BTreeMap::new()),
            _ => Err(refusal(self.client.address(), &format!("reading {key}"), &answer)),
        }
    }

    async fn patch(
        &self,
        change: &Change,
        location: &Location,
        patch: &Value,
    ) -> Result<Revision, StoreError> {
        let path = format!("{}/status", location.path(self.layout));
        let request = Request::write(Method::PATCH, path, patch.to_string().into_bytes());
        let operation = format!("patching {}", change.key);
        let answer = self.client.send(&request).await?;
        let is_other = || {
            // How the server refuses a patch that names another UID.
            let status = Status::of(&answer);
            answer.status == StatusCode::UNPROCESSABLE_ENTITY && status.message.contains("metadata.uid")
        };
        match answer.status {
            StatusCode::OK => revision_of(&answer).ok_or_else(|| StoreError::Other {
                operation,
                source: "the API server's answer has no revision".into(),
            }),
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => self.lost(change, &answer).await,
            _ if is_other() => self.unmet(change).await,
            _ => Err(refusal(self.client.address(), &operation, &answer)),
        }
    }

    /// What is there is in the way; what is not there is Kubernetes' to make.
    async fn refuse_creation(&self, change: &Change) -> Result<Revision, StoreError> {
        match self.get(&change.key).await? {
            Some(existing) => Err(StoreError::AlreadyExists { existing: Box::new(existing) }),
            None => Err(unsupported("create", &change.key, creation(&change.key))),
        }
    }
}

fn creation(key: &Key) -> &'static str {
    match key {
        Key::Resource { kind: Kind::Node, .. } => {
            "there is no such Node in Kubernetes; the kubelet registers it, under the node's name"
        }
        Key::Resource { kind: Kind::WorkloadEndpoint, .. } => "there is no such Pod on that node",
        _ => "it is made from a namespace or a service account",
    }
}

fn unsupported(what: &str, key: &Key, why: &str) -> StoreError {
    StoreError::Unsupported { operation: format!("{what} {key}: {why}") }
}

fn resource(key: &Key, kind: Kind, value: &[u8]) -> Result<Resource, StoreError> {
    Resource::decode(key, kind, value, "")
        .map_err(|error| StoreError::Invalid { problem: format!("{key}: {error}") })
}
