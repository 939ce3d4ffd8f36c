//! The address book on real stores.

mod batching;
mod common;
mod operations;
mod places;
mod processes;
mod races;
mod scenarios;
mod stepwise;
mod stores;
mod warm;
