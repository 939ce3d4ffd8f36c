//! A stand-in for kubelet and container runtime, one process per node. It behaves as the real ones do where a
//! network plugin can tell the difference, and serves the runtime's interface, so that an agent asks it as it
//! would ask a containerd.

mod chain;
mod conflist;
#[expect(
    unreachable_pub,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated"
)]
mod generated;
mod kubernetes;
mod listing;
mod pods;
mod protocol;
mod records;
mod runtime;
mod service;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::cluster::{Description, LabName, Place, StoreKind};
use crate::control;
pub use listing::Listing;
pub use protocol::{
    KubeletRequest, LeftBehind, NewPod, PodKey, PodKeyError, PodReport, PodState, SandboxKey,
};

/// Where containerd listens.
const CRI_SOCKET: &str = "/run/containerd/containerd.sock";
const MEMORY: &str = "/var/lib/kubelet/stand-in.json";

/// Runs on a node until it is killed. A forgetful one starts with no memory of pods and sandboxes.
pub fn run(lab: &LabName, node: &str, is_forgetful: bool) -> Result<()> {
    let place = Place::of(lab);
    let records = records::Records::open(Path::new(MEMORY), is_forgetful)?;
    let runtime = Arc::new(runtime::Runtime::new(records));
    let kubernetes = kubernetes(&place, node)?;
    let kubelet = pods::Kubelet::start(Arc::clone(&runtime), kubernetes)?;
    service::serve_in_background(Path::new(CRI_SOCKET), runtime)?;
    let listener = control::listen(&place.kubelet_socket(node))?;
    control::serve(&listener, move |request| kubelet.handle(request))
}

/// Where the lab has an API server.
fn kubernetes(place: &Place, node: &str) -> Result<Option<kubernetes::Kubernetes>> {
    let description = Description::load(place.folder())?;
    if description.store != StoreKind::Kubernetes {
        return Ok(None);
    }
    let node = description.node(node)?;
    let addresses = node.address().into_iter().chain(node.address6()).collect();
    kubernetes::Kubernetes::new(place.clone(), &node.name, addresses).map(Some)
}
