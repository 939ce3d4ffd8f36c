//! Network policy: which packets endpoints may send and receive, and the ruleset that says so to the kernel.
//!
//! A decision crate: no clock, no randomness, no files, no sockets.
//!
//! * [`ruleset`]: tables, chains, sets, maps and rules of nf_tables as data, and the changes between two rulesets.

mod record;
pub mod ruleset;
