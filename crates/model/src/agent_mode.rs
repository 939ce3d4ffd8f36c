//! What an agent does on its node.

use serde::{Deserialize, Serialize};

/// What our agent does on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AgentMode {
    /// It makes the node's network, mends the kernel by itself, and carries out repairs.
    Acts,
    /// It looks and changes nothing: the network is another's.
    Observes,
    /// The network is another's; it changes what an operator's repair asks for, and nothing besides.
    Repairs,
}

impl AgentMode {
    /// Whether it carries out what a repair asks for.
    pub fn can_repair(self) -> bool {
        self != AgentMode::Observes
    }
}
