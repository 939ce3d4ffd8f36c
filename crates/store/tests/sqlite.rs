//! The SQLite store: the contract, several processes, crashes, and files that are not as they should be.

mod contract;
#[path = "sqlite/mod.rs"]
mod file;
