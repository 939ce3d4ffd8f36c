//! Real namespaces as nodes and pods, with the real binaries: where the product is tried as it will run.
//!
//! * [`Lab`]: one experiment, with a folder of its own. Everything it makes carries its name and goes away with it;
//!   what a killed run left behind goes away when the next one starts.
//! * [`Node`], [`Pod`]: a node's namespace, and a pod's as a runtime would make it.
//! * [`CniCall`]: the plugin called as a runtime calls it.
//!
//! Needs root, `ip` and `ping`; [`missing`] says what is not there.

mod call;
pub mod cluster;
mod control;
mod file;
pub mod kubelet;
mod lab;
mod name;
mod namespace;
mod node;
pub mod node_init;
pub mod ping;
mod pinger;
mod programs;
pub mod replay;
mod wait;

pub use call::{CniCall, CniOutcome};
pub use lab::Lab;
pub use namespace::Namespace;
pub use node::{Node, Pod};
pub use pinger::{Pinger, Tally};
pub use programs::missing_for_cluster;
pub use programs::{Programs, is_root, missing};
pub(crate) use wait::Hopeless;
pub use wait::wait_for;
