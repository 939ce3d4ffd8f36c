//! `plumb node status`, of this node: from its agent, or from BIRD itself.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use evidence::Evidence;
use evidence::NodeEvidence;
use evidence::kernel::Route;
use evidence::node::{Bgp, BgpSession};
use gather::agent;
use model::{AffinityOwner, Key, Kind, Resource};
use plan::between::{BETWEEN_PROTOCOL, VXLAN_DEVICES};
use serde_json::Value;
use store::config::agent_setting;
use store::{Record, Store};

use super::tables::{self, Peer};
use crate::cli::Global;
use crate::cli::node::Status;
use crate::connect;
use crate::failure::{Failure, Failures};
use crate::records;

pub(crate) async fn run(global: &Global, status: &Status) -> Result<(), Failures> {
    let seen = Seen::look(status).await?;
    let mut out = io::stdout().lock();
    match seen.state() {
        State::Running => writeln!(out, "Calico process is running.")?,
        State::NobodyAnswers => writeln!(out, "Calico process is not running.")?,
        State::BirdIsDead => {
            writeln!(out, "Calico process is not running: the agent answers, but BIRD does not run.")?;
        }
    }
    if let Some(node) = &seen.node {
        let facts = facts(global, node).await;
        writeln!(out)?;
        tables::write_facts(&mut out, &facts)?;
    }
    if let Some(mends) = seen.node.as_ref().and_then(|node| node.mends.as_deref()) {
        tables::write_mends(&mut out, mends)?;
    }
    let peers: Vec<Peer> = seen.sessions().map(peer).collect();
    tables::write(&mut out, &peers)?;
    let down = seen.sessions().filter(|session| !session.is_established()).count();
    match (seen.state(), down) {
        (State::Running, 0) => Ok(()),
        (State::Running, down) => {
            Err(Failure::new(format!("{down} of {} sessions are down", peers.len())).into())
        }
        (State::BirdIsDead, _) => Err(Failure::new("BIRD does not run on this node, so there are no BGP sessions")
            .hint("see the agent's log for the reason (journalctl -u plumbd); the agent does not start an external BIRD")
            .into()),
        (State::NobodyAnswers, _) => Err(seen.nobody().into()),
    }
}

/// What runs on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// An agent answers; the BIRD that should be there does not.
    BirdIsDead,
    NobodyAnswers,
}

/// What can be asked here.
struct Seen {
    /// There if an agent answered.
    node: Option<NodeEvidence>,
    bgp: Option<Bgp>,
    why_no_agent: Option<Failure>,
}

impl Seen {
    async fn look(status: &Status) -> Result<Seen, Failure> {
        let (node, why_no_agent) = match agent::ask(&status.agent_socket).await {
            Ok(Evidence { nodes, .. }) => (nodes.into_values().next(), None),
            Err(error) => (None, Some(Failure::of(&error))),
        };
        let of_agent = || agent_setting("PLUMB_BIRD_SOCKET").map(PathBuf::from);
        let named = status.bird_socket.clone().or_else(of_agent);
        let sockets = named.map_or_else(host::bird::sockets, |socket| vec![socket]);
        let name = node.as_ref().map_or_else(|| "this node".into(), |node| node.name.clone());
        let (asked, problems) = gather::bird_sessions(&name, &sockets);
        problems.iter().for_each(|problem| eprintln!("note: {problem}"));
        // The agent knows whether there must be one.
        let of_agent = node.as_ref().and_then(|node| node.bgp.clone());
        let bgp = match asked {
            Some(bgp) if bgp.is_running == Some(true) => Some(bgp),
            asked => of_agent.or(asked),
        };
        Ok(Seen { node, bgp, why_no_agent })
    }

    fn state(&self) -> State {
        match (&self.node, self.bgp.as_ref().and_then(|bgp| bgp.is_running)) {
            (Some(_), Some(false)) => State::BirdIsDead,
            (Some(_), _) | (None, Some(true)) => State::Running,
            (None, _) => State::NobodyAnswers,
        }
    }

    fn sessions(&self) -> impl Iterator<Item = &BgpSession> {
        self.bgp.iter().flat_map(|bgp| &bgp.sessions).map(|session| &session.seen)
    }

    fn nobody(self) -> Failure {
        let why = self.why_no_agent.unwrap_or_else(|| Failure::new("no agent runs on this machine"));
        why.hint("run this as root on a node; for another node use plumb node status NAME")
    }
}

fn peer(session: &BgpSession) -> Peer {
    let cells = [
        session.peer.to_string(),
        session.peer_type.clone(),
        session.state.clone(),
        session.since.clone(),
        session.info.clone(),
    ];
    Peer { is_ipv4: session.peer.is_ipv4(), cells }
}

/// What an operator needs besides: from the agent's look at the kernel, and from the store if it can be reached.
async fn facts(global: &Global, node: &NodeEvidence) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Node", node.name.to_string())];
    match connect::open_for_reading(global).await {
        Ok(store) => facts.extend(of_store(&store, node.name.as_str()).await),
        Err(failure) => facts.push(("Store", format!("cannot be reached: {}", failure.words()))),
    }
    if let Some(problem) = &node.store_problem {
        facts.push(("Agent's store", format!("cannot be used: {}", problem.seen)));
    }
    facts.extend(address_choices(node));
    let not_followed = node.setup.not_followed.iter().flatten();
    facts.extend(not_followed.map(|words| ("Ignored", words.seen.clone())));
    let routes = || node.kernel.routes.iter().flatten().map(|route| &route.seen);
    let between = BETWEEN_PROTOCOL.to_string();
    let count = |wanted: &dyn Fn(&Route) -> bool| routes().filter(|route| wanted(route)).count();
    let by = |name: &'static str| move |route: &Route| route.protocol.as_deref() == Some(name);
    let to_nodes =
        count(&|route| route.protocol.as_deref() == Some(between.as_str()) && route.device.is_some());
    facts.push(("Routes", format!("{to_nodes} to other nodes, {} from BGP", count(&by("bird")))));
    let links = node.kernel.links.iter().flatten().map(|link| &link.seen);
    let tunnels: Vec<String> = links
        .filter(|link| VXLAN_DEVICES.contains(&link.name.as_str()))
        .map(|link| format!("{} {}", link.name, if link.is_up == Some(true) { "up" } else { "down" }))
        .collect();
    facts.push(("Tunnel", if tunnels.is_empty() { "none".to_owned() } else { tunnels.join(", ") }));
    facts
}

/// Why the node goes by its address, and what speaks against it.
fn address_choices(node: &NodeEvidence) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    for choice in node.setup.address_choices.iter().flatten().map(|choice| &choice.seen) {
        if let Some(network) = choice.network {
            let device = choice.device.as_deref().unwrap_or("no device");
            facts.push(("Chosen", format!("{network} on {device}: {}", choice.why)));
        }
        facts.extend(choice.doubts.iter().map(|doubt| ("Doubt", doubt.clone())));
        facts.extend(choice.refused.iter().map(|refusal| ("Refused", refusal.clone())));
    }
    facts
}

async fn of_store(store: &Arc<dyn Store>, node: &str) -> Vec<(&'static str, String)> {
    let record = store.get(&Key::cluster(Kind::Node, node)).await.ok().flatten();
    let resource: Option<Resource> = record.and_then(|record| records::to_resource(&record).ok());
    let Some(resource) = resource else {
        return vec![("Address", "the store has no Node record with this name".to_owned())];
    };
    let text = |field: &str| {
        let bgp = resource.spec("bgp").and_then(|bgp| bgp.get(field));
        bgp.and_then(Value::as_str).map(str::to_owned)
    };
    let addresses: Vec<String> = ["ipv4Address", "ipv6Address"].into_iter().filter_map(text).collect();
    let affinities = store.affinities_of(&AffinityOwner::Host(node.to_owned())).await.unwrap_or_default();
    let block = |record: Record| match record.key {
        Key::Affinity { block, .. } => Some(block.to_string()),
        _ => None,
    };
    let blocks = affinities.into_iter().filter_map(block).collect();
    let or_none = |list: Vec<String>| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    vec![("Address", or_none(addresses)), ("Blocks", or_none(blocks))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_bird_is_not_running_although_the_agent_answers() {
        let seen = |node: bool, is_running: Option<bool>| Seen {
            node: node.then(NodeEvidence::default),
            bgp: is_running.map(|running| Bgp { is_running: Some(running), ..Bgp::default() }),
            why_no_agent: None,
        };
        assert_eq!(seen(true, Some(false)).state(), State::BirdIsDead);
        assert_eq!(seen(true, Some(true)).state(), State::Running);
        assert_eq!(seen(true, None).state(), State::Running, "a node without BGP");
        assert_eq!(seen(false, Some(true)).state(), State::Running, "Calico's");
        assert_eq!(seen(false, Some(false)).state(), State::NobodyAnswers);
        assert_eq!(seen(false, None).state(), State::NobodyAnswers);
    }
}
