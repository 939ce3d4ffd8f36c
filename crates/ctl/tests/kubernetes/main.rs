//! The real `plumb` on the Kubernetes store: a real API server, which serves Calico's kinds.
//!
//! * `access`: credentials, contexts, proxies.
//! * `doctor`: what `plumb doctor` and `collect` see of Kubernetes, and what they may not.
//! * `ipam`: address management, where records are written one by one.
//! * `records`: Calico's records, and those that are views of Kubernetes' objects.
//! * `status`: whether the network works, and what an installation would meet.
//! * `refused`: rights that are missing, and a kubeconfig that cannot be read.

#[path = "../cli/harness.rs"]
#[expect(dead_code, reason = "other stores need more of it")]
mod harness;

#[path = "../cli/ipam/town.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod town;

mod access;
mod cluster;
mod doctor;
mod ipam;
mod records;
mod refused;
mod status;
