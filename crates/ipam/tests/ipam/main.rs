//! Decisions about addresses, carried out on a handful of records.

mod affinity;
mod assignment;
mod check;
mod common;
mod determine_pools;
mod model_check;
mod one_block;
mod per_handle;
mod pools;
mod random;
mod recovery;
mod release;
mod tunnels;
mod usage;
mod windows;
