//! The pod of a call as Kubernetes has it, where endpoints are views of pods.
//!
//! A runtime names the pod's UID, so an ADD whose pod was deleted and created again under its name is refused before it takes anything.
//! The annotations of the pod and of its namespace count as if the runtime had passed them.

use book::Book;
use model::kube::views;
use model::originals::Named;
use model::{Key, Resource};
use store::Record;

use super::Call;
use super::endpoint::{EndpointId, Keeping};
use super::error::CniError;
use super::netconf::annotations_of_pod;
use super::records::{decode, find_endpoint};
use super::request::PodName;
use crate::namespaces::{self, Annotations};
use crate::services::Services;

/// The one interface of a pod that has an endpoint record.
const INTERFACE: &str = "eth0";

/// The record of the call's pod: cached, or read. `None` if it has none: it is not a pod, or endpoints are records of their own.
pub(super) async fn find(
    call: &Call,
    node: &str,
    book: &Book,
    services: Services<'_>,
) -> Result<Option<(Record, Resource)>, CniError> {
    let (Keeping::Views, Some(pod)) = (Keeping::of(book), &call.request.pod) else { return Ok(None) };
    check_names(pod, node)?;
    let Some(key) = key_of(call, pod, node)? else { return Ok(None) };
    let cached = services.agent().and_then(|agent| agent.endpoints.record_at(&key));
    if let Some((record, resource)) = cached.map(decode).transpose()?
        && is_meant(pod, &resource)
    {
        return Ok(Some((record, resource)));
    }
    read(pod, node, &key, book).await.map(Some)
}

/// A pod of a name that Kubernetes does not allow is not even asked for: such a name could lead to another object.
pub(super) fn check_names(pod: &PodName, node: &str) -> Result<(), CniError> {
    let is_possible = Named::Namespace.allows(&pod.namespace) && Named::Pod.allows(&pod.name);
    if is_possible { Ok(()) } else { Err(gone(pod, node)) }
}

/// The record of the pod, read now. An error if that pod is no longer there.
pub(super) async fn read(
    pod: &PodName,
    node: &str,
    key: &Key,
    book: &Book,
) -> Result<(Record, Resource), CniError> {
    let found = find_endpoint(book, key).await?.ok_or_else(|| gone(pod, node))?;
    if is_meant(pod, &found.1) { Ok(found) } else { Err(is_another(pod, &found.1)) }
}

/// The call with what its pod and the pod's namespace ask for; `None` if they ask for nothing.
pub(super) async fn annotated(
    call: &Call,
    recorded: Option<&(Record, Resource)>,
    book: &Book,
    services: Services<'_>,
) -> Result<Option<Call>, CniError> {
    let (Some((_, recorded)), Some(pod)) = (recorded, &call.request.pod) else { return Ok(None) };
    let cached = services.agent().and_then(|agent| agent.namespaces.annotations_of(&pod.namespace));
    let of_namespace = match cached {
        Some(cached) => cached,
        None => read_namespace(&pod.namespace, book).await?,
    };
    with_annotations(call, &of_namespace, &recorded.metadata.annotations)
}

/// The call with what these annotations of a namespace and of a pod ask for; `None` if that is nothing.
pub(super) fn with_annotations(
    call: &Call,
    of_namespace: &Annotations,
    of_pod: &Annotations,
) -> Result<Option<Call>, CniError> {
    let asked = annotations_of_pod(of_namespace, of_pod);
    if asked.is_empty() { Ok(None) } else { call.annotated(&asked).map(Some) }
}

async fn read_namespace(name: &str, book: &Book) -> Result<Annotations, CniError> {
    let record = book.store().get(&namespaces::key_of(name)).await?;
    Ok(record.as_ref().and_then(namespaces::read).map(|(_, annotations)| annotations).unwrap_or_default())
}

/// Whichever interface the call is for: a pod's annotations count for all of them.
fn key_of(call: &Call, pod: &PodName, node: &str) -> Result<Option<Key>, CniError> {
    let sandbox = model::Sandbox::new(call.sandbox.network(), call.sandbox.container_id(), INTERFACE)?;
    EndpointId::new(Keeping::Views, node, Some(pod), &sandbox).key()
}

pub(super) fn is_meant(pod: &PodName, found: &Resource) -> bool {
    pod.uid.as_deref().is_none_or(|uid| views::uids(found).iter().any(|known| known == uid))
}

pub(super) fn gone(pod: &PodName, node: &str) -> CniError {
    let PodName { namespace, name, uid } = pod;
    let uid = uid.as_ref().map(|uid| format!(" (UID {uid})")).unwrap_or_default();
    let message =
        format!("Kubernetes has no pod {namespace}/{name}{uid} with a network of its own on node {node}");
    CniError::environment(message).hint("the pod was deleted, or this node has another name in Kubernetes")
}

pub(super) fn is_another(pod: &PodName, found: &Resource) -> CniError {
    let PodName { namespace, name, uid } = pod;
    let message = format!(
        "the sandbox is of pod {namespace}/{name} with UID {}, but Kubernetes has that pod with UID {}",
        uid.as_deref().unwrap_or_default(),
        found.metadata.uid.as_deref().unwrap_or_default()
    );
    CniError::environment(message)
        .hint("the pod was deleted and created again; the runtime must make a new sandbox")
}

#[cfg(test)]
mod tests {
    use model::Kind;

    use super::*;

    fn pod(uid: Option<&str>) -> PodName {
        PodName { namespace: "shop".to_owned(), name: "web-0".to_owned(), uid: uid.map(str::to_owned) }
    }

    #[test]
    fn a_pod_that_was_created_again_is_another() {
        let mut found = Resource::new(Kind::WorkloadEndpoint, "node-k8s-web--0-eth0");
        found.metadata.uid = Some("u-2".to_owned());
        assert!(is_meant(&pod(None), &found) && is_meant(&pod(Some("u-2")), &found));
        assert!(!is_meant(&pod(Some("u-1")), &found));
        let error = is_another(&pod(Some("u-1")), &found);
        assert!(error.message.contains("UID u-1") && error.message.contains("UID u-2"), "{error}");
        assert!(error.is_permanent() && gone(&pod(Some("u-1")), "n").is_permanent());
    }
}
