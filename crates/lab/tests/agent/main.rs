//! The real agent of a node, called through the real plugin, on the real kernel.

#[expect(dead_code, reason = "shared with the other tests of pods, which use more of it")]
#[path = "../common/mod.rs"]
mod common;
mod on_etcd;
mod on_kubernetes;
mod running;
#[path = "../common/stories.rs"]
mod stories;

mod adoption;
mod annotations;
mod calls;
mod capabilities;
mod chains;
mod churn;
mod dels;
mod hanging;
mod hostile;
mod kubernetes;
mod kubernetes_away;
mod leaks;
mod memory;
mod mending;
mod names;
mod observing;
mod repairing;
mod restarts;
mod roles;
mod starving;
mod state_folder;
mod store_down;
mod strangers;
