//! The address book on real stores.

mod batching;
mod common;
mod operations;
mod races;
mod stores;
mod warm;
