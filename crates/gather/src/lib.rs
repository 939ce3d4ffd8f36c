//! Evidence as the doctor looks at it: of what is alive (the records of a store, this node), and from files that people collected.
//!
//! An edge crate. It reads and concludes nothing: what could not be read is said in the evidence, and every check decides for itself
//! what that means.

mod files;
mod records;

pub use files::{FilesError, of_files};
pub use records::of_store;
