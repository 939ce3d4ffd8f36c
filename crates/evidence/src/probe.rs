//! Packets that were sent to see whether they arrive.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// What came of an echo request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Echo {
    /// The address answered.
    Answered,
    /// Nothing came back, however often it was tried.
    Silent,
    /// Somebody said that it cannot be reached.
    Unreachable { said_by: IpAddr },
    /// The node's own kernel did not send.
    NotSent { problem: String },
}

/// As many addresses are probed at once, from each node.
pub const TARGETS_MAX: usize = 1_000;

impl std::fmt::Display for Echo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Echo::Answered => f.write_str("an answer"),
            Echo::Silent => f.write_str("no answer"),
            Echo::Unreachable { said_by } => write!(f, "{said_by} reports it as unreachable"),
            Echo::NotSent { problem } => write!(f, "the packet was not sent ({problem})"),
        }
    }
}
