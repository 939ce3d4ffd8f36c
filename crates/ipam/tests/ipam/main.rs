//! Decisions about addresses, carried out on a handful of records.

mod affinity;
mod assignment;
mod check;
mod checklist;
mod common;
mod crowded;
mod determine_pools;
mod ensure;
mod looking_ahead;
mod model_check;
#[path = "../naive/mod.rs"]
mod naive;
mod one_block;
mod owner_change;
mod per_handle;
mod pools;
mod random;
mod recovery;
mod release;
mod tunnels;
mod usage;
mod windows;
