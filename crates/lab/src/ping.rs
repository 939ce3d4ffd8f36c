//! Who reaches whom in a lab.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::cluster::Cluster;
use crate::kubelet::{PodReport, PodState};

/// One way, tried once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trip {
    pub from: String,
    pub to: String,
    pub address: String,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Answered,
    Lost,
    /// No answer, and none was promised: without agents nobody makes routes between nodes.
    NotPromised,
}

/// A way that is going to be tried. Its outcome is what it means if no answer comes.
struct Way {
    command: Command,
    trip: Trip,
    /// To a pod of another node.
    is_far: bool,
}

/// How many ways are tried at once.
const AT_ONCE: usize = 32;

/// A pod that runs, and its node.
type Running<'a> = (&'a str, PodReport);

/// Each node pings its pods; each pod pings its node, the other pods of its node, and one pod of each other node.
pub fn all(cluster: &Cluster) -> Result<Vec<Trip>> {
    let mut running = Vec::new();
    for node in &cluster.description().nodes {
        let pods = cluster.pods(&node.name)?.into_iter().filter(|pod| pod.state == PodState::Running);
        running.extend(pods.map(|pod| (node.name.as_str(), pod)));
    }
    let mut ways = Vec::new();
    for from in &running {
        ways.extend(of_pod(cluster, from, &running)?);
    }
    let mut trips = Vec::new();
    let mut ways = ways.into_iter();
    while !ways.as_slice().is_empty() {
        // Side by side, because whoever gets no answer waits for it.
        let started: Vec<_> = ways.by_ref().take(AT_ONCE).map(Way::start).collect::<Result<_>>()?;
        for (mut child, trip) in started {
            let outcome = if child.wait()?.success() { Outcome::Answered } else { trip.outcome };
            trips.push(Trip { outcome, ..trip });
        }
    }
    Ok(trips)
}

fn of_pod(cluster: &Cluster, (node, pod): &Running<'_>, running: &[Running<'_>]) -> Result<Vec<Way>> {
    let mut ways = Vec::new();
    let own = pod.key().to_string();
    for address in &pod.addresses {
        ways.push(way(cluster.command_on(node)?, node, &own, address, true));
    }
    let described = cluster.description().node(node)?;
    let has_ipv6 = pod.addresses.iter().any(|address| address.contains(':'));
    for address in [described.address(), described.address6().filter(|_| has_ipv6)].into_iter().flatten() {
        let command = cluster.command_in(node, &pod.netns)?;
        ways.push(way(command, &own, node, &address.to_string(), true));
    }
    let mut nodes_seen = Vec::new();
    for (other_node, other) in running.iter().filter(|(_, other)| other.uid != pod.uid) {
        let is_near = other_node == node;
        if !is_near && nodes_seen.contains(other_node) {
            continue;
        }
        nodes_seen.push(*other_node);
        for address in &other.addresses {
            let command = cluster.command_in(node, &pod.netns)?;
            let is_promised = is_near || cluster.description().has_agents;
            let way = way(command, &own, &other.key().to_string(), address, is_promised);
            ways.push(Way { is_far: !is_near, ..way });
        }
    }
    Ok(ways)
}

fn way(command: Command, from: &str, to: &str, address: &str, is_promised: bool) -> Way {
    let trip = Trip {
        from: from.to_owned(),
        to: to.to_owned(),
        address: address.to_owned(),
        outcome: if is_promised { Outcome::Lost } else { Outcome::NotPromised },
    };
    Way { command, trip, is_far: false }
}

impl Way {
    fn start(mut self) -> Result<(Child, Trip)> {
        let patience = if self.trip.outcome == Outcome::Lost { "5" } else { "1" };
        let mut words = vec!["ping", "-n", "-q", "-c", "1", "-W", patience];
        if self.is_far {
            // A route to a new block takes a moment to get to the other nodes: then until one is answered.
            words.extend(["-w", patience, "-i", "0.2"]);
        }
        self.command.args(words).arg(&self.trip.address);
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok((self.command.spawn().context("cannot run ping")?, self.trip))
    }
}
