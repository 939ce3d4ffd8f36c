//! Nodes that can be asked: agents at their sockets, or else this machine itself, if it is a node.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use doctor::Evidence;
use gather::{NodeSources, agent};
use host::cri::RuntimeClient;
use store::config::agent_setting;

use crate::cli::doctor::ThisNode;
use crate::failure::Failure;

/// Where Calico's agent leaves the name of its node.
const NODENAME_FILE: &str = "/var/lib/calico/nodename";

/// Who tells about a node.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Agent(PathBuf),
    Machine { name: String, runtime: Option<RuntimeClient> },
}

impl Source {
    /// Those who are named; else this machine. None if it is no node, as far as can be told.
    pub(super) fn find(this_node: &ThisNode) -> Result<Vec<Source>, Failure> {
        let named = this_node.agent_socket.iter().cloned().map(Source::Agent);
        let mut sources: Vec<Source> = named.collect();
        let usual = Path::new(agent::AGENT_SOCKET);
        if sources.is_empty() && this_node.node.is_none() && usual.exists() {
            sources.push(Source::Agent(usual.to_owned()));
        }
        if sources.is_empty() || this_node.node.is_some() {
            sources.extend(Source::machine(this_node)?);
        }
        Ok(sources)
    }

    fn machine(this_node: &ThisNode) -> Result<Option<Source>, Failure> {
        let named = this_node.node.clone().or_else(|| agent_setting("NODENAME"));
        let Some(name) = named.or_else(|| name_in(Path::new(NODENAME_FILE))) else {
            return Ok(None);
        };
        let given = this_node.cri_socket.clone().filter(|endpoint| !endpoint.is_empty());
        let runtime = match given.or_else(|| agent_setting("CONTAINER_RUNTIME_ENDPOINT")) {
            Some(endpoint) => {
                Some(RuntimeClient::from_endpoint(&endpoint).map_err(|error| Failure::of(&error))?)
            }
            None => RuntimeClient::usual(),
        };
        Ok(Some(Source::Machine { name, runtime }))
    }

    /// Where it listens, if it is an agent.
    pub(super) fn socket(&self) -> Option<&Path> {
        match self {
            Source::Agent(socket) => Some(socket),
            Source::Machine { .. } => None,
        }
    }

    /// What it tells now. That it could not be asked is evidence, too.
    pub(super) async fn collect(&self) -> Evidence {
        match self {
            Source::Agent(socket) => agent::ask(socket).await.unwrap_or_else(|error| {
                let words = Failure::of(&error).words();
                Evidence { unread: vec![format!("a node was not looked at: {words}")], ..Evidence::default() }
            }),
            Source::Machine { name, runtime } => {
                let (name, runtime) = (name.clone(), runtime.clone());
                gather::of_node(NodeSources { name, runtime, ..NodeSources::default() }).await
            }
        }
    }
}

impl Source {
    /// Sends packets from there, and tells what came back.
    pub(super) async fn probe(&self, addresses: &[IpAddr]) -> Evidence {
        match self {
            Source::Agent(socket) => agent::probe(socket, addresses).await.unwrap_or_else(|error| {
                let unread = vec![format!("no packets were sent: {}", Failure::of(&error).words())];
                Evidence { unread, ..Evidence::default() }
            }),
            Source::Machine { name, .. } => gather::probe::of_node(name, addresses).await,
        }
    }
}

fn name_in(file: &Path) -> Option<String> {
    let name = std::fs::read_to_string(file).ok()?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}
