//! The address book on real stores.

mod batching;
mod common;
mod operations;
mod places;
mod processes;
mod races;
mod scenarios;
mod stores;
mod warm;
