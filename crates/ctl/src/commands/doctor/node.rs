//! Which nodes can be asked: agents at their sockets, or else this machine itself, if it is a node.

use std::path::Path;

use gather::NodeSource;
use host::cri::RuntimeClient;
use store::config::agent_setting;

use crate::cli::doctor::ThisNode;
use crate::failure::Failure;

/// Where Calico's agent leaves the name of its node.
const NODENAME_FILE: &str = "/var/lib/calico/nodename";

/// Those that are named; else this machine. None if it is not recognised as a node.
pub(super) fn find(this_node: &ThisNode) -> Result<Vec<NodeSource>, Failure> {
    let named = this_node.agent_socket.iter().cloned().map(NodeSource::Agent);
    let mut sources: Vec<NodeSource> = named.collect();
    let usual = Path::new(wire::AGENT_SOCKET);
    if sources.is_empty() && this_node.node.is_none() && usual.exists() {
        sources.push(NodeSource::Agent(usual.to_owned()));
    }
    if sources.is_empty() || this_node.node.is_some() {
        sources.extend(machine(this_node)?);
    }
    Ok(sources)
}

fn machine(this_node: &ThisNode) -> Result<Option<NodeSource>, Failure> {
    let named = this_node.node.clone().or_else(|| agent_setting("NODENAME"));
    let Some(name) = named.or_else(|| name_in(Path::new(NODENAME_FILE))) else {
        return Ok(None);
    };
    let given = this_node.cri_socket.clone().filter(|endpoint| !endpoint.is_empty());
    let runtime = match given.or_else(|| agent_setting("CONTAINER_RUNTIME_ENDPOINT")) {
        Some(endpoint) => Some(RuntimeClient::from_endpoint(&endpoint).map_err(|error| Failure::of(&error))?),
        None => RuntimeClient::usual(),
    };
    Ok(Some(NodeSource::Machine { name: name.into(), runtime }))
}

fn name_in(file: &Path) -> Option<String> {
    let name = std::fs::read_to_string(file).ok()?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}
