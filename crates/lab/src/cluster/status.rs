//! How a lab is doing.

use std::net::IpAddr;

use serde::Serialize;

use super::{Cluster, LabName, Mode, Stage, StoreKind, settings};
use crate::kubelet::PodReport;
use crate::node_init::{InitRequest, ServiceStatus};

#[derive(Clone, Debug, Serialize)]
pub struct LabStatus {
    pub name: LabName,
    pub stage: Stage,
    pub store: StoreKind,
    pub mode: Mode,
    /// How to reach the store from a node of the lab; from outside too if it is a file.
    pub store_settings: Vec<(String, String)>,
    /// Where all agents can be asked, as `PLUMB_AGENT_SOCKETS` has it. `None`: there are none.
    pub agent_sockets: Option<String>,
    pub nodes: Vec<NodeStatus>,
}

#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    pub name: String,
    pub address: Option<IpAddr>,
    /// `None`: the node does not run.
    pub agent: Option<String>,
    pub kubelet: Option<String>,
    pub pods: Vec<PodReport>,
}

impl LabStatus {
    /// Everything that should run does.
    pub fn is_healthy(&self) -> bool {
        let is_fine = |state: &Option<String>| state.as_deref().is_some_and(|state| state != "stopped");
        self.stage == Stage::Up
            && self
                .nodes
                .iter()
                .all(|node| is_fine(&node.kubelet) && node.agent.as_deref() != Some("stopped"))
    }
}

impl Cluster {
    pub fn status(&self) -> LabStatus {
        let description = &self.description;
        LabStatus {
            name: description.name.clone(),
            stage: description.stage,
            store: description.store,
            mode: description.mode,
            store_settings: settings::store_settings(description, &self.place),
            agent_sockets: settings::agent_sockets(description, &self.place),
            nodes: description.nodes.iter().map(|node| node_status(self, node)).collect(),
        }
    }
}

fn node_status(cluster: &Cluster, node: &super::NodeDescription) -> NodeStatus {
    let services = cluster.init(&node.name, &InitRequest::Status).ok();
    let state_of = |name: &str| {
        let service = services.as_ref()?.iter().find(|service| service.name == name);
        Some(service.map_or_else(|| "none".to_owned(), |service| describe(cluster, &node.name, service)))
    };
    NodeStatus {
        name: node.name.clone(),
        address: node.address(),
        agent: state_of("agent"),
        kubelet: state_of("kubelet"),
        pods: cluster.pods(&node.name).unwrap_or_default(),
    }
}

fn describe(cluster: &Cluster, node: &str, service: &ServiceStatus) -> String {
    match service.is_running {
        false => "stopped".to_owned(),
        true if service.name == "agent" && cluster.agent_readiness(node).is_err() => "not ready".to_owned(),
        true if service.name == "agent" => "ready".to_owned(),
        true => "running".to_owned(),
    }
}
