//! Evidence of what is alive: the records of a store, this node, what agents answer; and bundles, as they are written and read.
//!
//! An edge crate. It reads and concludes nothing: what could not be read is said in the evidence, and every check decides for itself
//! what that means.

// What is read here was written by strangers: nothing may be cut at a place that need not be there.
#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

pub mod agent;
pub mod bundle;
mod kubernetes;
mod live;
mod node;
pub mod probe;
mod records;

pub use live::{CollectError, LiveSources, NodeSource, ProbeTargets};
pub use node::{Attached, NodeSources, bird_sessions, of_node};
pub use records::of_store;
