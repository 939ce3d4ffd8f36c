//! Evidence as the doctor looks at it: of what is alive (the records of a store, this node), and from files that people collected.
//!
//! An edge crate. It reads and concludes nothing: what could not be read is said in the evidence, and every check decides for itself
//! what that means.

pub mod agent;
pub mod bundle;
mod files;
mod node;
pub mod probe;
mod records;
mod unpack;

pub use files::{FilesError, of_files};
pub use node::{Attached, NodeSources, bird_sessions, of_node};
pub use records::of_store;
