//! The address book on real stores.

mod bad;
mod batching;
mod common;
mod crowded;
mod kubernetes;
mod lasting;
#[path = "../../../ipam/tests/naive/mod.rs"]
mod naive;
mod operations;
mod places;
mod processes;
mod races;
mod random;
mod requests;
mod scenarios;
mod silence;
mod stepwise;
mod stores;
mod warm;
