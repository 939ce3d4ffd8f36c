//! The real agent of a node, called through the real plugin, on the real kernel.

#[expect(dead_code, reason = "shared with the other tests of pods, which use more of it")]
#[path = "../common/mod.rs"]
mod common;
mod on_etcd;
mod running;

mod adoption;
mod calls;
mod capabilities;
mod chains;
mod churn;
mod dels;
mod hostile;
mod leaks;
mod mending;
mod observing;
mod repairing;
mod roles;
mod store_down;
mod strangers;
