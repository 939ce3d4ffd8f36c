//! The address book on real stores.

mod bad;
mod batching;
mod common;
mod lasting;
mod operations;
mod places;
mod processes;
mod races;
mod scenarios;
mod stepwise;
mod stores;
mod warm;
