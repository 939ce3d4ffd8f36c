//! Which nodes have an agent of ours, of which version, and whether it is ready.

use std::collections::{BTreeMap, BTreeSet};

use evidence::Evidence;
use evidence::node::NodeEvidence;
use model::cluster::AGENT_VERSION_ANNOTATION;
use model::{Kind, NodeName};
use serde_json::{Value, json};

/// The DaemonSet's pods are called so, and a suffix.
const POD_PREFIX: &str = "plumb-node-";

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Agents {
    pub(super) nodes: usize,
    /// How many nodes have which.
    pub(super) versions: BTreeMap<String, usize>,
    /// Nodes that are recorded and have had no agent yet.
    pub(super) without: Vec<String>,
    /// Of how many nodes it is known whether the agent is ready.
    pub(super) observed: usize,
    /// Nodes whose agent is not ready, and why.
    pub(super) not_ready: BTreeMap<String, String>,
}

impl Agents {
    pub(super) fn new(evidence: &Evidence) -> Agents {
        let mut agents = Agents::default();
        for node in evidence.records.all(Kind::Node) {
            let metadata = &node.seen.metadata;
            agents.nodes += 1;
            match metadata.annotations.get(AGENT_VERSION_ANNOTATION) {
                Some(version) => *agents.versions.entry(version.clone()).or_default() += 1,
                None => agents.without.push(metadata.name.clone()),
            }
        }
        agents.without.sort();
        let mut observed = BTreeSet::new();
        agents.of_pods(evidence, &mut observed);
        agents.of_nodes(evidence, &mut observed);
        agents.observed = observed.len();
        agents
    }

    /// Whether there is any agent of ours: else it is a cluster that runs something else.
    pub(super) fn are_there(&self) -> bool {
        !self.versions.is_empty()
    }

    fn of_pods(&mut self, evidence: &Evidence, observed: &mut BTreeSet<NodeName>) {
        for pod in evidence.pods.iter().flatten().map(|pod| &pod.seen) {
            let Some(node) = pod.node.clone().filter(|_| pod.name.name.starts_with(POD_PREFIX)) else {
                continue;
            };
            // While one is replaced, there are two; the one that goes does not count.
            if pod.is_terminating() {
                continue;
            }
            let is_ready = pod.ready.is_some_and(|(ready, of)| ready == of && of > 0);
            if !is_ready {
                self.not_ready
                    .insert(node.to_string(), format!("pod {} is {}, not ready", pod.name, pod.status));
            }
            observed.insert(node);
        }
    }

    fn of_nodes(&mut self, evidence: &Evidence, observed: &mut BTreeSet<NodeName>) {
        for node in evidence.nodes.values().filter(|node| node.agent_mode.is_some()) {
            observed.insert(node.name.clone());
            if let Some(problem) = problem(node) {
                self.not_ready.insert(node.name.to_string(), problem);
            }
        }
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.are_there() && !self.without.is_empty() {
            problems.push(format!("no agent has started on {}", self.without.join(", ")));
        }
        problems.extend(
            self.not_ready.iter().map(|(node, why)| format!("the agent on {node} is not ready: {why}")),
        );
        problems
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "nodes": self.nodes,
            "versions": self.versions,
            "withoutAgent": self.without,
            "observed": self.observed,
            "notReady": self.not_ready,
        })
    }
}

fn problem(node: &NodeEvidence) -> Option<String> {
    let store = node.store_problem.as_ref().map(|problem| format!("store: {}", problem.seen));
    let rules = || node.rules_problem.as_ref().map(|problem| format!("rules: {}", problem.seen));
    let state =
        || node.state_folder_problem.as_ref().map(|problem| format!("state directory: {}", problem.seen));
    store.or_else(rules).or_else(state)
}
