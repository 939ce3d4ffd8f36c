//! Network policy: which packets endpoints may send and receive, and the ruleset that says so to the kernel.
//!
//! A decision crate: no clock, no randomness, no files, no sockets.
//!
//! * [`ruleset`]: tables, chains, sets, maps and rules of nf_tables as data, and the changes between two rulesets.

pub mod calculation;
pub mod evaluate;
mod labels;
mod record;
pub mod rendering;
pub mod ruleset;
pub mod walk;

pub use calculation::{Calculation, EndpointId, EndpointKind, KubernetesKind, Scope, Update};
pub use evaluate::{Decision, End, Outcome, Packet, Reason, Stage, Staged};
pub use record::{
    Direction, Entity, Layer, Order, PolicyId, PolicyKind, Rule as PolicyRule, RuleAction, SetSource,
};
pub use rendering::{HostFacts, Rendering, Settings};
