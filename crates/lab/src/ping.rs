//! Who reaches whom in a lab.

use std::process::{Command, Stdio};

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
    /// No answer, and none was promised.
    NotPromised,
}

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
    let mut trips = Vec::new();
    for from in &running {
        trips.extend(of_pod(cluster, from, &running)?);
    }
    Ok(trips)
}

fn of_pod(cluster: &Cluster, from: &Running, running: &[Running]) -> Result<Vec<Trip>> {
    let mut trips = Vec::new();
    let own = from.pod.key().to_string();
    for address in &from.pod.addresses {
        let command = cluster.command_on(&from.node)?;
        trips.push(trip(command, &from.node, &own, address, true)?);
    }
    let node = cluster.description().node(&from.node)?;
    let has_ipv6 = from.pod.addresses.iter().any(|address| address.contains(':'));
    for address in [node.address(), node.address6().filter(|_| has_ipv6)].into_iter().flatten() {
        let command = cluster.command_in(&from.node, &from.pod.netns)?;
        trips.push(trip(command, &own, &from.node, &address.to_string(), true)?);
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
            trips.push(trip(command, &own, &to.pod.key().to_string(), address, is_near)?);
        }
    }
    Ok(trips)
}

fn trip(command: Command, from: &str, to: &str, address: &str, is_promised: bool) -> Result<Trip> {
    let patience = if is_promised { "5" } else { "1" };
    let outcome = match (answers(command, address, patience)?, is_promised) {
        (true, _) => Outcome::Answered,
        (false, true) => Outcome::Lost,
        (false, false) => Outcome::NotPromised,
    };
    Ok(Trip { from: from.to_owned(), to: to.to_owned(), address: address.to_owned(), outcome })
}

fn answers(mut command: Command, address: &str, patience: &str) -> Result<bool> {
    command.args(["ping", "-n", "-q", "-c", "1", "-W", patience, address]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status().context("cannot run ping")?.success())
}
