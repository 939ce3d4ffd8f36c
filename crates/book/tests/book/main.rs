//! The address book on real stores.

mod common;
mod operations;
mod warm;
