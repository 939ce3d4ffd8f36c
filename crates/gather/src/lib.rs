//! Evidence of what is alive: the records of a store, and this node, as the doctor looks at them.
//!
//! An edge crate. It reads and concludes nothing: what could not be read is said in the evidence, and every check decides for itself
//! what that means.

mod records;

pub use records::of_store;
