//! Work on nodes: handed to the agent of each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use plan::work::{NodeWork, WorkDone};

/// Whoever can have work done on nodes.
#[async_trait]
pub trait Nodes: Send + Sync {
    /// One answer per work, or why nobody could be asked.
    async fn work(&self, node: &str, works: &[NodeWork]) -> Result<Vec<WorkDone>, String>;
}

/// Agents, by the names of their nodes in lower case.
#[derive(Clone, Debug, Default)]
pub struct AgentNodes {
    pub sockets: BTreeMap<String, PathBuf>,
}

#[async_trait]
impl Nodes for AgentNodes {
    async fn work(&self, node: &str, works: &[NodeWork]) -> Result<Vec<WorkDone>, String> {
        let socket =
            self.sockets.get(&node.to_lowercase()).ok_or_else(|| format!("no agent of {node} is known"))?;
        gather::agent::repair(socket, works).await.map_err(|error| words(&error))
    }
}

fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}
