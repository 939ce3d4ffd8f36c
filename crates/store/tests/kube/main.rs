//! The Kubernetes store against a real API server, in both of Calico's layouts.

#[path = "../contract/mod.rs"]
mod contract;

mod access;
mod beside_calico;
mod faults;
mod fixture;
mod keeps_contract;
mod scripted;
mod views;
