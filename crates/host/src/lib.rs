//! The only door to the kernel and the node.
//!
//! * [`Host`]: the node's side, in verbs of ours: observe a pod's wiring, put differences right, remove a sandbox's
//!   links.
//! * [`NetNs`], [`PodNamespace`]: network namespaces, and how to be in one for a moment.
//! * [`cri`]: the container runtime, asked which sandboxes it has.
//!
//! Everything made here can be recognised as ours without memory: links by the sandbox in their alias, routes by
//! [`plan::ROUTE_PROTOCOL`]. What cannot be recognised is never removed.

mod apply;
mod create;
pub mod cri;
mod detach;
mod error;
mod links;
mod messages;
mod netlink;
mod netns;
mod objects;
mod observe;
mod sysctl;

pub use detach::{Detached, Swept};
pub use error::HostError;
pub use links::{Host, OwnedLink};
pub use netns::{NetNs, PodNamespace};
