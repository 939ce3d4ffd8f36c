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

struct Started {
    child: Child,
    trip: Trip,
}

/// How many ways are tried at once.
const AT_ONCE: usize = 32;

struct Running {
    node: String,
    pod: PodReport,
}

/// Each node pings its pods; each pod pings its node, the other pods of its node, and one pod of each other node.
pub fn all(cluster: &Cluster) -> Result<Vec<Trip>> {
    let mut running = Vec::new();
    for node in &cluster.description().nodes {
        let pods = cluster.pods(&node.name)?.into_iter().filter(|pod| pod.state == PodState::Running);
        running.extend(pods.map(|pod| Running { node: node.name.clone(), pod }));
    }
    let mut ways = Vec::new();
    for from in &running {
        ways.extend(of_pod(cluster, from, &running)?);
    }
    let mut trips = Vec::new();
    let mut ways = ways.into_iter().peekable();
    while ways.peek().is_some() {
        // Side by side, because whoever gets no answer waits for it.
        let started: Vec<Started> = ways.by_ref().take(AT_ONCE).map(Way::start).collect::<Result<_>>()?;
        for trip in started {
            trips.push(trip.finish()?);
        }
    }
    Ok(trips)
}

fn of_pod(cluster: &Cluster, from: &Running, running: &[Running]) -> Result<Vec<Way>> {
    let mut ways = Vec::new();
    let own = from.pod.key().to_string();
    for address in &from.pod.addresses {
        let command = cluster.command_on(&from.node)?;
        ways.push(way(command, &from.node, &own, address, true));
    }
    let node = cluster.description().node(&from.node)?;
    let has_ipv6 = from.pod.addresses.iter().any(|address| address.contains(':'));
    for address in [node.address(), node.address6().filter(|_| has_ipv6)].into_iter().flatten() {
        let command = cluster.command_in(&from.node, &from.pod.netns)?;
        ways.push(way(command, &own, &from.node, &address.to_string(), true));
    }
    let mut nodes_seen = Vec::new();
    for to in running.iter().filter(|to| to.pod.uid != from.pod.uid) {
        let is_near = to.node == from.node;
        if !is_near && nodes_seen.contains(&&to.node) {
            continue;
        }
        nodes_seen.push(&to.node);
        for address in &to.pod.addresses {
            let command = cluster.command_in(&from.node, &from.pod.netns)?;
            let is_promised = is_near || cluster.description().has_agents;
            let way = way(command, &own, &to.pod.key().to_string(), address, is_promised);
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
    fn start(mut self) -> Result<Started> {
        let patience = if self.trip.outcome == Outcome::Lost { "5" } else { "1" };
        let mut words = vec!["ping", "-n", "-q", "-c", "1", "-W", patience];
        if self.is_far {
            // A route to a new block takes a moment to get to the other nodes: then until one is answered.
            words.extend(["-w", patience, "-i", "0.2"]);
        }
        self.command.args(words).arg(&self.trip.address);
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Started { child: self.command.spawn().context("cannot run ping")?, trip: self.trip })
    }
}

impl Started {
    fn finish(mut self) -> Result<Trip> {
        if self.child.wait()?.success() {
            self.trip.outcome = Outcome::Answered;
        }
        Ok(self.trip)
    }
}
