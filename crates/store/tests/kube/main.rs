//! The Kubernetes store against a real API server, in both of Calico's layouts.

#[path = "../contract/mod.rs"]
mod contract;

mod fixture;
mod keeps_contract;
