//! Work on nodes: handed to the agent of each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use model::NodeName;
use plan::task::{RepairTask, TaskOutcome};

/// Whoever can have work done on nodes.
#[async_trait]
pub trait Nodes: Send + Sync {
    /// One answer per work, or why nobody could be asked.
    async fn work(&self, node: &NodeName, works: &[RepairTask]) -> Result<Vec<TaskOutcome>, String>;
}

/// Agents, by the names of their nodes.
#[derive(Clone, Debug, Default)]
pub struct AgentNodes {
    pub sockets: BTreeMap<NodeName, PathBuf>,
}

#[async_trait]
impl Nodes for AgentNodes {
    async fn work(&self, node: &NodeName, works: &[RepairTask]) -> Result<Vec<TaskOutcome>, String> {
        let socket = self.sockets.get(node).ok_or_else(|| {
            format!("no agent of node {node} answered; name its socket with --agent-socket")
        })?;
        gather::agent::repair(socket, node, works).await.map_err(|error| model::text::on_one_line(&error))
    }
}
