//! A bundle: evidence as one file, to be looked at elsewhere and later. Also what the agent answers.
//!
//! A line of JSON per thing, so that it can be written and read piece by piece:
//!
//! ```text
//! {"plumbBundle":1,"takenAt":"2026-08-22T06:33:20Z"}             begins a look; a later look may follow
//! {"record":{"key":"/calico/…","value":{…}}}                    a record of the store, as it is; `text` if it is no JSON
//! {"wholeStore":true}                                           every record of the store stands above
//! {"pod":{"seen":{…},"origin":{…}}}                             a pod, as far as checks need it; `kubeNode`: a node of Kubernetes
//! {"wholeKubernetes":["pods","kubeNodes"]}                      every one of these stands above
//! {"node":{"name":"node-a","kernel":{…},…}}                     one node's evidence
//! {"unread":"node node-a: … could not be read: …"}
//! ```
//!
//! Secrets are masked when it is written, and again when it is read: whoever wrote it may have known fewer of them.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod mask;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{KEPT_BYTES_MAX, Kept, Taken, read, read_within};
pub use write::BundleWriter;

const VERSION: u64 = 1;
/// How a bundle begins, so that it can be told from other files.
const BEGINNING: &str = "{\"plumbBundle\":";
/// What lines about Kubernetes are called.
const POD: &str = "pod";
const KUBE_NODE: &str = "kubeNode";
const WHOLE_KUBERNETES: &str = "wholeKubernetes";
/// The lists that such a line may name.
const PODS: &str = "pods";
const KUBE_NODES: &str = "kubeNodes";

/// Whether a file is a bundle, by its first bytes.
pub fn is_bundle(first: &[u8]) -> bool {
    first.starts_with(BEGINNING.as_bytes())
}
