//! A handful of records with revisions, and drivers for the decisions: one that commits all or nothing, one that
//! writes record by record.

mod store;
mod world;

pub(crate) use store::Store;
pub(crate) use world::{World, labels, now, owner, want};
