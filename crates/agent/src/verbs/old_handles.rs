//! Handles of Calico's second version: a container's bare ID, or a pod's namespace and name. Whoever removes the container releases them, too.

use std::net::IpAddr;

use book::{Book, HandleRequest};
use model::{HandleId, Key};
use tracing::info;

use super::Call;
use super::endpoint;
use super::error::CniError;
use super::records::find_endpoint;

/// Releases what is allocated under the call's old handle. Addresses that a later sandbox of the same pod is recorded with stay.
pub(super) async fn release(book: &Book, call: &Call, key: Option<&Key>) -> Result<(), CniError> {
    let handle = HandleId::from(match &call.request.pod {
        Some(pod) => format!("{}.{}", pod.namespace, pod.name),
        None => call.sandbox.container_id().to_owned(),
    });
    // As a network's name it could be anybody's.
    if handle == call.sandbox.handle() || !book.held(&handle, Vec::new()).await?.0.exists {
        return Ok(());
    }
    let kept = in_use(book, call, key).await?;
    let request = HandleRequest::only(handle.clone(), move |address, _, _| !kept.contains(&address));
    let released = book.release_handle(request).await?;
    info!(sandbox = %call.sandbox, %handle, addresses = ?released.addresses, "released an old handle");
    Ok(())
}

async fn in_use(book: &Book, call: &Call, key: Option<&Key>) -> Result<Vec<IpAddr>, CniError> {
    let (Some(_), Some(key)) = (&call.request.pod, key) else { return Ok(Vec::new()) };
    let Some((_, resource)) = find_endpoint(book, key).await? else { return Ok(Vec::new()) };
    let owner = endpoint::container_id(&resource);
    let is_later = !owner.is_empty() && owner != call.sandbox.container_id();
    Ok(if is_later { endpoint::addresses(&resource).unwrap_or_default() } else { Vec::new() })
}
